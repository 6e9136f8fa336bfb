package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// A replica that stood still for longer than anybody may be silent, and than a claim holds,
// hears first what its machines have said meanwhile: none is taken for gone, and the job
// that one of them had accepted is not given away or lost.
func TestAReplicaThatStoodStillHearsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stood = session.DefaultClaimTTL + 30*time.Second
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		var told struct {
			sync.Mutex
			bad []string
		}
		bad := func(what string) {
			told.Lock()
			defer told.Unlock()
			told.bad = append(told.bad, what)
		}
		d, err := session.NewDispatcher(s, session.Options{
			Replica: "replica", Pools: []spillway.Pool{linuxPool(1)}, AckDelay: time.Millisecond,
			Events: session.Events{
				JobAssigned:         func(session.JobAssigned) { time.Sleep(stood) }, // the dispatcher tells of it, and does nothing else
				JobLost:             func(e session.JobLost) { bad(e.String()) },
				MachineDisconnected: func(e session.MachineDisconnected) { bad(e.String()) },
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = d.Run(ctx) })
		r := &sharer{t: t, jobs: session.NewJobs(d, s, s, nil), machine: session.NewRunners(d, nil).Attach(ctx, linuxPool(1))}
		stop := sync.OnceFunc(func() {
			r.machine.Close()
			cancel()
			running.Wait()
		})
		t.Cleanup(stop)
		r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m", Capacity: 1}}})
		_, err = r.jobs.Submit(ctx, spillway.Job{ID: "1", Script: "true", Requirement: spillway.Requirement{Tags: []string{"linux"}}})
		require.NoError(t, err)
		var assign *runnerv1.Assign
		for assign == nil {
			m, err := r.machine.Recv()
			require.NoError(t, err)
			assign = m.GetAssign()
		}

		time.Sleep(stood + 100*time.Millisecond) // what it has said comes through a moment later
		r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: "1", Attempt: assign.GetAttempt()}}})
		ref := []*runnerv1.RunningJob{{JobId: "1", Attempt: assign.GetAttempt()}}
		for beat := range uint64(8) {
			r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{Sequence: beat + 1, Busy: 1, Running: ref}}})
			time.Sleep(spillway.DefaultHeartbeatEvery)
		}
		records, err := s.GetMany(ctx, []spillway.JobID{"1"})
		require.NoError(t, err)
		require.Equal(t, []any{spillway.Running, 1}, []any{records[0].State, records[0].Attempt})
		r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
			JobId: "1", Attempt: assign.GetAttempt(), Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
		}}})
		time.Sleep(time.Second)
		records, err = s.GetMany(ctx, []spillway.JobID{"1"})
		require.NoError(t, err)
		require.Equal(t, spillway.Completed, records[0].State)
		told.Lock()
		require.Empty(t, told.bad)
		told.Unlock()
	})
}
