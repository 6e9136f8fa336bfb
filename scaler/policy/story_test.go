package policy_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// story prints a decision as an operator reads it.
func story(d policy.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d -> %d %s: %s", d.From, d.Desired, d.Direction, d.Reason)
	if d.LimitedBy != "" {
		fmt.Fprintf(&b, ", limited by %s", d.LimitedBy)
	}
	for _, a := range []struct {
		name  string
		count int
	}{{"undrain", d.Undrain}, {"launch", d.Launch}, {"withdraw", d.Withdraw}, {"remove", d.Remove}} {
		if a.count > 0 {
			fmt.Fprintf(&b, "; %s %d", a.name, a.count)
		}
	}
	for _, s := range d.Trace {
		fmt.Fprintf(&b, "\n    %-13s %3d -> %-3d %s", s.Step, s.Before, s.After, s.Why)
	}
	return b.String()
}

// fleet is the smallest world that decisions can act in: a job takes one
// instance, an instance boots for a minute, a removed one is gone at once.
type fleet struct {
	t0      time.Time
	jobs    []job
	ready   []time.Time // of each instance: when it is or was up
	freeAt  []time.Time // of each instance: when its last job ends or ended
	calls   int
	started int // launches
	most    int // instances at once
}

type job struct {
	at, end time.Duration // end 0 = waits
	length  time.Duration
}

func (f *fleet) observe(now time.Time, p policy.Policy) policy.Observation {
	o := policy.Observation{GroupDesired: len(f.ready), GroupMax: 100, LaunchClamp: -1}
	for i, ready := range f.ready {
		switch {
		case ready.After(now):
			o.Booting++
		case f.freeAt[i].After(now):
			o.Usable, o.InUse, o.Running = o.Usable+1, o.InUse+1, o.Running+1
		default:
			o.Usable++
			if now.Sub(f.freeAt[i]) >= p.IdleTime {
				o.Removable++
			}
		}
	}
	waiting := 0
	for _, j := range f.jobs {
		if j.end == 0 && now.Sub(f.t0) >= j.at {
			waiting++
		}
	}
	o.Attributed = min(waiting, p.Max-o.Running)
	o.Overflow = waiting - o.Attributed
	return o
}

// assign gives waiting jobs to free instances.
func (f *fleet) assign(now time.Time) {
	for j := range f.jobs {
		for i := range f.ready {
			if f.jobs[j].end == 0 && now.Sub(f.t0) >= f.jobs[j].at && !f.ready[i].After(now) && !f.freeAt[i].After(now) {
				f.freeAt[i] = now.Add(f.jobs[j].length)
				f.jobs[j].end = f.freeAt[i].Sub(f.t0)
			}
		}
	}
}

func (f *fleet) act(now time.Time, p policy.Policy, d policy.Decision) {
	if d.Launch+d.Remove > 0 {
		f.calls++
	}
	f.started += d.Launch
	for range d.Launch {
		up := now.Add(time.Minute)
		f.ready, f.freeAt = append(f.ready, up), append(f.freeAt, up)
	}
	for i := 0; i < len(f.ready) && d.Remove > 0; i++ {
		if now.Sub(f.freeAt[i]) >= p.IdleTime {
			f.ready, f.freeAt = append(f.ready[:i], f.ready[i+1:]...), append(f.freeAt[:i], f.freeAt[i+1:]...)
			d.Remove, i = d.Remove-1, i-1
		}
	}
	f.most = max(f.most, len(f.ready))
}

// play runs the fleet for a while and returns each decision whose story differs
// from the one before it.
func (f *fleet) play(p policy.Policy, tick, length time.Duration) string {
	var b bytes.Buffer
	var s policy.State
	last := ""
	for after := time.Duration(0); after <= length; after += tick {
		now := f.t0.Add(after)
		f.assign(now)
		var d policy.Decision
		d, s = policy.Decide(p, s, f.observe(now, p), now)
		f.act(now, p, d)
		if text := story(d); text != last {
			fmt.Fprintf(&b, "%7s  %s\n", after, text)
			last = text
		}
	}
	return b.String()
}

func TestC13Story(t *testing.T) {
	f := &fleet{t0: t0}
	for at := time.Duration(0); at < time.Hour; at += 90 * time.Second {
		f.jobs = append(f.jobs, job{at: at, length: time.Minute})
	}
	f.play(rules(nil), 5*time.Second, time.Hour)
	require.LessOrEqual(t, f.calls, 4)
	require.LessOrEqual(t, f.started, 2)
}

func TestC03Story(t *testing.T) {
	f := &fleet{t0: t0, jobs: make([]job, 40)}
	for i := range f.jobs {
		f.jobs[i].length = 5 * time.Minute
	}
	p := rules(func(p *policy.Policy) { p.Max = 20 })
	f.play(p, 5*time.Second, 10*time.Minute)
	require.Equal(t, 1, f.calls)
	require.Equal(t, 20, f.started)
}

// The whole of C06, to be read: 25 jobs, at most 15 instances, and back to zero.
func TestC06Story(t *testing.T) {
	f := &fleet{t0: t0, jobs: make([]job, 25)}
	for i := range f.jobs {
		f.jobs[i] = job{at: time.Second, length: 5 * time.Minute}
	}
	p := rules(func(p *policy.Policy) { p.Max = 15 })
	got := f.play(p, 5*time.Second, time.Hour)
	for _, j := range f.jobs {
		require.Positive(t, j.end, "every job ran")
		require.LessOrEqual(t, j.end, 665*time.Second+5*time.Second)
	}
	require.Equal(t, 15, f.most)
	require.Empty(t, f.ready, "and all are gone")

	file := filepath.Join("testdata", "c06_burst_beyond_max.txt")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(golden), got, "if this is meant to change: go test -update, and read the difference")
}
