package asgstub

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/stretchr/testify/require"
)

// What hooks do:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks-overview.html

func (w *world) complete(hook, id, result string) error {
	_, err := w.api.CompleteLifecycleAction(w.t.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String("ci"), LifecycleHookName: &hook, InstanceId: &id, LifecycleActionResult: &result,
	})
	return err
}

func (w *world) beat(hook, id string) error {
	_, err := w.api.RecordLifecycleActionHeartbeat(w.t.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: aws.String("ci"), LifecycleHookName: &hook, InstanceId: &id,
	})
	return err
}

func hooked(transition string, heartbeat Seconds, result string) GroupConfig {
	return GroupConfig{Name: "ci", Max: 5, Desired: 1, Hooks: []HookConfig{
		{Name: "hook", Transition: transition, HeartbeatTimeout: heartbeat, DefaultResult: result},
	}}
}

func TestTerminatingHookHoldsUntilCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, hooked(Terminating, 300, Continue))
	id := w.ids("ci")[0]
	require.ErrorContains(t, w.complete("hook", id, Continue), "No active Lifecycle Action found with instance ID "+id)
	require.NoError(t, w.kill(id, true))
	for range 20 { // 40 minutes, as a job that goes on
		w.pass(2 * time.Minute)
		require.Equal(t, map[string]int{TerminatingWait: 1}, w.states("ci"))
		require.Empty(t, w.ended(), "the machine runs while it waits")
		require.NoError(t, w.beat("hook", id))
	}
	require.NoError(t, w.kill(id, true), "asked again, it is the same activity")
	require.EqualValues(t, 0, *w.describe("ci").DesiredCapacity, "and desired is not lowered twice")
	require.NoError(t, w.complete("hook", id, Continue))
	require.Equal(t, map[string]Cause{id: ByName}, w.ended())
	require.Empty(t, w.describe("ci").Instances)
	require.ErrorContains(t, w.beat("hook", id), "No active Lifecycle Action found")
}

func TestTerminatingHookTimesOut(t *testing.T) {
	t.Parallel()
	for _, result := range []string{Continue, Abandon} {
		w := newWorld(t, Options{}, hooked(Terminating, 300, result))
		require.NoError(t, w.kill(w.ids("ci")[0], true))
		w.pass(300*time.Second - 1)
		require.Empty(t, w.ended())
		w.pass(1)
		require.Len(t, w.ended(), 1, "either way it ends")
	}
}

func TestHookNeverWaitsLongerThanAHundredHeartbeats(t *testing.T) {
	t.Parallel()
	for heartbeat, total := range map[Seconds]time.Duration{60: 100 * time.Minute, 7200: 48 * time.Hour} {
		w := newWorld(t, Options{}, hooked(Terminating, heartbeat, Continue))
		out, err := w.api.DescribeLifecycleHooks(t.Context(), &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String("ci")})
		require.NoError(t, err)
		require.EqualValues(t, total.Seconds(), *out.LifecycleHooks[0].GlobalTimeout)
		id := w.ids("ci")[0]
		require.NoError(t, w.kill(id, true))
		step := heartbeat.Duration() / 2
		for waited := time.Duration(0); waited < total-step; waited += step {
			require.NoError(t, w.beat("hook", id))
			w.pass(step)
		}
		require.Empty(t, w.ended())
		require.NoError(t, w.beat("hook", id))
		w.pass(step)
		require.Len(t, w.ended(), 1, "heartbeats do not help any more")
	}
}

func TestLaunchingHook(t *testing.T) {
	t.Parallel()
	cfg := hooked(Launching, 30, Abandon)
	cfg.Desired = 0
	w := newWorld(t, Options{}, cfg)
	require.NoError(t, w.set("ci", 1))
	require.Equal(t, map[string]int{PendingWait: 1}, w.states("ci"))
	require.NoError(t, w.complete("hook", w.ids("ci")[0], Continue))
	require.Equal(t, map[string]int{InService: 1}, w.states("ci"))

	require.NoError(t, w.set("ci", 2))
	lost := w.ids("ci")[1]
	w.pass(30 * time.Second)
	require.Equal(t, map[string]Cause{lost: Abandoned}, w.ended())
	w.pass(DefaultRetry)
	require.Equal(t, map[string]int{InService: 1, PendingWait: 1}, w.states("ci"), "it is tried again")
}

func TestAllHooksMustComplete(t *testing.T) {
	t.Parallel()
	cfg := hooked(Terminating, 300, Continue)
	cfg.Hooks = append(cfg.Hooks, HookConfig{Name: "other", Transition: Terminating})
	w := newWorld(t, Options{}, cfg)
	id := w.ids("ci")[0]
	require.NoError(t, w.kill(id, true))
	require.NoError(t, w.complete("hook", id, Continue))
	require.Empty(t, w.ended())
	require.NoError(t, w.complete("other", id, Abandon))
	require.Len(t, w.ended(), 1)
}

func TestDeadInstanceHangsInTheHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, hooked(Terminating, 3600, Continue))
	id := w.ids("ci")[0]
	require.True(t, w.TerminateExternally(id))
	require.Equal(t, map[string]Cause{id: BySomebody}, w.ended())
	require.Equal(t, map[string]int{TerminatingWait: 1, InService: 1}, w.states("ci"), "the dead one waits, and is replaced")
	w.pass(time.Hour)
	require.Equal(t, map[string]int{InService: 1}, w.states("ci"))
}

func TestPutLifecycleHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 1})
	put := func(in autoscaling.PutLifecycleHookInput) error {
		in.AutoScalingGroupName, in.LifecycleHookName = aws.String("ci"), aws.String("drain")
		_, err := w.api.PutLifecycleHook(t.Context(), &in)
		return err
	}
	require.Equal(t, "ValidationError", code(put(autoscaling.PutLifecycleHookInput{})), "a new one needs a transition")
	require.NoError(t, put(autoscaling.PutLifecycleHookInput{LifecycleTransition: aws.String(Terminating)}))
	require.NoError(t, put(autoscaling.PutLifecycleHookInput{HeartbeatTimeout: aws.Int32(30)}), "what is not given stays")
	for _, seconds := range []int32{29, 7201} {
		require.Equal(t, "ValidationError", code(put(autoscaling.PutLifecycleHookInput{HeartbeatTimeout: &seconds})))
	}
	out, err := w.api.DescribeLifecycleHooks(t.Context(), &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String("ci")})
	require.NoError(t, err)
	require.Equal(t, Terminating, *out.LifecycleHooks[0].LifecycleTransition)
	require.EqualValues(t, 30, *out.LifecycleHooks[0].HeartbeatTimeout)
	require.Equal(t, Abandon, *out.LifecycleHooks[0].DefaultResult, "which is the default")
}
