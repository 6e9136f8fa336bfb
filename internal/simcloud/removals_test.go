package simcloud_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// The event at the end keeps the story going when nothing is left to do.
const c14 = `
duration: 24h
tick: 60s
cloud: {linux: {auto_replace: true}}
jobs: [{at: 1s, id: only, tags: [docker], duration: 300s}]
events: [{at: 24h, cancel: []}]
expect:
  - pool.linux.launches == 1
  - pool.linux.desired == 0
  - pool.linux.desired.at(30m) == 0
  - jobs.completed == 1
  - duration_s == 86400
`

// TestC14: one job of an instance's life, one launch in a day, whatever the group
// replaces.
func TestC14_OneJobIsOneLaunch(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		play(t, fmt.Sprintf(onePool, "max_uses: 1, idle_time: 2h")+c14, cloud)
	})
}

// c25 has five instances of which one has nothing to do.
const c25 = `
duration: 25m
cloud: {linux: {initial: 5, min: 1, termination_hook: %s}}
jobs: [{at: 1s, id: long, count: 4, tags: [docker], duration: 20m}]
expect:
  - busy_kills == 0
  - forced_kills == 0
  - pool.linux.desired.at(15m) == 4
  - jobs.completed == 4
`

// TestC25: while an instance is ended with a decrement the group already launches
// another one for it, and then takes one that is not protected. Those with jobs are.
func TestC25_TheGroupRacesWithAReplacement(t *testing.T) {
	t.Parallel()
	r, a := playASG(t, fmt.Sprintf(onePool, "min: 1")+fmt.Sprintf(c25, "0s"), simcloud.ASGOptions{
		Group: func(g *asgstub.GroupConfig) { g.Faults.ReplaceRace = true },
	}, nil)
	first := ours(a, "TerminateInstanceInAutoScalingGroup")[0]
	require.Less(t, at(first.At), 15*time.Minute)
	require.Equal(t, "true", first.Arg("ShouldDecrementDesiredCapacity"))
	require.Positive(t, r.Pools["linux"].Launches, "the group has launched one too many")
	require.Empty(t, ours(a, "SetDesiredCapacity"))
}

// TestC25: the instance shuts itself down too, at once or up to half a minute after
// we named it. The number falls once.
func TestC25_AnInstanceThatAlsoEndsItself(t *testing.T) {
	t.Parallel()
	story := fmt.Sprintf(onePool, "min: 1") + fmt.Sprintf(c25, "30s")
	// The hook is somebody else's: nobody completes it, and the instance is there for
	// as long as it waits.
	options := simcloud.ASGOptions{Settings: map[string]any{"hooks": map[string]any{"names": []string{"another"}}}}
	_, before := playASG(t, story, options, nil)
	named := ours(before, "TerminateInstanceInAutoScalingGroup")[0]
	for _, after := range []time.Duration{0, time.Second, 5 * time.Second, 15 * time.Second, 29 * time.Second, 30 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			r, a := playASG(t, story, options, func(a *simcloud.ASG) {
				a.At(at(named.At)+after+time.Millisecond, func() { a.Stub.SelfTerminate(named.Arg("InstanceId")) })
			})
			in, ok := a.Stub.Instance(named.Arg("InstanceId"))
			require.True(t, ok)
			require.False(t, in.EndedAt.IsZero())
			require.Zero(t, r.Pools["linux"].Launches, "it was replaced")
			decrements := 0
			for _, c := range ours(a, "TerminateInstanceInAutoScalingGroup") {
				if at(c.At) < 15*time.Minute {
					decrements++
				}
			}
			require.Equal(t, 1, decrements)
		})
	}
}

// TestX01: an instance that has reached its age takes no more jobs, and ends only
// when the one that it has is done.
func TestX01_AgeOnlyDrains(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		r := play(t, fmt.Sprintf(onePool, "max_age: 12h")+`
duration: 16h
tick: 60s
jobs:
  - {at: 1s, id: long, tags: [docker], duration: 14h}
  - {at: 13h, id: next, tags: [docker], duration: 60s}
expect:
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 2
  - pool.linux.launches == 2
`, cloud)
		require.Equal(t, 2, r.Pools["linux"].Removals)
	})
}

// outOfGroup is six idle instances, of which somebody takes the first out of the
// group's hands; all but that one shall go.
const outOfGroup = `
duration: 15m
cloud: {linux: {initial: 6}}
events: [{at: 14m, cancel: []}]
expect:
  - busy_kills == 0
  - pool.linux.desired == 0
  - pool.linux.launches == %d
`

// TestX03: one of the idle instances is not the group's any more. It is not named,
// and holds nobody up.
func TestX03_WhatIsNotInTheGroupHoldsNobodyUp(t *testing.T) {
	for name, c := range map[string]struct {
		launches int
		do       func(a *simcloud.ASG, id string)
	}{
		"detached": {0, func(a *simcloud.ASG, id string) {
			a.Somebody("DetachInstances", url.Values{
				"AutoScalingGroupName": {"linux"}, "InstanceIds.member.1": {id}, "ShouldDecrementDesiredCapacity": {"true"},
			})
		}},
		"stopped and not noticed": {1, func(a *simcloud.ASG, id string) { a.Stub.TerminateExternally(id) }}, // the group replaces it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var id string
			_, a := playASG(t, fmt.Sprintf(onePool, "idle_time: 2m")+fmt.Sprintf(outOfGroup, c.launches), simcloud.ASGOptions{
				Group: func(g *asgstub.GroupConfig) { g.Faults.HealthCheck = 3 * time.Minute },
			}, func(a *simcloud.ASG) {
				a.At(time.Minute, func() {
					id = a.Stub.Existing("linux")[0].ID
					c.do(a, id)
				})
			})
			named := ours(a, "TerminateInstanceInAutoScalingGroup")
			require.GreaterOrEqual(t, len(named), 5)
			if name != "stopped and not noticed" {
				for _, call := range named {
					require.NotEqual(t, id, call.Arg("InstanceId"), "it is not ours to end")
				}
			}
		})
	}
}

// TestX04: the control plane dies, and its plugin with it, at every second of a
// scale-in. What was begun is finished afterwards.
func TestX04_AHalfDoneScaleInGoesOn(t *testing.T) {
	for second := 118; second <= 134; second += 2 {
		t.Run(fmt.Sprintf("%ds", second), func(t *testing.T) {
			clouds(t, func(t *testing.T, cloud sim.NewCloud) {
				play(t, fmt.Sprintf(onePool, "idle_time: 2m")+fmt.Sprintf(`
duration: 10m
cloud: {linux: {initial: 5}}
jobs: [{at: 1s, id: busy, tags: [docker], duration: 8m}]
events:
  - {at: %[1]d.001s, replica: {n: 0, fault: kill, restart_after: 3s}}
  - {at: %[1]d.002s, plugin: {pool: linux, fault: crash, for: 4s}}
expect:
  - busy_kills == 0
  - pool.linux.desired.at(6m) == 1
  - pool.linux.launches == 0
  - jobs.completed == 1
`, second), cloud)
			})
		})
	}
}
