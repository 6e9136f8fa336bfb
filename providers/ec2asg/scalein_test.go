package ec2asg_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Nobody but the one that was named is ended, though the group would take a busy one
// at any bare decrement.
func TestC24_OnlyWhoIsNamedIsEnded(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := linux(rapid.IntRange(1, 8).Draw(r, "desired"))
		g.NewInstancesProtected = rapid.Bool().Draw(r, "protected")
		w := start(t, asgstub.Options{Faults: asgstub.Faults{Victim: asgstub.BusyFirst, Terminating: time.Minute}}, nil, g)
		ids := w.ids("linux")
		idle := rapid.SampledFrom(ids).Draw(r, "idle")
		w.cloud.Busy = func(id string) bool { return id != idle }

		_, err := w.set("linux", len(ids)-1, len(ids))
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, "desired was lowered")
		outcomes, _ := w.remove("linux", idle)
		require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes)
		w.after(time.Hour)

		require.Equal(t, []string{"TerminateInstanceInAutoScalingGroup"}, w.writes())
		require.Equal(t, "true", w.cloud.Calls()[slices.IndexFunc(w.cloud.Calls(), asgstub.Call.Writes)].Arg("ShouldDecrementDesiredCapacity"))
		require.Equal(t, len(ids)-1, w.group("linux").Desired)
		require.ElementsMatch(t, slices.DeleteFunc(ids, func(id string) bool { return id == idle }), w.ids("linux"))
	})
}

// The group starts a replacement while an instance is removed, and then has one too
// many: protected instances are safe from that, and protection is never lifted.
func TestC25_AReplacementRaceKillsNobody(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{ReplaceRace: true, Victim: asgstub.BusyFirst, Terminating: 20 * time.Second}}, nil, linux(5))
	w.cloud.Busy = func(string) bool { return true }
	ids := w.ids("linux")
	outcomes, _ := w.remove("linux", ids[2])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes)
	w.after(30 * time.Second)
	w.cloud.SelfTerminate(ids[2]) // the instance's own shutdown, late
	w.after(time.Minute)

	for _, id := range slices.Delete(slices.Clone(ids), 2, 3) {
		in, ok := w.cloud.Instance(id)
		require.True(t, ok)
		require.Equal(t, asgstub.InService, in.State, id)
	}
	require.Equal(t, 4, w.group("linux").Desired)
	require.NotContains(t, w.writes(), "SetInstanceProtection")
}

// Whatever is asked again, and whoever else ends an instance: one removal is one
// decrement.
func TestC25_NoDoubleDecrement(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Terminating: time.Minute}}, nil, linux(5))
	ids := w.ids("linux")
	outcomes, _ := w.remove("linux", ids[0], ids[0], "i-of-nobody")
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.AlreadyGone, pluginsdk.AlreadyGone}, outcomes)
	outcomes, _ = w.remove("linux", ids[0]) // as after a lost answer
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone}, outcomes)
	w.after(5 * time.Minute)
	outcomes, _ = w.remove("linux", ids[0])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone}, outcomes)
	require.Equal(t, 4, w.group("linux").Desired)
	require.Len(t, w.ids("linux"), 4)
	require.Equal(t, []string{"TerminateInstanceInAutoScalingGroup"}, w.writes())
}

// A call whose answer is lost has ended the instance all the same.
func TestC25_ALostAnswerIsNoSecondDecrement(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Terminating: time.Minute, Calls: []asgstub.CallFault{
		{Operations: []string{"TerminateInstanceInAutoScalingGroup"}, Code: "InternalFailure", Times: 1, Applied: true},
	}}}, nil, linux(3))
	ids := w.ids("linux")
	outcomes, errs := w.remove("linux", ids[1])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.NotRemoved}, outcomes)
	require.ErrorIs(t, errs[0], pluginsdk.ErrTransient)
	outcomes, _ = w.remove("linux", ids[1])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone}, outcomes)
	require.Equal(t, 2, w.group("linux").Desired)
}

// The victim is not (any more) what the caller takes it for: that is told for it
// alone, and the others are removed.
func TestX03_WhoCantBeRemovedStopsNobody(t *testing.T) {
	other := linux(2)
	other.Name = "other"
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Terminating: time.Minute}}, nil, linux(4), other)
	ids := w.ids("linux")
	foreign := w.ids("other")[0]
	w.cloud.TerminateExternally(ids[0])
	require.True(t, w.standby(ids[1]))
	w.after(2 * time.Second)

	outcomes, errs := w.remove("linux", ids[0], ids[1], foreign, ids[2])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone, pluginsdk.AlreadyGone, pluginsdk.AlreadyGone, pluginsdk.Removed}, outcomes)
	require.NoError(t, errs[1], "on standby it is no part of the group's numbers")
	require.Equal(t, 2, w.group("other").Desired)
	require.Len(t, w.ids("other"), 2, "an instance of another group was ended")
}

// The group's min is a floor, also in the middle of a call.
func TestRemoveStopsAtTheGroupsMin(t *testing.T) {
	g := linux(3)
	g.Min = 2
	w := start(t, asgstub.Options{}, nil, g)
	ids := w.ids("linux")
	outcomes, errs := w.remove("linux", ids...)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.NotRemoved, pluginsdk.NotRemoved}, outcomes)
	require.ErrorIs(t, errs[1], pluginsdk.ErrInvalid)
	require.Equal(t, []string{"TerminateInstanceInAutoScalingGroup"}, w.writes())
}

func TestRemoveIsRefusedBeforeAnything(t *testing.T) {
	suspended := linux(2)
	suspended.SuspendedProcesses = append(suspended.SuspendedProcesses, "Terminate")
	theirs := linux(2)
	theirs.Tags = []asgstub.Tag{{Key: "spillway-owner", Value: "somebody"}}
	deleting := linux(2)
	deleting.PlacementStatus = "Delete in progress"
	for name, g := range map[string]asgstub.GroupConfig{"suspended": suspended, "theirs": theirs, "deleting": deleting} {
		t.Run(name, func(t *testing.T) {
			w := start(t, asgstub.Options{}, map[string]any{"owner": "us"}, g)
			s, list := w.look("linux")
			require.NotEmpty(t, s.RemovalHalt)
			_, err := w.Remove(t.Context(), "linux", []string{list[0].ID}, "t")
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			require.Empty(t, w.writes())
		})
	}
}

// What is tagged is kept on every path on which an instance could be ended, also if
// the tag is younger than our last look.
func TestX21_KeptIsKeptOnEveryPath(t *testing.T) {
	g := linux(3)
	w := start(t, asgstub.Options{}, nil, g)
	ids := w.ids("linux")
	w.tags.keep(ids[0])

	outcomes, errs := w.remove("linux", ids[0], ids[1])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.NotRemoved, pluginsdk.Removed}, outcomes)
	require.ErrorIs(t, errs[0], pluginsdk.ErrInvalid)
	require.ErrorContains(t, errs[0], "spillway-keep")
	require.ErrorIs(t, w.ReportUnhealthy(t.Context(), "linux", []string{ids[0]}), pluginsdk.ErrInvalid)
	require.NotContains(t, w.writes(), "SetInstanceHealth")

	_, list := w.look("linux")
	for _, in := range list {
		require.Equal(t, in.ID == ids[0], in.Kept, in.ID)
	}
}

// A tag that can't be read is not taken for one that is not there.
func TestX21_TagsThatCantBeReadStopARemoval(t *testing.T) {
	later := asgstub.Window{From: time.Minute}
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
		{Window: later, Operations: []string{"DescribeInstances"}, Code: "RequestLimitExceeded"},
	}}}, nil, linux(2))
	ids := w.ids("linux")
	w.after(time.Minute)
	_, err := w.Remove(t.Context(), "linux", ids[:1], "t")
	require.ErrorIs(t, err, pluginsdk.ErrThrottled)
	require.Empty(t, w.writes())
}

// Credentials that can't be used for a moment are no lack of a right: the tags are read
// before the next removal, and nothing is said to be missing.
func TestX21_ExpiredCredentialsAreNoLeaveToIgnoreTags(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
		{Window: asgstub.Window{To: time.Minute}, Operations: []string{"DescribeInstances"}, Code: "ExpiredToken"},
	}}}, nil, linux(2))
	ids := w.ids("linux")
	_, err := w.Remove(t.Context(), "linux", ids[:1], "t")
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
	require.NotContains(t, w.codes("linux"), "missing_permission")

	w.after(time.Minute)
	w.tags.keep(ids[0])
	outcomes, _ := w.remove("linux", ids[0])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.NotRemoved}, outcomes)
	require.Empty(t, w.writes())
}

// Without the right to ask EC2 there are no tags to obey: said in a finding, and the
// group is scaled all the same.
func TestWithoutEC2(t *testing.T) {
	denied := asgstub.Faults{Calls: []asgstub.CallFault{{Operations: []string{"DescribeInstances"}, Code: "UnauthorizedOperation"}}}
	w := start(t, asgstub.Options{Faults: denied}, nil, linux(2))
	ids := w.ids("linux")
	_, list := w.look("linux")
	require.True(t, list[0].LaunchedAt.IsZero())
	require.Equal(t, 1, w.cloud.CountOf("DescribeInstances"), "it was asked again at once")
	outcomes, _ := w.remove("linux", ids[0])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes)
	require.Contains(t, w.codes("linux"), "missing_permission")
}

// The turn of the others does not come when the first was throttled: nothing is sent.
func TestRemoveStopsWhenThrottled(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(4))
	ids := w.ids("linux")
	w.cloud.SetFaults("linux", asgstub.Faults{Calls: []asgstub.CallFault{{Operations: []string{"TerminateInstanceInAutoScalingGroup"}, Code: "Throttling"}}})
	outcomes, errs := w.remove("linux", ids[:3]...)
	for i := range outcomes {
		require.Equal(t, pluginsdk.NotRemoved, outcomes[i])
		require.ErrorIs(t, errs[i], pluginsdk.ErrThrottled)
	}
	require.Equal(t, 1, w.cloud.CountOf("TerminateInstanceInAutoScalingGroup"))
}

func TestProtect(t *testing.T) {
	g := linux(0)
	g.NewInstancesProtected = false
	g.Max = 120
	w := start(t, asgstub.Options{}, nil, g)
	_, err := w.set("linux", 120, 0)
	require.NoError(t, err)
	ids := w.ids("linux")
	require.Len(t, ids, 120)
	require.NoError(t, w.Protect(t.Context(), "linux", append(slices.Clone(ids), "i-gone"), true))
	require.Equal(t, 3, w.cloud.CountOf("SetInstanceProtection"), "calls of 50, 50 and 20 instances")
	_, list := w.look("linux")
	for _, in := range list {
		require.True(t, in.Protected)
	}
	require.NoError(t, w.Protect(t.Context(), "linux", ids, true))
	require.Equal(t, 3, w.cloud.CountOf("SetInstanceProtection"), "what is protected was protected again")
	require.ErrorIs(t, w.Protect(t.Context(), "linux", make([]string, pluginsdk.MaxInstancesPerCall+1), true), pluginsdk.ErrInvalid)
}

func TestReportUnhealthy(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	ids := w.ids("linux")
	require.NoError(t, w.ReportUnhealthy(t.Context(), "linux", []string{ids[0], "i-gone"}))
	calls := w.cloud.Calls()
	last := calls[len(calls)-1]
	require.Equal(t, "SetInstanceHealth", last.Operation)
	require.Equal(t, "false", last.Arg("ShouldRespectGracePeriod"))
	w.after(time.Minute)
	now := w.ids("linux")
	require.Len(t, now, 2, "the group replaces it")
	require.NotContains(t, now, ids[0])
	require.Equal(t, 2, w.group("linux").Desired)
}

// Calls that were cancelled before anything was sent say so.
func TestWritesOfAnEndedContextSendNothing(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	ids := w.ids("linux")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.SetDesired(ended, pluginsdk.SetDesired{Group: "linux", Target: 3, Expected: 2})
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	results, err := w.Remove(ended, "linux", ids, "t")
	if err == nil {
		require.Equal(t, pluginsdk.NotRemoved, results[0].Outcome, fmt.Sprint(results))
	}
	require.Empty(t, w.writes())
}
