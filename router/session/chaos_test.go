package session_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// ledger is what the machines of the chaos test have done, for I10: a job is on at
// most one machine at a time, and ends once.
type ledger struct {
	mu struct {
		sync.Mutex
		on       map[string]string // job → machine that runs it and is connected
		finished map[string]int    // acknowledged and not stale
		doubled  []string
	}
}

func (l *ledger) began(id, machine string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.mu.on[id]; other != "" && other != machine {
		l.mu.doubled = append(l.mu.doubled, fmt.Sprintf("%s on %s and %s", id, other, machine))
	}
	l.mu.on[id] = machine
}

func (l *ledger) left(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.on, id)
}

func (l *ledger) stored(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.finished[id]++
}

// TestChaos runs machines that refuse, break their streams, come back with what
// they had, and repeat themselves, over a store that is away now and then. When
// that ends, each job has ended once.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	// In a bubble no machine is later with a job than the router waits for it.
	synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
}

func chaos(t *testing.T, seed uint64) {
	t.Helper()
	x := &toxic{}
	p := startPlane(t, planeConfig{
		bubble: true, wrap: func(s *store.Store) fullStore { x.Store = s; return x },
		options: session.Options{
			Pools:    []spillway.Pool{linuxPool(3), macPool()},
			Timeouts: router.Timeouts{Assigned: 300 * time.Millisecond},
		},
	})
	l := &ledger{}
	l.mu.on, l.mu.finished = map[string]string{}, map[string]int{}
	const jobs, machines = 200, 6
	quiet := make(chan struct{}) // closed when the faults end
	stop := make(chan struct{})
	var all sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); all.Wait() })
	defer end()
	for i := range machines {
		m := &chaoticMachine{p: p, id: fmt.Sprintf("m%d", i), rng: rand.New(rand.NewPCG(seed, uint64(i))), ledger: l, quiet: quiet, stop: stop, has: map[string]int32{}, ended: map[string]int32{}}
		all.Go(m.run)
	}
	pushed := make([]*typesv1.Job, jobs)
	for i := range pushed {
		pushed[i] = job(fmt.Sprintf("j%d", i))
	}
	p.mustPush(pushed...)
	all.Go(func() { weather(x, rand.New(rand.NewPCG(seed, 99)), quiet) })
	<-time.After(2 * time.Second)
	close(quiet)
	for i := range jobs {
		r := p.waitFor(fmt.Sprintf("j%d", i), completed)
		require.Equal(t, completed, r.GetState())
	}
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.mu.doubled)
	for id, n := range l.mu.finished {
		require.Equal(t, 1, n, "job %s was acknowledged as stored %d times", id, n)
	}
	require.Positive(t, x.failures.Load(), "a run without store faults proves nothing")
	require.Positive(t, p.seen.times("refused"), "nor one without refusals")
	require.Greater(t, p.seen.times("connected"), machines, "nor one without reconnects")
	require.Zero(t, p.seen.times("panicked"))
}

// weather takes the store away and brings it back.
func weather(x *toxic, rng *rand.Rand, quiet <-chan struct{}) {
	defer x.away.Store(false)
	for {
		x.away.Store(!x.away.Load())
		select {
		case <-quiet:
			return
		case <-time.After(time.Duration(20+rng.IntN(100)) * time.Millisecond):
		}
	}
}

// chaoticMachine runs jobs in no time and behaves badly within the protocol.
type chaoticMachine struct {
	p           *plane
	id          string
	rng         *rand.Rand
	ledger      *ledger
	quiet, stop <-chan struct{}

	has   map[string]int32 // running
	ended map[string]int32 // not yet acknowledged
}

func (m *chaoticMachine) run() {
	for {
		select {
		case <-m.stop:
			return
		default:
		}
		m.oneStream()
	}
}

func (m *chaoticMachine) calm() bool {
	select {
	case <-m.quiet:
		return true
	default:
		return false
	}
}

// oneStream connects, repeats unacknowledged results, and goes on until the stream
// breaks, by its own doing or the router's.
func (m *chaoticMachine) oneStream() {
	r := m.p.open(linuxToken)
	defer r.conn.Close()
	defer r.end()
	reg := &runnerv1.Register{MachineId: m.id, Capacity: 3, AcksInAssign: m.rng.IntN(2) == 0}
	for id, attempt := range m.has {
		reg.Running = append(reg.Running, &runnerv1.RunningJob{JobId: id, Attempt: attempt})
	}
	_ = r.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: reg}})
	for id, attempt := range m.ended {
		m.report(r, id, attempt)
	}
	for {
		select {
		case <-m.stop:
			return
		case <-time.After(time.Duration(1+m.rng.IntN(5)) * time.Millisecond):
			if !m.calm() && m.rng.IntN(40) == 0 {
				return // breaks its own stream
			}
			m.work(r)
		case message, open := <-r.messages:
			if !open {
				return
			}
			m.take(r, message)
		}
	}
}

// work ends one of its jobs.
func (m *chaoticMachine) work(r *runner) {
	for id, attempt := range m.has {
		delete(m.has, id)
		m.ledger.left(id)
		m.ended[id] = attempt
		m.report(r, id, attempt)
		if m.rng.IntN(4) == 0 {
			m.report(r, id, attempt) // twice
		}
		return
	}
}

func (m *chaoticMachine) report(r *runner, id string, attempt int32) {
	_ = r.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: id, Attempt: attempt, Result: &typesv1.JobResult{State: completed},
	}}})
}

func (m *chaoticMachine) take(r *runner, message *runnerv1.RouterMessage) {
	switch {
	case message.GetRegistered() != nil:
		for _, s := range message.GetRegistered().GetSuperseded() {
			m.giveUp(s.GetJobId(), s.GetAttempt())
		}
	case message.GetCancelJob() != nil:
		m.giveUp(message.GetCancelJob().GetJobId(), message.GetCancelJob().GetAttempt())
	case message.GetStatusAck() != nil:
		m.acknowledged(message.GetStatusAck())
	case message.GetAssign() != nil:
		for _, ack := range message.GetAssign().GetAcks() {
			m.acknowledged(ack)
		}
		id, attempt := message.GetAssign().GetJob().GetId(), message.GetAssign().GetAttempt()
		if !m.calm() && m.rng.IntN(6) == 0 {
			_ = r.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
				JobId: id, Attempt: attempt, Code: runnerv1.RefusalCode_REFUSAL_CODE_INVALID,
			}}})
			return
		}
		m.has[id] = attempt
		m.ledger.began(id, m.id)
		_ = r.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: attempt}}})
	}
}

func (m *chaoticMachine) acknowledged(ack *runnerv1.StatusAck) {
	if m.ended[ack.GetJobId()] != ack.GetAttempt() {
		return
	}
	delete(m.ended, ack.GetJobId())
	if !ack.GetStale() {
		m.ledger.stored(ack.GetJobId())
	}
}

func (m *chaoticMachine) giveUp(id string, attempt int32) {
	if m.has[id] == attempt {
		delete(m.has, id)
		m.ledger.left(id)
	}
}
