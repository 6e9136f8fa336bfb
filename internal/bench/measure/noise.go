package measure

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MaxDisturbance is the share of the machine that others may take before a timed
// row is called noisy: the pressure on the CPUs while we do nothing, or the CPU
// time that others use while we measure.
const MaxDisturbance = 0.20

// Noise is how much others disturbed a benchmark. A negative share is unknown: this
// system does not tell.
type Noise struct {
	// Pressure is the share of a second before the run in which some task waited for
	// a CPU while this program slept: "some" of /proc/pressure/cpu. During the run that
	// number is of no use, since our own processes press on the CPUs.
	Pressure float64 `json:"pressure_before"`
	// Others is the share of all CPU time during the run that others used or that the
	// hypervisor took.
	Others float64 `json:"others_cpu_share"`
}

// TooMuch reports whether timed rows are to be called noisy.
func (n Noise) TooMuch() bool { return n.Pressure > MaxDisturbance || n.Others > MaxDisturbance }

func (n Noise) String() string {
	text := "pressure on the CPUs before: " + percent(n.Pressure) + ", others' share of the CPUs during: " + percent(n.Others)
	if n.TooMuch() {
		text += fmt.Sprintf(" (noisy: above %s)", percent(MaxDisturbance))
	}
	return text
}

func percent(share float64) string {
	if share < 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// Watch observes what others do during one benchmark.
type Watch struct {
	pressure float64
	began    cpuTimes
	known    bool
}

// StartWatch sleeps for the window, to see what the machine does without us, and
// then begins to observe.
func StartWatch(ctx context.Context, window time.Duration) *Watch {
	w := &Watch{pressure: quietPressure(ctx, window)}
	w.began, w.known = readCPUTimes()
	return w
}

// Stop returns what was observed.
func (w *Watch) Stop() Noise {
	n := Noise{Pressure: w.pressure, Others: -1}
	if ended, ok := readCPUTimes(); ok && w.known {
		n.Others = othersShare(w.began, ended)
	}
	return n
}

// quietPressure is the share of the window in which some task waited for a CPU.
func quietPressure(ctx context.Context, window time.Duration) float64 {
	before, ok := readPressure()
	if !ok {
		return -1
	}
	began := time.Now()
	select {
	case <-time.After(window):
	case <-ctx.Done():
	}
	after, ok := readPressure()
	if !ok {
		return -1
	}
	return float64(after-before) / float64(time.Since(began))
}

// parsePressure reads how long some task has waited for a CPU, since the start.
func parsePressure(text string) (time.Duration, bool) {
	for line := range strings.SplitSeq(text, "\n") {
		rest, ok := strings.CutPrefix(line, "some ")
		if !ok {
			continue
		}
		var avg10, avg60, avg300 float64
		var total int64
		if _, err := fmt.Sscanf(rest, "avg10=%g avg60=%g avg300=%g total=%d", &avg10, &avg60, &avg300, &total); err != nil {
			return 0, false
		}
		return time.Duration(total) * time.Microsecond, true
	}
	return 0, false
}

// cpuTimes is CPU time since the start, in ticks of the system's clock.
type cpuTimes struct {
	all  int64 // of all CPUs, idle or not
	busy int64 // not idle
	own  int64 // by this process and all that descend from it
}

// othersShare is what others used between two looks, as a share of all.
func othersShare(began, ended cpuTimes) float64 {
	all := ended.all - began.all
	if all <= 0 {
		return 0
	}
	return max(0, float64((ended.busy-began.busy)-(ended.own-began.own))/float64(all))
}
