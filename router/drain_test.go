package router_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// C26: a machine is looked at, found idle and ordered to drain, looked at again
// and terminated, while a job is on its way to it. One thousand interleavings of
// the two, with the messages between router and machine in flight, each in its
// own order; a machine with a job is never terminated.
func TestC26_DrainAgainstAssignment(t *testing.T) {
	terminated, aborted, ran := 0, 0, 0
	for seed := range uint64(1000) {
		r := newRace(t, seed)
		r.play()
		terminated += r.terminated
		aborted += r.aborted
		ran += r.ran
	}
	require.Greater(t, terminated, 100, "too few interleavings ended in a termination")
	require.Greater(t, aborted, 100, "too few ended with the drain taken back")
	require.Greater(t, ran, 100, "too few ran the job on the machine")
}

type race struct {
	*desk
	rng *rand.Rand
	id  spillway.MachineID

	wants []router.ClaimWant
	got   []router.Claimed

	// The machine and its stream: messages arrive in the order sent.
	toMachine, toRouter []func()
	jobs                map[router.JobRef]bool
	draining            bool
	gone                bool

	// What the scaler saw.
	orderedAt             time.Time
	terminated, aborted   int
	ran                   int
	assignedAfterTheOrder int
}

func newRace(t *testing.T, seed uint64) *race {
	r := &race{
		desk: newDesk(t, newPool("linux", 0, 1)), rng: rand.New(rand.NewPCG(26, seed)),
		id: "m1", jobs: make(map[router.JobRef]bool),
	}
	r.connect(r.id, "linux", 1)
	return r
}

// play runs the router's and the scaler's steps, the two streams and the
// machine's heartbeat in a random order, each step up to 10 ms after the last.
func (r *race) play() {
	routing := []func(){
		func() { r.AddPending(count(1)) },
		func() { r.wants = r.Plan(r.now) },
		func() { r.got = r.claim(r.wants, spillway.Requirement{}) },
		r.assign,
	}
	scaling := []func(){r.order, r.look, r.look, r.look, r.takeBack}
	beats := 12 // a bounded number, so that the streams run dry
	for len(routing)+len(scaling) > 0 || len(r.toMachine)+len(r.toRouter) > 0 {
		r.wait(time.Duration(r.rng.IntN(10_000)) * time.Microsecond)
		queues := []*[]func(){&routing, &scaling, &r.toMachine, &r.toRouter}
		if beats > 0 && r.rng.IntN(3) == 0 {
			beats--
			r.heartbeat()
		}
		q := queues[r.rng.IntN(len(queues))]
		if len(*q) > 0 {
			step := (*q)[0]
			*q = (*q)[1:]
			step()
		}
	}
	require.Zero(r.t, r.assignedAfterTheOrder)
	if !r.gone {
		require.Equal(r.t, len(r.jobs), len(r.Held(r.id)))
	}
}

func (r *race) assign() {
	assigned, _ := r.Claimed(r.now, r.wants, r.got)
	for _, a := range assigned {
		if !r.orderedAt.IsZero() {
			r.assignedAfterTheOrder++
		}
		r.toMachine = append(r.toMachine, func() {
			require.False(r.t, r.gone, "the machine was terminated under a job")
			r.jobs[a.Ref] = true
			r.ran++
			r.toRouter = append(r.toRouter, func() { r.Accepted(r.now, r.id, a.Ref) })
		})
	}
}

func (r *race) heartbeat() {
	if r.gone {
		return
	}
	busy, draining := len(r.jobs), r.draining
	var running []router.JobRef
	for ref := range r.jobs {
		running = append(running, ref)
	}
	r.toRouter = append(r.toRouter, func() { r.Heartbeat(r.now, r.id, busy, draining, running) })
}

func (r *race) idle() bool {
	m := r.machine(r.id)
	return m.InUse() == 0
}

func (r *race) order() {
	if !r.idle() {
		return // the first look
	}
	r.Order(r.now, r.id, true)
	r.orderedAt = r.now
	r.toMachine = append(r.toMachine, func() {
		r.draining = true
		r.toRouter = append(r.toRouter, func() { r.DrainAck(r.now, r.id, true) })
	})
}

// look is the second look: it terminates only on the evidence of semantics §4, a
// heartbeat after the acknowledgement and both books at 0.
func (r *race) look() {
	if r.orderedAt.IsZero() || r.gone {
		return
	}
	m := r.machine(r.id)
	if m.DrainAckedAt.IsZero() || !m.HeartbeatAt.After(m.DrainAckedAt) || !r.idle() {
		return
	}
	require.Empty(r.t, r.jobs, "terminated while a job runs on it")
	r.gone = true
	r.terminated++
	require.Empty(r.t, r.Forget(r.now, r.id))
}

func (r *race) takeBack() {
	if r.orderedAt.IsZero() || r.gone {
		return
	}
	r.orderedAt = time.Time{}
	r.aborted++
	r.Order(r.now, r.id, false)
	r.toMachine = append(r.toMachine, func() {
		r.draining = false
		r.toRouter = append(r.toRouter, func() { r.DrainAck(r.now, r.id, false) })
	})
}

// The acknowledgement and the heartbeat behind it may reach the engine at one time;
// the heartbeat is newer all the same, and proves that the drain is obeyed.
func TestHeartbeatBehindTheAcknowledgementIsNewer(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1, "docker"))
	d.connect("m1", "linux", 1)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	d.wait(time.Minute)
	require.True(t, d.Order(d.now, "m1", true))
	require.True(t, d.DrainAck(d.now, "m1", true))
	m := d.machine("m1")
	require.False(t, m.HeartbeatAt.After(m.DrainAckedAt))
	require.True(t, d.Heartbeat(d.now, "m1", 0, true, nil))
	m = d.machine("m1")
	require.True(t, m.HeartbeatAt.After(m.DrainAckedAt))
}
