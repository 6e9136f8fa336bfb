package simcloud_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// TestC27: somebody ends a busy instance. Its job runs again, what replaces it is
// asked for by the group itself, and nobody names the one that is gone.
func TestC27_SomebodyEndsABusyInstance(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 10")+`
duration: 40m
cloud: {linux: {initial: 3}}
jobs: [{at: 1s, id: job, count: 3, tags: [docker], duration: 10m}]
expect:
  - forced_kills == 1
  - busy_kills == 0
  - pool.linux.launches == 1
  - pool.linux.desired.max == 3
  - pool.linux.in_service.at(265s) == 3
  - jobs.failed == 0
  - jobs.completed == 3
`, simcloud.ASGOptions{}, func(a *simcloud.ASG) {
		a.At(200*time.Second, func() { a.Stub.TerminateExternally(a.Stub.Existing("linux")[1].ID) })
	})
	require.Equal(t, 3, r.Pools["linux"].Removals)
	gone := a.Stub.Instances("linux")[1]
	require.Equal(t, asgstub.BySomebody, gone.Cause)
	for _, c := range ours(a, "TerminateInstanceInAutoScalingGroup") {
		require.NotEqual(t, gone.ID, c.Arg("InstanceId"))
	}
}

// TestC27: AZRebalance is not suspended. The group launches one too many and would
// end one of the fullest zone; those with jobs are protected.
func TestC27_ZonesAreBalanced(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(onePool, "max: 10, idle_time: 2m")+`
duration: 40m
cloud: {linux: {initial: 6}}
jobs: [{at: 1s, id: job, count: 6, tags: [docker], duration: 15m}]
expect:
  - busy_kills == 0
  - forced_kills == 0
  - pool.linux.desired.max <= 7
  - pool.linux.desired == 0
  - jobs.completed == 6
`, simcloud.ASGOptions{Group: func(g *asgstub.GroupConfig) { g.SuspendedProcesses, g.Faults.AZRebalance = nil, true }}, func(a *simcloud.ASG) {
		for minute := range 5 {
			a.At(time.Duration(minute+2)*time.Minute, func() { a.Stub.AZRebalance("linux") })
		}
	})
	require.Greater(t, len(a.Stub.Instances("linux")), 6, "the group has balanced")
	require.Empty(t, causes(a, "linux", asgstub.AZRebalanced))
}

// TestC27: capacity rebalancing replaces instances that have jobs, protected or not,
// and so does an instance refresh. No job is lost for good.
func TestC27_TheGroupReplacesBusyInstances(t *testing.T) {
	for name, do := range map[string]func(a *simcloud.ASG){
		"capacity rebalance": func(a *simcloud.ASG) { a.Stub.Rebalance(a.Stub.Existing("linux")[0].ID) },
		"instance refresh":   func(a *simcloud.ASG) { a.Stub.StartInstanceRefresh("linux") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := playASG(t, fmt.Sprintf(onePool, "max: 10")+`
duration: 2h
tick: 10s
cloud: {linux: {initial: 3}}
jobs: [{at: 1s, id: job, count: 3, tags: [docker], duration: 10m}]
expect:
  - busy_kills == 0
  - jobs.failed == 0
  - jobs.completed == 3
  - pool.linux.desired == 0
`, simcloud.ASGOptions{Group: func(g *asgstub.GroupConfig) { g.CapacityRebalance = true }}, func(a *simcloud.ASG) {
				a.At(2*time.Minute, func() { do(a) })
			})
			require.LessOrEqual(t, r.ForcedKills, 3)
		})
	}
}

// TestC27: a second manager sets the group's number as it likes, twice a minute.
// Nobody with a job is ended, no job waits for long, and the number is ours in the end.
func TestC27_ASecondManager(t *testing.T) {
	t.Parallel()
	var said []int
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 10, idle_time: 2m")+`
duration: 90m
cloud: {linux: {max: 12}}
jobs:
  - {at: 1s, id: first, count: 6, tags: [docker], duration: 12m}
  - {at: 5m, id: second, count: 3, tags: [docker], duration: 5m}
expect:
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 9
  - jobs.wait.max <= 3m
  - pool.linux.desired == 0
`, simcloud.ASGOptions{}, func(a *simcloud.ASG) {
		for i := range 40 {
			n := (i * 7) % 12
			said = append(said, n)
			a.At(time.Duration(3*i+10)*10*time.Second, func() { a.Stub.SetDesiredExternally("linux", n) })
		}
	})
	require.NotEmpty(t, said)
	require.LessOrEqual(t, r.Pools["linux"].MaxLive, 12, "what both want is within the group's bounds")
	require.NotEmpty(t, ours(a, "SetDesiredCapacity"))
}

// TestC27: the group recreates a busy instance that somebody has ended, once the
// old machine has stopped. What it makes is not launched a second time by us.
func TestC27_AReplacementThatComesLate(t *testing.T) {
	t.Parallel()
	m := simcloud.NewMIG(simcloud.MIGOptions{Group: func(g *migstub.GroupConfig) { g.Faults.Stop = 90 * time.Second }})
	play(t, fmt.Sprintf(onePool, "max: 8")+`
duration: 90m
cloud: {linux: {boot: 60s}}
jobs: [{at: 1s, id: job, count: 5, tags: [docker], duration: 30m}]
events: [{at: 1205.1s, kill_instance: {pool: linux, nth: 2}}]
expect:
  - forced_kills == 1
  - jobs.completed == 5
  - pool.linux.launches == 6
  - pool.linux.desired.max == 5
`, m.Cloud)
}

// causes are the instances of a group that ended in this way.
func causes(a *simcloud.ASG, group string, cause asgstub.Cause) (ids []string) {
	for _, in := range a.Stub.Instances(group) {
		if !in.EndedAt.IsZero() && in.Cause == cause {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

// TestC33: somebody sets the group from eight to two while eight are busy. Nobody
// ends, and the next tick sets it back and says why.
func TestC33_DesiredIsResetBySomebody(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 10")+`
duration: 20m
cloud: {linux: {initial: 8}}
jobs: [{at: 1s, id: busy, count: 8, tags: [docker], duration: 10m}]
events: [{at: 100.5s, set_desired: {pool: linux, to: 2}}]
expect:
  - pool.linux.desired.at(101s) == 2
  - pool.linux.desired.at(105s) == 8
  - pool.linux.launches == 0
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 8
`, simcloud.ASGOptions{}, nil)
	calls := ours(a, "SetDesiredCapacity")
	require.Len(t, calls, 1, "it is said once")
	require.LessOrEqual(t, at(calls[0].At), 105*time.Second+100*time.Millisecond, "within a tick")
	i := slices.IndexFunc(r.Decisions, func(d sim.Decision) bool { return d.Reason == "drift" })
	require.GreaterOrEqual(t, i, 0, "the ledger says what happened")
	require.Equal(t, "set_desired(8, expected 2)", r.Decisions[i].Action, "with both numbers")
}

// TestX19: the control plane is replaced by one that knows nothing, and the store
// has been wiped. The old instances are found, serve, and end when nobody needs them.
func TestX19_ANewManagerFindsTheOldInstances(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "max: 10, idle_time: 2m")+`
duration: 1h
jobs:
  - {at: 1s, id: old, count: 4, tags: [docker], duration: 3m}
  - {at: 6m, id: new, count: 2, tags: [docker], duration: 5m}
events:
  - {at: 5m, replica: {n: 0, fault: kill, restart_after: 20s}}
  - {at: 301s, store: {fault: wiped}}
expect:
  - pool.linux.launches == 4
  - pool.linux.desired == 0
  - pool.linux.removals == 4
  - jobs.completed == 6
  - busy_kills == 0
`, cloud)
	})
}

// TestX19: a group that belongs to another control plane is not written to.
func TestX19_AGroupOfSomebodyElse(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(onePool, "max: 10, idle_time: 1m")+`
duration: 10m
cloud: {linux: {initial: 2}}
jobs: [{at: 1s, id: job, count: 5, tags: [docker], duration: 60s}]
expect: [jobs.completed == 5, pool.linux.launches == 0, pool.linux.removals == 0]
`, simcloud.ASGOptions{
		Settings: map[string]any{"owner": "spillway-a"},
		Group: func(g *asgstub.GroupConfig) {
			g.Tags = []asgstub.Tag{{Key: "spillway-owner", Value: "spillway-b"}}
		},
	}, nil)
	for _, c := range a.Stub.Calls() {
		require.False(t, c.Writes(), c.Operation)
	}
}

// TestX21: instances that somebody has marked are not ended on any path: not when
// idle, not when they never registered, not when they are broken by their own word
// or the cloud wants them back soon.
func TestX21_NobodyTouchesWhatIsMarked(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "max: 8, idle_time: 2m")+`
duration: 90m
tick: 10s
cloud: {linux: {initial: 6, kept: [i-0001, i-0002, i-0003, i-0004], never_register: {ids: [i-0002]}}}
jobs: [{at: 30m, id: burst, count: 4, tags: [docker], duration: 5m}]
events:
  - {at: 60s, unhealthy: {pool: linux, nth: 2, via: machine}}
  - {at: 60s, interrupt: {pool: linux, nth: 3, kind: rebalance, via: machine}}
  - {at: 65s, keep: {pool: linux, nth: 4}}
expect:
  - pool.linux.desired.at(29m) == 5
  - pool.linux.desired == 5
  - jobs.completed == 4
  - busy_kills == 0
  - forced_kills == 0
`, cloud)
	})
}
