package session_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// mark is in the payload of every job that is not for the liar's pool.
const mark = "f0reign-payl0ad"

func gpuPool() spillway.Pool {
	return spillway.Pool{Name: "gpu", Capability: spillway.Capability{Tags: []string{"gpu"}}, CapacityPerInstance: 1}
}

func markedJob(id, tag string) *typesv1.Job {
	return &typesv1.Job{
		Id: id, Name: mark, Script: "echo " + mark, Env: map[string]string{"TOKEN": mark},
		Requirement: &typesv1.Requirement{Tags: []string{tag}},
	}
}

// endings counts how often each job was told to have ended.
type endings struct {
	mu    sync.Mutex
	times map[spillway.JobID]int
}

func (e *endings) of(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.times[spillway.JobID(id)]
}

func (e *endings) events() session.Events {
	one := func(id spillway.JobID) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.times[id]++
	}
	return session.Events{
		JobFinished:    func(f session.JobFinished) { one(f.Record.Job.ID) },
		JobQuarantined: func(q session.JobQuarantined) { one(q.Ref.ID) },
	}
}

// TestALyingRunnerGetsNoForeignByte plays 1,000 random machines of one pool that say
// whatever they like: the ids of machines and jobs of other pools, guessed attempts,
// results, refusals, and so on, over many streams. None is told a byte of another pool's
// job, none changes such a job, and each job of its own pool ends once.
func TestALyingRunnerGetsNoForeignByte(t *testing.T) {
	sequences, planes := 1000, 16 // most of the time is waiting
	if underRace {
		sequences = 96
	}
	seed := rand.Uint64()
	for i := range planes {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			e := &endings{times: map[spillway.JobID]int{}}
			opt := session.Options{Pools: []spillway.Pool{linuxPool(4), macPool(), gpuPool()}, Events: e.events()}
			p := startPlane(t, planeConfig{quiet: true, options: opt})
			opt.Replica = "replica-2"
			other := startPlane(t, planeConfig{quiet: true, store: p.store, options: opt})
			for n := i; n < sequences; n += planes {
				s := &lie{p: p, other: other, endings: e, rng: rand.New(rand.NewPCG(seed, uint64(n))), name: fmt.Sprint(n)}
				s.play()
				require.Empty(t, s.wrong, "sequence %d of seed %d:\n%s", n, seed, strings.Join(s.said, "\n"))
			}
		})
	}
}

// lie is one sequence.
type lie struct {
	p, other *plane // the liar's, and another replica
	honestAt *plane // which of them has the job that it is after
	endings  *endings
	rng      *rand.Rand
	name     string
	said     []string
	wrong    []string

	own, foreign []string // jobs
	machines     []string // ids that it may take for its own; the last is an honest machine's
	used         []spillway.MachineID
}

func (l *lie) play() {
	id := func(kind string) string { return kind + "-" + l.name }
	l.own = []string{id("own-a"), id("own-b"), id("own-c")}
	l.foreign = []string{id("runs"), id("waits")}
	l.machines = []string{id("liar"), id("liar-2"), id("absent"), id("honest")}
	l.p.mustPush(markedJob(l.foreign[0], "mac"), markedJob(l.foreign[1], "gpu"))
	l.honestAt = l.p
	if l.rng.IntN(2) == 0 {
		l.honestAt = l.other
	}
	honest := l.honestAt.attachAs(macPool(), &runnerv1.Register{MachineId: id("honest"), Capacity: 1})
	defer honest.Close()
	attempt := honest.assigned(l.foreign[0])
	honest.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: l.foreign[0], Attempt: attempt}}})
	l.p.waitFor(l.foreign[0], running)
	before := []*typesv1.JobRecord{l.p.record(l.foreign[0]), l.p.record(l.foreign[1])}
	for _, own := range l.own {
		l.p.mustPush(job(own))
	}

	for range 1 + l.rng.IntN(3) {
		l.oneStream()
	}
	for i, was := range before {
		if now := l.p.record(l.foreign[i]); !proto.Equal(was, now) {
			l.wrong = append(l.wrong, fmt.Sprintf("was %v, is %v", was, now))
		}
	}
	l.p.dispatcher.MachinesEnded(l.used)
	l.finishOwn()

	// What it lied about goes on as if nothing had been.
	honest.say(result(l.foreign[0], attempt, completed))
	if honest.acked(l.foreign[0]).GetStale() {
		l.wrong = append(l.wrong, "the honest machine's result was refused")
	}
	l.p.cancel(l.foreign[1])
	l.check(l.foreign[0], 4)
}

// check wants a job to have ended once.
func (l *lie) check(id string, transitions int) {
	record := l.p.record(id)
	ends := 0
	for _, tr := range record.GetTransitions() {
		if terminal(tr.GetState()) {
			ends++
		}
	}
	if ends != 1 || !terminal(record.GetState()) || transitions > 0 && len(record.GetTransitions()) != transitions {
		l.wrong = append(l.wrong, fmt.Sprintf("%s has ended %d times: %v", id, ends, record.GetTransitions()))
	}
	require.Eventually(l.p.t, func() bool { return l.endings.of(id) > 0 }, patience, tick)
	if n := l.endings.of(id); n != 1 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was told to have ended %d times", id, n))
	}
}

// finishOwn has an honest machine of the liar's pool do what the liar has not done.
func (l *lie) finishOwn() {
	m := l.p.attachAs(linuxPool(4), &runnerv1.Register{MachineId: "finisher-" + l.name, Capacity: 4})
	defer m.Close()
	left := slices.Clone(l.own)
	ended := assert.Eventually(l.p.t, func() bool {
		for message := range m.heard() {
			if a := message.GetAssign(); a != nil {
				m.say(doneWith(a))
			}
		}
		l.p.dispatcher.MachinesEnded(l.used) // what it held when it was not known yet to have gone
		left = slices.DeleteFunc(left, func(id string) bool { return terminal(l.p.record(id).GetState()) })
		return len(left) == 0
	}, patience, tick)
	if !ended {
		l.wrong = append(l.wrong, fmt.Sprintf("never ended: %v", l.p.record(left[0])))
		return
	}
	for _, id := range l.own {
		l.check(id, 0)
	}
}

// oneStream connects the liar and has it say random things. Whatever it is told is
// looked at.
func (l *lie) oneStream() {
	m := l.p.attachAs(linuxPool(4), l.register())
	defer func() {
		m.Close()
		for message := range m.heard() {
			l.look(message)
		}
	}()
	for range 1 + l.rng.IntN(12) {
		message := l.message()
		l.said = append(l.said, message.String())
		if m.Send(message) != nil {
			return
		}
		if l.rng.IntN(2) == 0 {
			continue
		}
		for heard := range m.heard() {
			l.look(heard)
			l.react(m, heard)
		}
	}
}

func (l *lie) look(m *runnerv1.RouterMessage) {
	b, err := proto.Marshal(m)
	if err != nil || bytes.Contains(b, []byte(mark)) {
		l.wrong = append(l.wrong, fmt.Sprintf("was told %v", m))
	}
	if a := m.GetAssign(); a != nil && !slices.Contains(l.own, a.GetJob().GetId()) {
		l.wrong = append(l.wrong, "was given "+a.GetJob().GetId())
	}
}

// react does with a job that it was given one thing or another.
func (l *lie) react(m *attached, heard *runnerv1.RouterMessage) {
	a := heard.GetAssign()
	if a == nil {
		return
	}
	id, attempt := a.GetJob().GetId(), a.GetAttempt()
	switch l.rng.IntN(4) {
	case 0:
		m.say(doneWith(a))
		m.say(doneWith(a))
		m.say(result(id, attempt, failed))
	case 1:
		m.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: attempt}}})
	case 2:
		m.say(result(id, attempt+1, completed))
		m.say(doneWith(a))
		m.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{JobId: id, Attempt: attempt, Code: 1}}})
	default:
	}
}

func (l *lie) register() *runnerv1.Register {
	reg := &runnerv1.Register{MachineId: l.machines[min(l.rng.IntN(6), 3)], Capacity: int32(l.rng.IntN(9) - 1)}
	if l.rng.IntN(3) == 0 {
		reg.MachineId = l.machines[0]
	}
	reg.Capacity = max(reg.Capacity, 0)
	if l.rng.IntN(2) == 0 {
		reg.Running = l.running()
	}
	if reg.GetMachineId() != l.machines[3] || l.honestAt != l.p {
		l.used = append(l.used, spillway.MachineID(reg.GetMachineId()))
	}
	l.said = append(l.said, reg.String())
	return reg
}

func (l *lie) running() (list []*runnerv1.RunningJob) {
	for range l.rng.IntN(4) {
		list = append(list, &runnerv1.RunningJob{JobId: l.anyJob(), Attempt: l.anyAttempt()})
	}
	return list
}

func (l *lie) anyJob() string {
	all := append(append([]string{"invented"}, l.own...), l.foreign...)
	all = append(all, l.foreign...) // what it is after
	return all[l.rng.IntN(len(all))]
}

func (l *lie) anyAttempt() int32 { return int32(l.rng.IntN(4)) + 1 - int32(l.rng.IntN(20)/19) }

func (l *lie) message() *runnerv1.RunnerMessage {
	id, attempt := l.anyJob(), l.anyAttempt()
	switch l.rng.IntN(12) {
	case 0, 1:
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{
			Busy: int32(l.rng.IntN(6)), Draining: l.rng.IntN(8) == 0, Running: l.running(),
		}}}
	case 2, 3, 4:
		states := []typesv1.JobState{completed, failed, canceled, completed, failed, running}
		return result(id, attempt, states[l.rng.IntN(len(states))])
	case 5, 6, 7:
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: attempt}}}
	case 8, 9:
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
			JobId: id, Attempt: attempt, Code: runnerv1.RefusalCode(l.rng.IntN(5)),
		}}}
	case 10:
		return drainAck(uint64(l.rng.IntN(3)), l.rng.IntN(2) == 0)
	default:
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{JobId: id, Attempt: attempt}}}
	}
}

func result(id string, attempt int32, state typesv1.JobState) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: id, Attempt: attempt, Result: &typesv1.JobResult{State: state},
	}}}
}

// attached is a machine within the process whose messages are kept until they are asked
// for.
type attached struct {
	*session.Attached

	t    testing.TB
	mu   sync.Mutex
	told []*runnerv1.RouterMessage
}

func (p *plane) attachAs(pool spillway.Pool, reg *runnerv1.Register) *attached {
	a := &attached{
		Attached: session.NewRunners(p.dispatcher, nil).Attach(context.Background(), pool),
		t:        p.t,
	}
	a.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: reg}})
	go func() {
		for {
			m, err := a.Recv()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.told = append(a.told, m)
			a.mu.Unlock()
		}
	}()
	return a
}

// say says m; a conversation that the router has ended has nobody who hears it.
func (a *attached) say(m *runnerv1.RunnerMessage) { _ = a.Send(m) }

// heard is what has come since it was last asked for.
func (a *attached) heard() func(func(*runnerv1.RouterMessage) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	a.told = nil
	return slices.Values(told)
}

// assigned waits for a job and returns its attempt.
func (a *attached) assigned(id string) int32 {
	return awaits(a, func(m *runnerv1.RouterMessage) *runnerv1.Assign {
		if m.GetAssign().GetJob().GetId() == id {
			return m.GetAssign()
		}
		return nil
	}).GetAttempt()
}

func (a *attached) acked(id string) *runnerv1.StatusAck {
	return awaits(a, func(m *runnerv1.RouterMessage) *runnerv1.StatusAck {
		if m.GetStatusAck().GetJobId() == id {
			return m.GetStatusAck()
		}
		return nil
	})
}

func awaits[T any](a *attached, get func(*runnerv1.RouterMessage) *T) (found *T) {
	require.Eventually(a.t, func() bool {
		for m := range a.heard() {
			if f := get(m); f != nil {
				found = f
			}
		}
		return found != nil
	}, patience, tick)
	return found
}
