package simcloud_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// TestC18 (a): two of ten never register, in a group that would end its oldest
// instance, busy or not, whenever it may choose.
func TestC18a_TwoOfTenNeverRegister(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "max: 10")+`
cloud: {linux: {victim: oldest, protected: false, never_register: {ids: [i-0003, i-0007]}}}
jobs: [{at: 1s, id: burst, count: 10, tags: [docker], duration: 300s}]
expect:
  - pool.linux.launches == 10
  - pool.linux.desired.at(600s) == 10
  - pool.linux.desired.at(606s) == 8
  - jobs.completed.at(665s) == 10
  - busy_kills == 0
  - forced_kills == 0
`, cloud)
	})
}

// TestC18 (b): nothing that is launched registers. The four old instances survive,
// and no hour has more than twelve launches.
func TestC18b_NoneRegisters(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		var launched []time.Duration
		watched := func(s sim.Setup) (sim.Cloud, error) {
			observe := s.Observe
			s.Observe = func(ch sim.Change) {
				if ch.Kind == sim.Launched {
					launched = append(launched, at(ch.At))
				}
				observe(ch)
			}
			return cloud(s)
		}
		play(t, fmt.Sprintf(onePool, "max: 10")+`
duration: 4h
tick: 10s
cloud: {linux: {initial: 4, victim: oldest, protected: false, never_register: {all: true}}}
jobs:
  - {at: 1s, id: old, count: 4, tags: [docker], duration: 220m}
  - {at: 2s, id: waiting, count: 10, tags: [docker], duration: 5m}
expect:
  - pool.linux.in_service.min == 4
  - pool.linux.limited_by.hold_boot_failing >= 1
  - busy_kills == 0
  - forced_kills == 0
`, watched)
		require.GreaterOrEqual(t, len(launched), 10, "it goes on to try")
		for i, first := range launched {
			inHour := 0
			for _, d := range launched[i:] {
				if d < first+time.Hour {
					inHour++
				}
			}
			require.LessOrEqual(t, inHour, 12, "in the hour from %s", first)
		}
	})
}

// TestC21 (a): the control plane dies at random moments around its first call. What
// it has asked for is its own when it is back.
func TestC21a_KilledAroundTheCall(t *testing.T) {
	g := rand.New(rand.NewPCG(21, 1))
	for range 12 {
		kill := 900 + g.IntN(5000) // ms; the call is at 1005
		t.Run(fmt.Sprintf("%dms", kill), func(t *testing.T) {
			clouds(t, func(t *testing.T, cloud sim.NewCloud) {
				play(t, fmt.Sprintf(onePool, "max: 20")+fmt.Sprintf(`
duration: 10m
jobs: [{at: 1s, id: burst, count: 5, tags: [docker], duration: 3m}]
events:
  - {at: %[1]d.%03[2]ds, replica: {n: 0, fault: kill, restart_after: 10s}}
  - {at: %[1]d.%03[2]ds, plugin: {pool: linux, fault: crash, for: 5s}}
expect:
  - pool.linux.launches == 5
  - pool.linux.calls.set_desired == 1
  - jobs.completed == 5
  - busy_kills == 0
`, kill/1000, kill%1000), cloud)
			})
		})
	}
}

// TestC21 (b): instances that we have on record vanish while they boot. They are
// forgotten, and what the group makes in their place serves.
func TestC21b_OnRecordAndNotThere(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "max: 4")+`
duration: 40m
jobs: [{at: 1s, id: burst, count: 3, tags: [docker], duration: 3m}]
events:
  - {at: 30s, kill_instance: {pool: linux, nth: 0}}
  - {at: 30s, kill_instance: {pool: linux, nth: 1}}
  - {at: 30s, kill_instance: {pool: linux, nth: 2}}
expect:
  - jobs.completed == 3
  - jobs.wait.max <= 95s
  - pool.linux.launches == 6
  - pool.linux.desired.max == 3
  - pool.linux.desired == 0
`, cloud)
	})
}

// TestC21 (c): the group says that it ends three instances, and they stay: a hook of
// somebody else's holds them. They count for the maximum until they are gone.
func TestC21c_EndedAndStillThere(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(onePool, "max: 3, idle_time: 1m")+`
duration: 30m
cloud: {linux: {initial: 3, termination_hook: 5m}}
jobs: [{at: 90s, id: next, count: 3, tags: [docker], duration: 60s}]
expect:
  - pool.linux.desired.at(89s) == 0
  - pool.linux.max_live == 3
  - pool.linux.launches == 3
  - jobs.completed == 3
  - busy_kills == 0
`, simcloud.ASGOptions{Settings: map[string]any{"hooks": map[string]any{"names": []string{"another"}}}}, nil)
	require.Empty(t, ours(a, "CompleteLifecycleAction"), "the hook is not ours")
}

// threePools are asked in the order of their names.
const threePools = `
config:
  pools:
    - {name: p1, capability: {tags: [docker]}, priority: 0}
    - {name: p2, capability: {tags: [docker]}, priority: 1}
    - {name: p3, capability: {tags: [docker]}, priority: 2, policy: {max: %d}}
cloud:
  p1: {errors: [{from: 0s, to: %[2]s, kind: capacity, delivery: activity}]}
  p2: {errors: [{from: 0s, to: %[2]s, kind: capacity, delivery: activity}]}
`

// TestC28: the first two pools have nothing to give. The third has four within two
// polls of each, what was asked of the others is taken back, and nobody is lost.
func TestC28_SpilloverByFailedLaunches(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(threePools, 4, "30m")+`
duration: 30m
jobs: [{at: 2s, id: burst, count: 4, tags: [docker], duration: 10m}]
expect:
  - pool.p3.desired.at(22s) == 4
  - pool.p3.launches == 4
  - pool.p1.desired.at(22s) == 0
  - pool.p2.desired.at(27s) == 0
  - pool.p1.calls.withdraw == 1
  - pool.p2.calls.withdraw == 1
  - jobs.wait.max <= 80s
  - jobs.completed == 4
`, cloud)
	})
}

// TestC28: while jobs wait, each pool in cool-off is asked for one instance at the
// end of each interval, and the intervals grow. When there is capacity again, one
// instance comes first, and the rest behind it.
func TestC28_OneProbeAnInterval(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(threePools, 1, "20m")+`
duration: 90m
jobs: [{at: 2s, id: burst, count: 4, tags: [docker], duration: 40m}]
expect:
  - pool.p1.desired.at(19m) <= 1
  - pool.p1.launches >= 1
  - jobs.completed == 4
`, simcloud.ASGOptions{}, nil)
	for _, group := range []string{"p1", "p2"} {
		raises := raisesOf(t, a, group, 20*time.Minute)
		require.GreaterOrEqual(t, len(raises), 3, "%s is asked again and again", group)
		require.LessOrEqual(t, len(raises), 7, "%s is asked once an interval", group)
		for i := 1; i < len(raises); i++ {
			require.Equal(t, 1, raises[i].by, "%s is probed with one", group)
			gap := raises[i].at - raises[i-1].at
			require.GreaterOrEqual(t, gap, 30*time.Second)
			if i > 1 {
				require.Greater(t, gap, raises[i-1].at-raises[i-2].at, "the intervals grow")
			}
		}
	}
}

// raise is one call for more.
type raise struct {
	at time.Duration
	by int // instances
}

// raisesOf are the calls for more, before end.
func raisesOf(t *testing.T, a *simcloud.ASG, group string, end time.Duration) (raises []raise) {
	t.Helper()
	before := 0
	for _, c := range ours(a, "SetDesiredCapacity") {
		if c.Group != group || c.Code != "" || at(c.At) >= end {
			continue
		}
		n := number(t, c, "DesiredCapacity")
		if n > before {
			raises = append(raises, raise{at(c.At), n - before})
		}
		before = n
	}
	return raises
}

// TestC31: the group allows fewer than the pool. What it allows is asked for, and
// what it allows later is there a tick later. Below what lives, nobody is ended but
// the idle, by name.
func TestC31_TheGroupsMaxMoves(t *testing.T) {
	t.Parallel()
	_, a := playASG(t, fmt.Sprintf(onePool, "max: 20, idle_time: 2m")+`
duration: 50m
cloud: {linux: {max: 5}}
jobs:
  - {at: 1s, id: burst, count: 12, tags: [docker], duration: 20m}
expect:
  - pool.linux.desired.at(200s) == 5
  - pool.linux.limited_by.provider_max >= 1
  - pool.linux.desired.at(306s) == 12
  - pool.linux.desired.max == 12
  - pool.linux.launches == 12
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 12
`, simcloud.ASGOptions{}, func(a *simcloud.ASG) {
		a.At(300*time.Second, func() { a.Stub.SetBounds("linux", 0, 20) })
		a.At(600*time.Second, func() { a.Stub.SetBounds("linux", 0, 3) })
	})
	for _, c := range ours(a, "SetDesiredCapacity") {
		require.Empty(t, c.Code, "no call asked for more than the group allows")
	}
}

// TestX05: no call honours a cooldown, and a group that is busy with an activity is
// asked again soon, not in half an hour.
func TestX05_AnActivityInProgressIsNoReasonToWaitForLong(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "max: 20")+`
duration: 20m
jobs: [{at: 1s, id: burst, count: 4, tags: [docker], duration: 3m}]
expect: [jobs.completed == 4, pool.linux.launches == 4]
`, simcloud.ASGOptions{Group: func(g *asgstub.GroupConfig) {
		g.Faults.Calls = []asgstub.CallFault{{Operations: []string{"SetDesiredCapacity"}, Code: "ScalingActivityInProgress", Times: 2}}
	}}, nil)
	calls := ours(a, "SetDesiredCapacity")
	require.GreaterOrEqual(t, len(calls), 3)
	for _, c := range calls {
		require.Equal(t, "false", c.Arg("HonorCooldown"))
	}
	require.LessOrEqual(t, float64(r.Jobs.Wait.Max), (4 * time.Minute).Seconds(), "two refusals, their cool-offs and a boot")
}

// TestX09: below its minimum too a pool cools off when there is no capacity.
func TestX09_NoCapacityBelowTheMinimum(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "min: 3")+`
duration: 75m
tick: 10s
cloud: {linux: {errors: [{from: 0s, to: 30m, kind: capacity, delivery: activity}]}}
expect:
  - pool.linux.calls.set_desired <= 15
  - pool.linux.calls.set_desired >= 3
  - pool.linux.in_service.at(29m) == 0
  - pool.linux.in_service == 3
`, cloud)
	})
}
