package ec2asg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

func TestSetDesired(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	got, err := w.set("linux", 5, 2)
	require.NoError(t, err)
	require.Equal(t, 5, got)
	got, err = w.set("linux", 5, 2) // as after a lost answer
	require.NoError(t, err)
	require.Equal(t, 5, got)
	_, err = w.set("linux", 7, 2)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	var conflict *pluginsdk.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, 5, conflict.Observed)
	_, err = w.set("linux", -1, 5)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = w.set("absent", 1, 0)
	require.ErrorIs(t, err, pluginsdk.ErrNotFound)
	require.Equal(t, []string{"SetDesiredCapacity"}, w.writes())
}

// What we read is trusted for a second, and not at all once we have written.
func TestSetDesiredLooksBeforeItWrites(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	w.look("linux")
	reads := w.cloud.CountOf("DescribeAutoScalingGroups")
	_, err := w.set("linux", 3, 2)
	require.NoError(t, err)
	require.Equal(t, reads, w.cloud.CountOf("DescribeAutoScalingGroups"), "it was looked at a moment ago")
	w.cloud.SetDesiredExternally("linux", 6)
	_, err = w.set("linux", 4, 3)
	require.ErrorIs(t, err, pluginsdk.ErrConflict, "what was read before the last write was believed")

	w.look("linux")
	w.cloud.SetDesiredExternally("linux", 8)
	w.after(time.Second)
	_, err = w.set("linux", 7, 6)
	require.ErrorIs(t, err, pluginsdk.ErrConflict, "what is a second old was believed")
	require.Equal(t, []string{"SetDesiredCapacity"}, w.writes())
}

// A cooldown or a change that goes on in the group holds nothing up: the one is not
// honoured, the other is asked again.
func TestX05_NothingWaitsForTheGroup(t *testing.T) {
	for _, code := range []string{"ScalingActivityInProgress", "ResourceContention"} {
		w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
			{Operations: []string{"SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup"}, Code: code, Times: 2},
		}}}, nil, linux(2))
		ids := w.ids("linux")
		_, err := w.set("linux", 3, 2)
		require.ErrorIs(t, err, pluginsdk.ErrTransient, code)
		outcomes, errs := w.remove("linux", ids[0])
		require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.NotRemoved}, outcomes)
		require.ErrorIs(t, errs[0], pluginsdk.ErrTransient, code)

		_, err = w.set("linux", 3, 2)
		require.NoError(t, err)
		for _, c := range w.cloud.Calls() {
			if c.Operation == "SetDesiredCapacity" {
				require.Equal(t, "false", c.Arg("HonorCooldown"))
			}
		}
	}
}

// The group's max is seen at every look, and is never asked to be exceeded.
func TestC31_TheGroupsBoundsAreSeenAndKept(t *testing.T) {
	g := linux(0)
	g.Max = 5
	w := start(t, asgstub.Options{}, nil, g)
	s, _ := w.look("linux")
	require.Equal(t, 5, s.Max)
	_, err := w.set("linux", 12, 0)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.Empty(t, w.writes())
	_, err = w.set("linux", 5, 0)
	require.NoError(t, err)

	w.cloud.SetBounds("linux", 0, 20)
	w.after(time.Second)
	s, _ = w.look("linux")
	require.Equal(t, 20, s.Max)
	_, err = w.set("linux", 12, 5)
	require.NoError(t, err)

	w.cloud.SetBounds("linux", 3, 20)
	w.after(time.Second)
	s, _ = w.look("linux")
	require.Equal(t, 3, s.Min)
	require.Empty(t, w.codes("linux"))
	w.cloud.SetBounds("linux", 0, 0)
	require.Equal(t, []string{"max_zero"}, w.codes("linux"))
	w.cloud.SetBounds("linux", 4, 4)
	require.Equal(t, []string{"bounds_conflict"}, w.codes("linux"))
}

// Somebody sets desired to 2 while 8 are busy: protected instances live, the drift
// is seen at the next look, and our number is written over it.
func TestC33_AResetDesiredIsSeenAndReasserted(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Victim: asgstub.BusyFirst}}, nil, linux(8))
	w.cloud.Busy = func(string) bool { return true }
	w.look("linux")
	w.cloud.SetDesiredExternally("linux", 2)
	w.after(time.Second)
	_, err := w.set("linux", 9, 8)
	var conflict *pluginsdk.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, 2, conflict.Observed)
	s, list := w.look("linux")
	require.Equal(t, 2, s.Desired)
	require.Len(t, list, 8)
	_, err = w.set("linux", 8, 2)
	require.NoError(t, err)
	w.after(time.Minute)
	s, list = w.look("linux")
	require.Equal(t, 8, s.Desired)
	require.Len(t, list, 8)
	require.Equal(t, 8, w.cloud.Live("linux"))
}

// One removal, and nothing comes after it: the decrement goes with the termination,
// so that the group replaces nobody.
func TestC14_ARemovalIsNotReplaced(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(0))
	_, err := w.set("linux", 1, 0)
	require.NoError(t, err)
	w.after(time.Minute)
	outcomes, _ := w.remove("linux", w.ids("linux")...)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes)
	w.after(24 * time.Hour)
	require.Len(t, w.cloud.Instances("linux"), 1, "1 launch in 24 hours")
	require.Zero(t, w.group("linux").Desired)
}

// Removing instances that never registered takes those, and no healthy old ones.
func TestC18_RemovingBrokenOnesSparesTheHealthy(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Victim: asgstub.Oldest, NeverRegister: asgstub.NeverRegister{All: true}}}, nil, linux(4))
	healthy := w.ids("linux")
	_, err := w.set("linux", 10, 4)
	require.NoError(t, err)
	w.after(10 * time.Minute)
	broken := w.ids("linux")[4:]
	outcomes, _ := w.remove("linux", broken...)
	for _, o := range outcomes {
		require.Equal(t, pluginsdk.Removed, o)
	}
	w.after(time.Hour)
	require.ElementsMatch(t, healthy, w.ids("linux"))
	require.Equal(t, 4, w.group("linux").Desired)
}

// A group that belongs to somebody else is read and never written to; one without an
// owner is not taken for granted.
func TestX19_TheOwnersTag(t *testing.T) {
	owned := func(who string) asgstub.GroupConfig {
		g := linux(2)
		if who != "" {
			g.Tags = []asgstub.Tag{{Key: "spillway-owner", Value: who}}
		}
		return g
	}
	for _, c := range []struct {
		us, tag, finding string
		refused          bool
	}{
		{"us", "us", "", false},
		{"us", "", "no_owner_tag", false},
		{"us", "them", "foreign_owner", true},
		{"", "them", "foreign_owner", true},
		{"", "", "", false},
	} {
		t.Run(fmt.Sprintf("we are %q, it says %q", c.us, c.tag), func(t *testing.T) {
			w := start(t, asgstub.Options{}, map[string]any{"owner": c.us}, owned(c.tag))
			s, list := w.look("linux")
			require.Len(t, list, 2)
			if c.finding == "" {
				require.Empty(t, w.codes("linux"))
			} else {
				require.Equal(t, []string{c.finding}, w.codes("linux"))
			}
			_, err := w.set("linux", 3, 2)
			if !c.refused {
				require.Empty(t, s.LaunchHalt+s.RemovalHalt)
				require.NoError(t, err)
				return
			}
			require.NotEmpty(t, s.LaunchHalt)
			require.NotEmpty(t, s.RemovalHalt)
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			_, err = w.Remove(t.Context(), "linux", []string{list[0].ID}, "t")
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			for _, err := range []error{
				w.Protect(t.Context(), "linux", []string{list[0].ID}, true), w.ReportUnhealthy(t.Context(), "linux", []string{list[0].ID}),
				w.CompleteHook(t.Context(), "linux", []string{list[0].ID}),
			} {
				require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			}
			require.Empty(t, w.writes())
		})
	}
}

func TestLaunchSuspended(t *testing.T) {
	g := linux(1)
	g.SuspendedProcesses = append(g.SuspendedProcesses, "Launch")
	w := start(t, asgstub.Options{}, nil, g)
	s, _ := w.look("linux")
	require.Contains(t, s.LaunchHalt, "Launch")
	require.Empty(t, s.RemovalHalt)
	_, err := w.set("linux", 2, 1)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.Equal(t, []string{"suspended_process"}, w.codes("linux"))
}

func TestWithdraw(t *testing.T) {
	stuck := asgstub.Faults{Launch: []asgstub.LaunchFault{{Code: "InsufficientInstanceCapacity"}}}
	w := start(t, asgstub.Options{}, nil, linux(3))
	w.look("linux")
	w.cloud.SetFaults("linux", stuck)
	_, err := w.set("linux", 7, 3)
	require.NoError(t, err)
	_, err = w.Withdraw(t.Context(), "linux", 6, "t")
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	got, err := w.Withdraw(t.Context(), "linux", 7, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 3, Withdrawn: 4}, got)
	got, err = w.Withdraw(t.Context(), "linux", 3, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 3}, got)
	w.after(time.Hour)
	require.Equal(t, 3, w.cloud.Live("linux"))
}

// Who isn't protected could be the victim of a withdrawal that comes a moment late.
func TestWithdrawNeedsProtection(t *testing.T) {
	g := linux(3)
	g.Faults = &asgstub.Faults{Victim: asgstub.BusyFirst}
	w := start(t, asgstub.Options{}, nil, g)
	ids := w.ids("linux")
	require.NoError(t, w.Protect(t.Context(), "linux", ids[1:2], false))
	w.cloud.SetFaults("linux", asgstub.Faults{Launch: []asgstub.LaunchFault{{Code: "InsufficientInstanceCapacity"}}})
	_, err := w.set("linux", 5, 3)
	require.NoError(t, err)
	_, err = w.Withdraw(t.Context(), "linux", 5, "t")
	require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
	require.Equal(t, 5, w.group("linux").Desired)
}

// A withdrawal does not go below the group's min, and counts who is on the way out.
func TestWithdrawIsRatherTooLittle(t *testing.T) {
	g := linux(4)
	g.Min = 2
	w := start(t, asgstub.Options{}, nil, g)
	ids := w.ids("linux")
	w.standby(ids[0])
	w.cloud.SetFaults("linux", asgstub.Faults{Launch: []asgstub.LaunchFault{{Code: "VcpuLimitExceeded"}}})
	w.after(time.Second)
	_, err := w.set("linux", 6, 3)
	require.NoError(t, err)
	got, err := w.Withdraw(t.Context(), "linux", 6, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 3, Withdrawn: 3}, got, "standby is not counted by desired")
	w.after(time.Minute)
	require.Equal(t, 4, w.cloud.Live("linux"))
}

func TestNotConfigured(t *testing.T) {
	p := ec2asg.New()
	_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux"})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Remove(t.Context(), "linux", nil, "")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Withdraw(t.Context(), "linux", 0, "")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Findings(t.Context(), nil)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Count(t.Context(), "m")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorIs(t, p.Watch(t.Context(), nil, nil), pluginsdk.ErrInvalid)
}
