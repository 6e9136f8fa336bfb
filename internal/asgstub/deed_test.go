package asgstub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 10, Desired: 8, NewInstancesProtected: true})
	before, ok := w.SetDesiredExternally("ci", 2)
	require.True(t, ok)
	require.Equal(t, 8, before)
	require.EqualValues(t, 2, *w.describe("ci").DesiredCapacity)
	require.Equal(t, 8, w.Live("ci"), "all are protected")
	w.SetDesiredExternally("ci", 99)
	require.EqualValues(t, 10, *w.describe("ci").DesiredCapacity, "never beyond max")
	require.Equal(t, 10, w.Live("ci"))

	require.True(t, w.SetBounds("ci", 0, 5))
	require.EqualValues(t, 5, *w.describe("ci").DesiredCapacity)
	require.Equal(t, 10, w.Live("ci"))
	id := w.ids("ci")[3]
	require.True(t, w.TerminateExternally(id))
	require.Equal(t, 9, w.Live("ci"), "there are too many: it is not replaced")
	require.Equal(t, map[string]Cause{id: BySomebody}, w.ended())
	require.NotContains(t, w.Counts(), "SetDesiredCapacity", "what others do is in no log")

	_, ok = w.SetDesiredExternally("no", 1)
	require.False(t, ok)
	require.False(t, w.TerminateExternally("no"))
	require.False(t, w.SetBounds("no", 0, 1))
	require.False(t, w.StartInstanceRefresh("no"))
	require.False(t, w.AZRebalance("no"))
}

func TestRebalanceLaunchesFirst(t *testing.T) {
	t.Parallel()
	boot := &Faults{Boot: Boot{P50: time.Minute}, Pending: 30 * time.Second}
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 2, SpotShare: 1, CapacityRebalance: true, NewInstancesProtected: true, Faults: boot})
	w.AddQueue("q", EventRebalance)
	id := w.ids("ci")[0]
	require.True(t, w.Rebalance(id))
	require.Equal(t, 1, w.Messages("q"))
	require.Equal(t, 3, w.Live("ci"))
	w.pass(30 * time.Second)
	require.Equal(t, map[string]Cause{id: Rebalance}, w.ended(), "though it is protected")
	require.Equal(t, 2, w.Live("ci"))

	w = newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 2})
	w.Rebalance(w.ids("ci")[0])
	require.Equal(t, 2, w.Live("ci"), "without capacity rebalancing it is only a message")
}

func TestAZRebalanceByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 3})
	require.True(t, w.AZRebalance("ci"))
	require.Len(t, w.ended(), 1)
	for _, cause := range w.ended() {
		require.Equal(t, AZRebalanced, cause)
	}
	require.Equal(t, 3, w.Live("ci"))
}

func TestSetFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5})
	w.pass(time.Hour)
	require.True(t, w.SetFaults("ci", Faults{Launch: []LaunchFault{{Code: "Unsupported", Window: Window{To: time.Minute}}}}))
	require.NoError(t, w.set("ci", 1))
	require.Zero(t, w.Live("ci"), "the windows count from now")
	w.pass(2 * time.Minute)
	require.Equal(t, 1, w.Live("ci"))
}

func TestObserverMayCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5})
	live := []int{}
	w.Observe = func(ch Change) {
		live = append(live, w.Live("ci"))
		if ch.Kind == Ready && len(live) == 2 {
			require.NoError(t, w.set("ci", 2))
		}
	}
	require.NoError(t, w.set("ci", 1))
	require.Equal(t, []int{1, 1, 2, 2}, live)
}
