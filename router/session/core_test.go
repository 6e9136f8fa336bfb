package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// What is planned is asked for whole, in order, and never more at once than the
// bound.
func TestTakeSplitsWants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 0, 10).Draw(t, "sizes")
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		var c claims
		want := map[spillway.JobClass]int{}
		for i, n := range sizes {
			class := spillway.JobClass(fmt.Sprint(i))
			c.planned = append(c.planned, router.ClaimWant{Class: class, Pool: "p", N: n})
			want[class] = n
		}
		got := map[spillway.JobClass]int{}
		for len(c.planned) > 0 {
			batch := c.take(limit)
			require.LessOrEqual(t, jobsWanted(batch), limit)
			require.Positive(t, jobsWanted(batch), "each step gets further")
			for _, w := range batch {
				got[w.Class] += w.N
			}
		}
		require.Equal(t, want, got)
	})
}

func TestRetryDoublesUpToItsBound(t *testing.T) {
	now := time.Unix(1000, 0)
	var r retry
	require.LessOrEqual(t, r.rest(now), time.Duration(0))
	last := time.Duration(0)
	for range 20 {
		r.note(now, errors.New("away"))
		rest := r.rest(now)
		require.GreaterOrEqual(t, rest, last)
		require.LessOrEqual(t, rest, retryMost)
		last = rest
	}
	require.Equal(t, retryMost, last)
	r.note(now, nil)
	require.LessOrEqual(t, r.rest(now), time.Duration(0))
}

func TestRecordsAreWrittenWhenSomebodyWaits(t *testing.T) {
	opt := Options{}.withDefaults()
	start := time.Unix(1000, 0)
	var r records
	r.init()
	require.Equal(t, sweepEvery, r.due(start, &opt), "nothing to write")

	r.writtenAt = start
	r.changed("m1") // a job: not urgent, and something was just written
	require.Equal(t, opt.RecordsEvery, r.due(start, &opt))
	r.urgent("m2")
	require.Equal(t, opt.RecordsDelay, r.due(start, &opt))
	require.LessOrEqual(t, r.due(start.Add(opt.RecordsDelay), &opt), time.Duration(0))

	r.heartbeat("m3", true, true) // the first heartbeat of a drained machine
	require.Contains(t, r.now, spillway.MachineID("m3"))
	r.changed("m3")
	require.NotContains(t, r.soon, spillway.MachineID("m3"), "a job that ends there is waited for")
	r.heartbeat("m3", false, true)
	r.changed("m4")
	require.Contains(t, r.soon, spillway.MachineID("m4"))

	r.news = false
	r.heartbeat("m4", false, false)
	require.False(t, r.news, "it is only there still")
	r.heartbeat("m4", false, true)
	r.heartbeat("m5", false, false)
	require.True(t, r.news, "what one machine says is not made less by another")
}

func TestItemErrors(t *testing.T) {
	away := fmt.Errorf("x: %w", store.ErrUnavailable)
	require.NoError(t, itemError([]error{nil}, 0, nil))
	require.ErrorIs(t, itemError(nil, 0, away), store.ErrUnavailable, "a call that failed as a whole")
	require.ErrorIs(t, itemError([]error{nil, nil}, 1, away), store.ErrUnavailable)
	require.NoError(t, itemError([]error{nil, away}, 0, away), "the call says which part failed")
	require.ErrorIs(t, itemError([]error{nil, away}, 1, away), store.ErrUnavailable)
	require.ErrorIs(t, itemError([]error{store.ErrStaleAttempt}, 0, nil), store.ErrStaleAttempt)
	require.True(t, settled(store.ErrUnknownJob))
	require.False(t, settled(store.ErrUnknown))
}

func TestHeadCutsNoCharacterInHalf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, limit := rapid.String().Draw(t, "s"), rapid.IntRange(0, 40).Draw(t, "limit")
		h := head(s, limit)
		require.LessOrEqual(t, len(h), limit)
		require.True(t, strings.HasPrefix(s, h))
		require.Equal(t, strings.ToValidUTF8(h, ""), h)
	})
}

func TestTheOutboxIsBoundedAndKeepsOrder(t *testing.T) {
	release := make(chan struct{})
	var sent []uint64
	done := make(chan struct{}, 8)
	o := outbox{limit: 3, fail: func(error) {}, send: func(m *runnerv1.RouterMessage) error {
		<-release
		sent = append(sent, m.GetDrain().GetDrainId())
		done <- struct{}{}
		return nil
	}}
	message := func(id uint64) *runnerv1.RouterMessage {
		return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: &runnerv1.Drain{DrainId: id}}}
	}
	require.True(t, o.putAside(message(1)))
	require.True(t, o.put(message(2)))
	require.True(t, o.put(message(3)))
	require.False(t, o.put(message(4)), "three is the limit, sent or not")
	close(release)
	for range 3 {
		<-done
	}
	require.Equal(t, []uint64{1, 2, 3}, sent)
	o.close()
	require.True(t, o.put(message(5)), "a closed outbox swallows")
	require.Len(t, sent, 3)
}

func TestTheOutboxEndsWithTheFirstError(t *testing.T) {
	failed := make(chan error, 2)
	o := outbox{limit: 10, fail: func(err error) { failed <- err }, send: func(*runnerv1.RouterMessage) error {
		return status.Error(codes.Unavailable, "gone")
	}}
	require.True(t, o.putAside(&runnerv1.RouterMessage{}))
	require.True(t, o.put(&runnerv1.RouterMessage{}))
	require.Equal(t, codes.Unavailable, status.Code(<-failed))
	require.True(t, o.put(&runnerv1.RouterMessage{}))
	require.Empty(t, failed)
}

func TestOptionsAreValidated(t *testing.T) {
	require.NoError(t, Options{Replica: "r"}.Validate())
	err := Options{
		Pools: []spillway.Pool{{Name: "No"}}, ClaimTTL: time.Second, RenewEvery: time.Minute,
		HeartbeatEvery: time.Minute, SilentAfter: time.Second,
	}.Validate()
	for _, part := range []string{"Replica", "pool", "renewed", "heartbeat"} {
		require.ErrorContains(t, err, part, "all problems at once")
	}
}

func TestJobsSurviveTheWire(t *testing.T) {
	job := spillway.Job{
		ID: "j1", Name: "n", Priority: 3, Script: "s", Env: map[string]string{"A": "b"}, Timeout: time.Minute,
		NoRetry: true, MaxAttempts: 2, Requirement: spillway.Requirement{
			Tags: []string{"a"}, Protected: true, Project: 7, Groups: []int64{1},
			Resources: spillway.Resources{MilliCPU: 1, MemoryMiB: 2, Features: []string{"docker"}},
		},
	}
	require.Equal(t, job, jobFromProto(jobToProto(&job)))
	require.Equal(t, spillway.Job{}, jobFromProto(nil))
	r := RecordToProto(&spillway.JobRecord{Job: job, State: spillway.Running}, "fp")
	require.Empty(t, r.GetJob().GetScript())
	require.Empty(t, r.GetJob().GetEnv())
	require.Nil(t, r.GetResult())
	for state, wire := range stateToProto {
		require.Equal(t, state, stateFromProto[wire])
	}
}

func TestEventsPrintThemselvesAndNobodyNeedsToListen(t *testing.T) {
	tell[JobLost](nil, JobLost{})
	for _, e := range []fmt.Stringer{
		MachineConnected{Machine: "m"},
		MachineDisconnected{Machine: "m"},
		MachineInterrupted{Machine: "m"},
		MachineInterrupted{Machine: "m", Deadline: time.Unix(1, 0)},
		MachineHealth{Machine: "m"},
		MachineHealth{Machine: "m", Unhealthy: "why"},
		StreamRefused{Machine: "m"},
		JobAssigned{Machine: "m"},
		JobRefused{Machine: "m"},
		JobStarted{Machine: "m"},
		JobLost{Machine: "m"},
		JobFinished{Record: spillway.JobRecord{Machine: "m"}},
		JobQuarantined{Detail: "m"},
		JobRetried{Reason: "m"},
		JobRejected{Detail: "m"},
		JobsPushed{},
		Dispatched{},
		StoreTrouble{Op: "m", Err: errors.New("e")},
		Panicked{Value: "m"},
	} {
		require.NotEmpty(t, e.String())
		require.NotContains(t, e.String(), "%!")
	}
}
