package router_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

var (
	states = []spillway.JobState{
		spillway.Pending, spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Running,
		spillway.Completed, spillway.Failed, spillway.Rejected, spillway.Canceled,
	}
	events = []router.Event{
		router.Claim, router.Admit, router.Reject, router.Assign, router.Start,
		router.Complete, router.Fail, router.Release, router.Return, router.Cancel, router.Expire,
	}
)

func TestNextAlongTheWay(t *testing.T) {
	tests := []struct {
		name   string
		events []router.Event
		want   []spillway.JobState
	}{
		{
			"a job that ends well",
			[]router.Event{router.Claim, router.Admit, router.Assign, router.Start, router.Complete},
			[]spillway.JobState{spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Running, spillway.Completed},
		},
		{
			"a machine is lost, the next one fails",
			[]router.Event{router.Claim, router.Admit, router.Assign, router.Start, router.Release, router.Claim, router.Admit, router.Assign, router.Fail},
			[]spillway.JobState{
				spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Running, spillway.Pending,
				spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Failed,
			},
		},
		{
			"an admitted job's machine is lost, and nobody is asked again",
			[]router.Event{router.Claim, router.Admit, router.Assign, router.Start, router.Return, router.Assign},
			[]spillway.JobState{
				spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Running, spillway.Admitted, spillway.Assigned,
			},
		},
		{
			"a controller says no",
			[]router.Event{router.Claim, router.Reject},
			[]spillway.JobState{spillway.Routing, spillway.Rejected},
		},
		{
			"a machine never accepts, and nobody waits any longer",
			[]router.Event{router.Claim, router.Admit, router.Assign, router.Expire, router.Expire},
			[]spillway.JobState{spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Pending, spillway.Failed},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := spillway.Pending
			for i, ev := range tt.events {
				var err error
				state, err = router.Next(state, ev)
				require.NoError(t, err)
				require.Equal(t, tt.want[i], state)
			}
		})
	}
}

func TestNextRefusesTheRest(t *testing.T) {
	tests := []struct {
		from spillway.JobState
		ev   router.Event
	}{
		{spillway.Pending, router.Start},
		{spillway.Pending, router.Release},
		{spillway.Pending, router.Complete},
		{spillway.Running, router.Claim},
		{spillway.Running, router.Reject},
		{spillway.Routing, router.Start},
		{spillway.Admitted, router.Start},
		{spillway.Pending, router.Return},
		{"", router.Claim},
		{spillway.Pending, "no such event"},
	}
	for _, tt := range tests {
		state, err := router.Next(tt.from, tt.ev)
		require.ErrorIs(t, err, router.ErrTransition, "%s %s", tt.from, tt.ev)
		require.Equal(t, tt.from, state, "a refused event leaves the job where it is")
	}
}

func TestI10_NothingLeavesATerminalState(t *testing.T) {
	for _, from := range states {
		if !from.Terminal() {
			continue
		}
		for _, ev := range events {
			to, err := router.Next(from, ev)
			require.ErrorIs(t, err, router.ErrTransition)
			require.ErrorContains(t, err, "after it has ended")
			require.Equal(t, from, to)
		}
	}
}

// Every state that is not terminal can be left by the passing of time alone, and
// that way ends.
func TestI06_EveryStateEndsByTimeAlone(t *testing.T) {
	job := &spillway.Job{}
	for _, from := range states {
		state := from
		for steps := 0; !state.Terminal(); steps++ {
			require.Less(t, steps, len(states), "%s goes round in circles", from)
			require.Positive(t, router.Timeouts{}.Of(state, job, true), state)
			require.Positive(t, router.Timeouts{}.Of(state, job, false), state)
			var err error
			state, err = router.Next(state, router.Expire)
			require.NoError(t, err)
		}
		require.Zero(t, router.Timeouts{}.Of(state, job, true), "a terminal state lasts")
	}
}

func TestEveryJobCanBeCanceledUntilItHasEnded(t *testing.T) {
	for _, from := range states {
		if from.Terminal() {
			continue
		}
		to, err := router.Next(from, router.Cancel)
		require.NoError(t, err)
		require.Equal(t, spillway.Canceled, to)
	}
}

// Whatever happens, a job is in a known state, and once it has ended it stays so.
func TestRandomWalksStayInTheTable(t *testing.T) {
	ended := 0
	rapid.Check(t, func(t *rapid.T) {
		state := spillway.Pending
		for _, ev := range rapid.SliceOfN(rapid.SampledFrom(events), 1, 60).Draw(t, "events") {
			to, err := router.Next(state, ev)
			require.True(t, slices.Contains(states, to))
			if state.Terminal() {
				require.Error(t, err)
				require.Equal(t, state, to)
			}
			state = to
		}
		if state.Terminal() {
			ended++
		}
	})
	require.Positive(t, ended)
}

func TestTimeouts(t *testing.T) {
	job := &spillway.Job{Timeout: 10 * time.Minute}
	var zero router.Timeouts
	require.Equal(t, router.DefaultTimeouts(), zero.WithDefaults())
	require.Equal(t, 24*time.Hour, zero.Of(spillway.Pending, job, true))
	require.Equal(t, time.Hour, zero.Of(spillway.Pending, job, false))
	require.Equal(t, 24*time.Hour, zero.Of(spillway.Admitted, job, true), "an admitted job waits for a place too")
	require.Equal(t, time.Hour, zero.Of(spillway.Admitted, job, false))
	require.Equal(t, 30*time.Second, zero.Of(spillway.Assigned, job, true))
	require.Equal(t, 15*time.Minute, zero.Of(spillway.Running, job, true))
	require.Equal(t, time.Hour+5*time.Minute, zero.Of(spillway.Running, &spillway.Job{}, true), "a job without a limit has the default one")

	own := router.Timeouts{Pending: time.Minute, RunningGrace: time.Second}
	require.Equal(t, time.Minute, own.Of(spillway.Pending, job, true))
	require.Equal(t, time.Minute, own.Of(spillway.Pending, job, false), "unmatched jobs do not outlast the others")
	require.Equal(t, 10*time.Minute+time.Second, own.Of(spillway.Running, job, true))
	require.Equal(t, 30*time.Second, own.Of(spillway.Routing, job, true), "what is not set keeps its default")
}
