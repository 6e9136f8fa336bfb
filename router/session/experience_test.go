package session_test

import (
	"context"
	"errors"
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

// spy notes what a replica tells the store, and fails when a test says so.
type spy struct {
	session.ExperienceStore

	mu   sync.Mutex
	fail bool
	told []router.Experience
}

func (s *spy) ShareExperience(ctx context.Context, since uint64, x router.Experience) (router.Experience, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return router.Experience{}, since, errors.New("the store is away")
	}
	if !x.Empty() {
		s.told = append(s.told, x)
	}
	return s.ExperienceStore.ShareExperience(ctx, since, x)
}

func (s *spy) setFail(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// sharer is a dispatcher in a bubble that shares what it learns, with one machine.
type sharer struct {
	t       *testing.T
	spy     *spy
	jobs    *session.Jobs
	machine *session.Attached
	stop    func()
}

func newSharer(t *testing.T, s *store.Store, replica string) *sharer {
	t.Helper()
	d, err := session.NewDispatcher(s, session.Options{Replica: replica, Pools: []spillway.Pool{linuxPool(1)}, AckDelay: time.Millisecond})
	require.NoError(t, err)
	r := &sharer{t: t, spy: &spy{ExperienceStore: s}, jobs: session.NewJobs(d, s, s, nil)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	running.Go(func() { d.ShareExperience(ctx, r.spy) })
	r.machine = session.NewRunners(d, nil).Attach(ctx, linuxPool(1))
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "of-" + replica, Capacity: 1}}})
	r.stop = sync.OnceFunc(func() {
		r.machine.Close()
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

func (r *sharer) say(m *runnerv1.RunnerMessage) {
	r.t.Helper()
	require.NoError(r.t, r.machine.Send(m))
}

// runs has the machine run a job for a while.
func (r *sharer) runs(id string, took time.Duration) {
	r.t.Helper()
	j := spillway.Job{ID: spillway.JobID(id), Name: "unit tests", Script: "true", Requirement: spillway.Requirement{Tags: []string{"linux"}, Project: 7}}
	_, err := r.jobs.Submit(r.t.Context(), j)
	require.NoError(r.t, err)
	var assign *runnerv1.Assign
	for assign == nil {
		m, err := r.machine.Recv()
		require.NoError(r.t, err)
		assign = m.GetAssign()
	}
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: assign.GetAttempt()}}})
	time.Sleep(took)
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: id, Attempt: assign.GetAttempt(), Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
	}}})
	for m := (*runnerv1.RouterMessage)(nil); m.GetStatusAck() == nil; {
		m, err = r.machine.Recv()
		require.NoError(r.t, err)
	}
}

// means are those that the replica has told, in their order.
func (r *sharer) means() (all []time.Duration) {
	r.spy.mu.Lock()
	defer r.spy.mu.Unlock()
	for _, x := range r.spy.told {
		for _, d := range x.Durations {
			require.Equal(r.t, []any{"linux", "unit tests"}, []any{d.Pool, d.Job})
			all = append(all, d.Mean.Round(time.Second))
		}
	}
	return all
}

// What one replica has learned another one goes on from, also one that was started after
// the first had ended; what could not be told is told later.
func TestExperienceOutlivesAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		first := newSharer(t, s, "first")
		synctest.Wait()
		first.spy.setFail(true)
		first.runs("1", 8*time.Second)
		time.Sleep(3 * session.ExperienceEvery)
		require.Empty(t, first.means())
		first.spy.setFail(false)
		time.Sleep(2 * session.ExperienceEvery) // what waits to be told, and what was learned since
		require.Equal(t, []time.Duration{8 * time.Second}, first.means())
		require.Equal(t, []spillway.MachineID{"of-first"}, first.spy.told[0].Warm[0].Machines)
		first.stop()

		second := newSharer(t, s, "second")
		synctest.Wait()
		require.Empty(t, second.means(), "what it hears it does not tell")
		second.runs("2", 4*time.Second)
		time.Sleep(2 * session.ExperienceEvery)
		require.Equal(t, []time.Duration{7 * time.Second}, second.means(), "8 s, and a quarter of the way to 4 s")
		second.spy.mu.Lock()
		defer second.spy.mu.Unlock()
		require.Equal(t, []spillway.MachineID{"of-second", "of-first"}, second.spy.told[0].Warm[0].Machines)
	})
}
