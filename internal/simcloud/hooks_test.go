package simcloud_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// c34 is one busy instance, which somebody has the group end after a minute.
const c34 = `
duration: 1h
cloud: {linux: {initial: 1, termination_hook: 48h}}
jobs: [{at: 1s, id: long, tags: [docker], duration: 41m}]
events: [{at: 59m, cancel: []}]
`

func endTheFirst(a *simcloud.ASG) {
	a.Somebody("TerminateInstanceInAutoScalingGroup", url.Values{
		"InstanceId": {a.Stub.Existing("linux")[0].ID}, "ShouldDecrementDesiredCapacity": {"true"},
	})
}

// TestC34: a terminating hook of five minutes and a job of forty more. The hook is
// kept alive, with never more than half of its timeout between two heartbeats, and is
// completed within a tick once the job is done.
func TestC34_AHookIsKeptAlive(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 3")+c34, simcloud.ASGOptions{
		Group: func(g *asgstub.GroupConfig) { g.Hooks[0].GlobalTimeout = 0 },
	}, func(a *simcloud.ASG) { a.At(time.Minute, func() { endTheFirst(a) }) })
	require.Equal(t, 1, r.Jobs.Completed)
	require.Zero(t, r.BusyKills+r.ForcedKills)
	require.Zero(t, r.Pools["linux"].Launches)
	beats := ours(a, "RecordLifecycleActionHeartbeat")
	require.GreaterOrEqual(t, len(beats), 8)
	last := time.Minute
	for _, b := range beats {
		require.Empty(t, b.Code)
		require.LessOrEqual(t, at(b.At)-last, 150*time.Second, "half of the timeout")
		last = at(b.At)
	}
	completed := ours(a, "CompleteLifecycleAction")
	require.Len(t, completed, 1)
	require.Equal(t, asgstub.Continue, completed[0].Arg("LifecycleActionResult"))
	done := 41*time.Minute + time.Second
	require.GreaterOrEqual(t, at(completed[0].At), done)
	require.LessOrEqual(t, at(completed[0].At), done+5*time.Second, "within a tick")
}

// TestC34: the machine ends while its hook waits for it. The hook is completed at
// once: otherwise it would hold a dead instance for hours.
func TestC34_AHookOfADeadInstance(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 3")+c34, simcloud.ASGOptions{}, func(a *simcloud.ASG) {
		a.At(time.Minute, func() { endTheFirst(a) })
		a.At(10*time.Minute, func() { a.Stub.TerminateExternally(a.Stub.Existing("linux")[0].ID) })
	})
	completed := ours(a, "CompleteLifecycleAction")
	require.NotEmpty(t, completed)
	require.LessOrEqual(t, at(completed[0].At), 11*time.Minute, "its stream is given up after half a minute")
	require.Equal(t, 1, r.ForcedKills)
	require.Equal(t, 1, r.Jobs.Completed, "the job was run again")
}

// TestC34: a launching hook is completed when the machine has registered, and one
// whose machine never does is abandoned by ending it.
func TestC34_ALaunchingHook(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(onePool, "max: 3")+`
duration: 1h
cloud: {linux: {boot: 60s, launch_hook: 1h, never_register: {ids: [i-0002]}}}
jobs: [{at: 1s, id: job, count: 2, tags: [docker], duration: 15m}]
expect:
  - pool.linux.launches == 3
  - jobs.completed == 2
  - busy_kills == 0
`, simcloud.ASGOptions{}, nil)
	completed := ours(a, "CompleteLifecycleAction")
	require.Len(t, completed, 2)
	for _, c := range completed {
		require.Equal(t, asgstub.Continue, c.Arg("LifecycleActionResult"))
	}
}
