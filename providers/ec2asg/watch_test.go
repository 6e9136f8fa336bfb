package ec2asg_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// watching is a world whose provider watches in the bubble.
type watching struct {
	*world
	mu    sync.Mutex
	heard []pluginsdk.Interruption
	stop  func()
}

func watchIn(t *testing.T, options asgstub.Options, groups ...asgstub.GroupConfig) *watching {
	t.Helper()
	w := &watching{world: onWallClock(t, options, map[string]any{"notices_queue": "notices"}, time.Millisecond, groups...)}
	w.cloud.AddQueue("notices", asgstub.EventInterruption, asgstub.EventRebalance, asgstub.EventTerminateAction, asgstub.EventState)
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.Watch(ctx, names, func(i pluginsdk.Interruption) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard = append(w.heard, i)
		})
	}()
	w.stop = func() {
		cancel()
		assert.NoError(t, <-ended)
	}
	return w
}

// settle lets the watch do what there is to do.
func (w *watching) settle(d time.Duration) []pluginsdk.Interruption {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{}, linux(3))
		defer w.stop()
		w.settle(time.Minute) // what it says of the first boots
		ids := w.ids("linux")
		w.cloud.Rebalance(ids[0])
		require.Equal(t, []pluginsdk.Interruption{{Group: "linux", InstanceID: ids[0], Kind: pluginsdk.Rebalance}}, w.settle(2*time.Second))
		noticed := time.Now().UTC().Truncate(time.Second)
		w.cloud.Interrupt(ids[1], 2*time.Minute)
		require.Equal(t, []pluginsdk.Interruption{{
			Group: "linux", InstanceID: ids[1], Kind: pluginsdk.SpotInterruption, Deadline: noticed.Add(2 * time.Minute),
		}}, w.settle(2*time.Second))
		w.settle(time.Hour)
		require.Zero(t, w.cloud.Messages("notices"), "what was delivered is deleted")
	})
}

// What somebody else ends is told, what we end is not.
func TestC27_AnEndThatIsNotOursIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{}, hooked(3, drainHook))
		defer w.stop()
		w.settle(time.Minute)
		ids := w.ids("linux")
		w.remove("linux", ids[0])
		require.Empty(t, w.settle(2*time.Second))
		w.cloud.TerminateExternally(ids[1])
		heard := w.settle(2 * time.Second)
		require.NotEmpty(t, heard)
		for _, i := range heard {
			require.Equal(t, pluginsdk.Interruption{Group: "linux", InstanceID: ids[1], Kind: pluginsdk.Terminating}, i)
		}
	})
}

// An instance that no look has shown yet is found by a call.
func TestWatchFindsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{}, linux(1))
		defer w.stop()
		w.settle(time.Minute)
		id := w.cloud.Existing("linux")[0].ID
		w.cloud.Interrupt(id, 2*time.Minute)
		heard := w.settle(2 * time.Second)
		require.Len(t, heard, 1)
		require.Equal(t, "linux", heard[0].Group)
	})
}

// What is not for us is left for whom it is for, and what is for nobody does not go
// round for ever. Nothing that a body says can break the watch.
func TestWatchOfStrangeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{}, linux(1))
		defer w.stop()
		theirs := linux(1)
		theirs.Name = "theirs"
		w.cloud.AddGroup(theirs)
		w.settle(time.Minute)
		message := func(kind, detail string) string {
			return fmt.Sprintf(`{"detail-type": %q, "time": %q, "detail": %s}`, kind, time.Now().UTC().Format(time.RFC3339), detail)
		}
		const spot = "EC2 Spot Instance Interruption Warning"
		for _, body := range []string{
			"", "null", "[]", "{", `"text"`, `{"detail": 5}`, `{"detail-type": {}}`, strings.Repeat("{", 10_000),
			message("Something Else", `{}`), message(spot, `{}`), message(spot, `{"instance-id": ""}`),
			message(spot, `{"instance-id": "`+strings.Repeat("i", 1000)+`"}`),
			message("EC2 Instance State-change Notification", `{"instance-id": "i-1", "state": "running"}`),
			`{"LifecycleTransition": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "linux"}`,
		} {
			w.cloud.SendMessage("notices", body)
		}
		require.Empty(t, w.settle(5*time.Second))
		require.Zero(t, w.cloud.Messages("notices"), "nobody could use them")

		foreign := w.cloud.Existing("theirs")[0].ID
		w.cloud.SendMessage("notices", message(spot, `{"instance-id": "`+foreign+`"}`))
		require.Empty(t, w.settle(5*time.Second))
		require.Equal(t, 1, w.cloud.Messages("notices"), "it is for somebody else")
		w.settle(5 * time.Minute)
		require.Equal(t, 1, w.cloud.Messages("notices"))
		require.LessOrEqual(t, w.cloud.CountOf("DescribeAutoScalingInstances"), 2, "asked again and again")
		w.settle(15 * time.Minute)
		require.Zero(t, w.cloud.Messages("notices"), "of use to nobody any more")

		w.cloud.SendMessage("notices", message(spot, `{"instance-id": "i-of-no-group"}`))
		w.settle(2 * time.Minute)
		require.Zero(t, w.cloud.Messages("notices"))

		id := w.cloud.Existing("linux")[0].ID
		w.cloud.SendMessage("notices", `{"LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "AutoScalingGroupName": "linux", "EC2InstanceId": "`+id+`"}`)
		require.Equal(t, []pluginsdk.Interruption{{Group: "linux", InstanceID: id, Kind: pluginsdk.Terminating}}, w.settle(2*time.Second), "from the hook itself")
	})
}

// The watch outlives whatever SQS does, and does not hammer it.
func TestWatchSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
			{Window: asgstub.Window{To: time.Hour}, Operations: []string{"ReceiveMessage"}, Code: "InternalFailure"},
		}}}, linux(1))
		defer w.stop()
		w.settle(time.Hour)
		require.Less(t, w.cloud.CountOf("ReceiveMessage"), 150)
		w.settle(2 * time.Minute)
		w.cloud.Rebalance(w.ids("linux")[0])
		require.Len(t, w.settle(2*time.Second), 1)
	})
}

// What comes and can't be deleted comes again: that is a failure too, and each one has
// the next try wait longer.
func TestWatchSlowsDownWhereNothingCanBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchIn(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
			{Operations: []string{"DeleteMessageBatch"}, Code: "AccessDenied"},
		}}}, linux(1))
		defer w.stop()
		w.cloud.Rebalance(w.ids("linux")[0])
		w.settle(time.Hour)
		require.NotZero(t, w.cloud.Messages("notices"))
		require.Less(t, w.cloud.CountOf("DeleteMessageBatch"), 120)
	})
}

func TestWatchWithoutAQueue(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(1))
	require.ErrorIs(t, w.Watch(t.Context(), []string{"linux"}, nil), pluginsdk.ErrUnsupported)
	d, err := w.Describe(t.Context())
	require.NoError(t, err)
	require.False(t, d.Has(pluginsdk.CanWatch))
}
