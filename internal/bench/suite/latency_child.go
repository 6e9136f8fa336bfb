package suite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/child"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// stamped is a payload that tells when its push began. All of this runs on one machine,
// so that one clock tells of both ends.
func stamped(sent time.Time) string {
	head := strconv.FormatInt(sent.UnixNano(), 10) + " "
	return head + payload[:payloadBytes-len(head)]
}

// arrivals counts jobs as they arrive, and how long each was on its way.
type arrivals struct {
	*tally

	took []atomic.Int64 // [ns]
}

func newArrivals(first, jobs int) *arrivals {
	return &arrivals{newTally(first, jobs), make([]atomic.Int64, jobs)}
}

// got notes that a job is there, with what it carried.
func (a *arrivals) got(id int, carried string) error {
	now := time.Now().UnixNano()
	text, _, _ := strings.Cut(carried, " ")
	sent, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("job %d does not tell when it was pushed: %w", id, err)
	}
	if i := id - a.first; i >= 0 && i < len(a.took) {
		a.took[i].CompareAndSwap(0, max(1, now-sent))
	}
	a.add(id)
	return nil
}

// sum returns the figures of the jobs that have arrived.
func (a *arrivals) sum() arrived {
	var all []float64
	for i := range a.took {
		if t := a.took[i].Load(); t > 0 {
			all = append(all, millis(time.Duration(t)))
		}
	}
	return arrived{measure.Percentile(all, 50), measure.Percentile(all, 99), measure.Percentile(all, 100), a.flaws()}
}

// awaiting is runners that wait for the jobs of one round.
type awaiting interface {
	begin(a *arrivals) error
	// end has them rest: they must not disturb other subjects.
	end()
}

// serveAwaiting is the child's end of receivers.
func serveAwaiting(r awaiting) error {
	child.Answer("connected")
	var current *arrivals
	return child.Orders(func(order string, words []string) error {
		switch {
		case order == "begin":
			t, err := tallyOf(words)
			if err != nil {
				return err
			}
			current = newArrivals(t.first, len(t.times))
			if err := r.begin(current); err != nil {
				return err
			}
			child.Answer("begun")
		case order == "end" && current != nil:
			ctx, cancel := context.WithTimeout(context.Background(), latencyLate)
			_ = current.wait(ctx) // what is not there then is lost, which the flaws tell
			cancel()
			r.end()
			s := current.sum()
			child.Answer("arrived", s.p50, s.p99, s.most, s.lost, s.repeated)
		default:
			return fmt.Errorf("unknown order %s %q", order, words)
		}
		return nil
	})
}

// receivers is the parent's end of a process of runners that wait.
type receivers struct{ process *child.Process }

func startReceivers(ctx context.Context, role, addr string, n int) (*receivers, error) {
	p, err := child.Start(role, addr, strconv.Itoa(n))
	if err != nil {
		return nil, err
	}
	if _, err := p.Hear(ctx, "connected"); err != nil {
		p.Stop()
		return nil, err
	}
	return &receivers{p}, nil
}

func (r *receivers) begin(ctx context.Context, first, jobs int) error {
	if err := r.process.Say("begin", first, jobs); err != nil {
		return err
	}
	_, err := r.process.Hear(ctx, "begun")
	return err
}

func (r *receivers) end(ctx context.Context) (a arrived, err error) {
	if err := r.process.Say("end"); err != nil {
		return a, err
	}
	text, err := r.process.Hear(ctx, "arrived")
	if err != nil {
		return a, err
	}
	_, err = fmt.Sscan(text, &a.p50, &a.p99, &a.most, &a.lost, &a.repeated)
	return a, err
}

func (r *receivers) stop() { r.process.Stop() }
