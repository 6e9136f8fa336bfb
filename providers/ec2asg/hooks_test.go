package ec2asg_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

func hooked(desired int, hooks ...asgstub.HookConfig) asgstub.GroupConfig {
	g := linux(desired)
	g.Hooks = hooks
	return g
}

var (
	drainHook = asgstub.HookConfig{Name: "drain", Transition: asgstub.Terminating, HeartbeatTimeout: 300}
	readyHook = asgstub.HookConfig{Name: "ready", Transition: asgstub.Launching, HeartbeatTimeout: 300}
)

// state is the lifecycle state of an instance as it is.
func (w *world) state(id string) string {
	w.t.Helper()
	in, ok := w.cloud.Instance(id)
	require.True(w.t, ok)
	return in.State
}

// A drain that could take longer than AWS lets an instance wait is a mistake of the
// configuration, where the heartbeat timeout is known, and a finding otherwise.
func TestC34_ADrainLongerThanTheHookAllows(t *testing.T) {
	testCredentials(t)
	config := func(hooks string) string {
		return `{"region": "us-east-1", "groups": ["linux"], "hooks": ` + hooks + `}`
	}
	providertest.RunConfigs(t, func() pluginsdk.Provider { return ec2asg.New() },
		providertest.ConfigCase{Config: config(`{"drain_timeout": "100m", "heartbeat_timeout": "60s"}`)},
		providertest.ConfigCase{
			Config:   config(`{"drain_timeout": "3h", "heartbeat_timeout": "60s"}`),
			Mistakes: []string{"hooks.drain_timeout: 3h0m0s, but AWS ends the wait after 1h40m0s"}, BeyondSchema: true,
		},
		providertest.ConfigCase{
			Config:   config(`{"drain_timeout": "49h", "heartbeat_timeout": "1h"}`),
			Mistakes: []string{"hooks.drain_timeout: 49h0m0s, but AWS ends the wait after 48h0m0s"}, BeyondSchema: true,
		},
		providertest.ConfigCase{Config: config(`{"drain_timeout": "3h"}`)},
	)
	settings := map[string]any{"hooks": map[string]any{"drain_timeout": "9h"}}
	require.Equal(t, []string{"hook_too_short"}, start(t, asgstub.Options{}, settings, hooked(0, drainHook)).codes("linux"))
	require.Equal(t, []string{"no_terminating_hook"}, start(t, asgstub.Options{}, settings, hooked(0, readyHook)).codes("linux"))
	long := drainHook
	long.HeartbeatTimeout = 600
	w := start(t, asgstub.Options{}, settings, hooked(0, long))
	require.Empty(t, w.codes("linux"))
	findings, err := w.Findings(t.Context(), []string{"linux"})
	require.NoError(t, err)
	require.Len(t, findings, 1, "whoever relies on the hook wants to know that it is there")
	require.Equal(t, "terminating_hook", findings[0].Code)
	require.Equal(t, pluginsdk.FindingInfo, findings[0].Severity)
	require.Empty(t, start(t, asgstub.Options{}, nil, hooked(0)).codes("linux"), "nobody said that drains depend on hooks")
}

// A job that takes 40 minutes more is let finish: heartbeats come in time, as long as
// somebody looks, and the instance goes as soon as it may.
func TestC34_HeartbeatsUntilItMayGo(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, hooked(3, drainHook))
	ids := w.ids("linux")
	w.cloud.ResetCalls()
	outcomes, _ := w.remove("linux", ids[0])
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes)
	for range 40 * 60 / 7 {
		w.after(7 * time.Second)
		_, list := w.look("linux")
		require.Len(t, list, 3)
		require.Equal(t, pluginsdk.StateDeleting, list[0].State)
		require.Equal(t, pluginsdk.TerminationHook, list[0].Hook)
	}
	require.Equal(t, asgstub.TerminatingWait, w.state(ids[0]))
	var beats []time.Time
	for _, c := range w.cloud.Calls() {
		if c.Operation == "RecordLifecycleActionHeartbeat" {
			require.Equal(t, ids[0], c.Arg("InstanceId"))
			beats = append(beats, c.At)
		}
	}
	require.GreaterOrEqual(t, len(beats), 8)
	require.LessOrEqual(t, len(beats), 20, "more often than needed")
	for i := 1; i < len(beats); i++ {
		require.LessOrEqual(t, beats[i].Sub(beats[i-1]), 150*time.Second, "half of the timeout")
	}
	require.NoError(t, w.CompleteHook(t.Context(), "linux", []string{ids[0]}))
	w.after(time.Second)
	require.Len(t, w.ids("linux"), 2)
	require.Equal(t, 2, w.group("linux").Desired)
}

// Where heartbeats are denied for a group one call at a look says so: the others would
// use up the call budget, and keep those of other groups from being sent.
func TestC34_HeartbeatsThatAreDeniedAreNotRepeated(t *testing.T) {
	theirs := hooked(60, drainHook)
	theirs.Max = 60
	ours := hooked(2, drainHook)
	ours.Name = "ours"
	w := start(t, asgstub.Options{}, nil, theirs, ours)
	w.cloud.SetFaults("linux", asgstub.Faults{Calls: []asgstub.CallFault{
		{Operations: []string{"RecordLifecycleActionHeartbeat"}, Code: "AccessDenied"},
	}})
	w.remove("linux", w.ids("linux")...)
	w.remove("ours", w.ids("ours")...)
	w.after(5 * time.Second)
	_, err := w.Status(t.Context(), []string{"linux", "ours"})
	require.NoError(t, err)
	beats := map[string]int{}
	for _, c := range w.cloud.Calls() {
		if c.Operation == "RecordLifecycleActionHeartbeat" {
			beats[c.Arg("AutoScalingGroupName")]++
		}
	}
	require.Equal(t, map[string]int{"linux": 1, "ours": 2}, beats)
}

// Nobody waits (any more): nothing is wrong, and it is not asked about again.
func TestC34_NobodyWaits(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, hooked(2, drainHook))
	ids := w.ids("linux")
	require.NoError(t, w.CompleteHook(t.Context(), "linux", []string{ids[0], "i-gone"}))
	require.Empty(t, w.writes(), "it is in service")

	w.remove("linux", ids[0])
	w.look("linux")
	w.cloud.SelfTerminate(ids[0])
	w.after(10 * time.Minute) // nobody looked: the hook ran out
	require.NoError(t, w.CompleteHook(t.Context(), "linux", ids[:1]))
	require.Len(t, w.ids("linux"), 1)

	racing := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{{
		Operations: []string{"CompleteLifecycleAction"}, Code: "ValidationError", Message: "No active Lifecycle Action found with instance ID i-1",
	}}}}, nil, hooked(2, drainHook))
	ids = racing.ids("linux")
	racing.remove("linux", ids[0])
	require.NoError(t, racing.CompleteHook(t.Context(), "linux", ids[:1]), "somebody was first")
}

// An instance that a launching hook holds is listed as held, kept alive, and enters
// service when it may.
func TestLaunchHook(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, hooked(0, readyHook, drainHook))
	_, err := w.set("linux", 1, 0)
	require.NoError(t, err)
	for range 15 * 60 / 5 {
		w.after(5 * time.Second)
		_, list := w.look("linux")
		require.Len(t, list, 1)
		require.Equal(t, pluginsdk.StateCreating, list[0].State)
		require.Equal(t, pluginsdk.LaunchHook, list[0].Hook)
	}
	_, list := w.look("linux")
	require.NoError(t, w.CompleteHook(t.Context(), "linux", []string{list[0].ID}))
	_, list = w.look("linux")
	require.Equal(t, pluginsdk.StateRunning, list[0].State)
	require.Equal(t, pluginsdk.NoHook, list[0].Hook)
	for _, c := range w.cloud.Calls() {
		if c.Operation == "CompleteLifecycleAction" || c.Operation == "RecordLifecycleActionHeartbeat" {
			require.Equal(t, "ready", c.Arg("LifecycleHookName"))
		}
	}
}

// Hooks that are somebody else's are neither kept alive nor completed.
func TestHooksOfSomebodyElse(t *testing.T) {
	theirs := drainHook
	theirs.Name = "backup"
	w := start(t, asgstub.Options{}, map[string]any{"hooks": map[string]any{"names": []string{"drain"}}}, hooked(1, drainHook, theirs))
	ids := w.ids("linux")
	w.remove("linux", ids[0])
	w.look("linux")
	require.NoError(t, w.CompleteHook(t.Context(), "linux", ids))
	require.Equal(t, asgstub.TerminatingWait, w.state(ids[0]), "backup has not ended")
	for _, c := range w.cloud.Calls() {
		require.NotEqual(t, "backup", c.Arg("LifecycleHookName"))
	}
}

// A drain has its time, and no more.
func TestHeartbeatsEndWithTheDrain(t *testing.T) {
	w := start(t, asgstub.Options{}, map[string]any{"hooks": map[string]any{"drain_timeout": "10m"}}, hooked(1, drainHook))
	ids := w.ids("linux")
	w.remove("linux", ids[0])
	for range 20 * 60 / 5 {
		w.look("linux")
		w.after(5 * time.Second)
	}
	require.Empty(t, w.ids("linux"))
	in, _ := w.cloud.Instance(ids[0])
	require.WithinRange(t, in.EndedAt, w.clock().Add(-10*time.Minute), w.clock().Add(-4*time.Minute))
}

// Heartbeats that fail, or whose hooks can't be read, do not fail the look.
func TestHeartbeatsThatFail(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
		{Operations: []string{"DescribeLifecycleHooks"}, Code: "InternalFailure", Times: 1},
		{Operations: []string{"RecordLifecycleActionHeartbeat"}, Code: "Throttling", Times: 1},
	}}}, nil, hooked(1, drainHook))
	ids := w.ids("linux")
	w.remove("linux", ids[0])
	for range 60 {
		w.look("linux")
		w.after(5 * time.Second)
	}
	require.Equal(t, asgstub.TerminatingWait, w.state(ids[0]))
	require.LessOrEqual(t, w.cloud.CountOf("DescribeLifecycleHooks"), 2)
}

// A heartbeat is a write, too: none for a group that is somebody else's. One that is
// being deleted still waits for its instances.
func TestHooksOfGroupsThatAreNotOurs(t *testing.T) {
	theirs := hooked(1, drainHook)
	theirs.Tags = []asgstub.Tag{{Key: "spillway-owner", Value: "them"}}
	w := start(t, asgstub.Options{}, nil, theirs)
	ids := w.ids("linux")
	w.terminate(ids[0])
	w.look("linux")
	require.Equal(t, asgstub.TerminatingWait, w.state(ids[0]))
	require.Empty(t, w.writes())

	deleting := hooked(1, drainHook)
	deleting.PlacementStatus = "Delete in progress"
	w = start(t, asgstub.Options{}, nil, deleting)
	ids = w.ids("linux")
	w.terminate(ids[0])
	w.look("linux")
	require.NoError(t, w.CompleteHook(t.Context(), "linux", ids))
	require.Empty(t, w.ids("linux"))
}
