package simcloud_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// What random stories found, told as small ones.

// X03: somebody puts an idle instance on standby and lowers the number with
// it. It is listed and not counted by the number, which looks like drift.
func TestX03_AnInstanceOnStandby(t *testing.T) {
	t.Parallel()
	var id string
	_, a := playASG(t, fmt.Sprintf(onePool, "idle_time: 2m")+fmt.Sprintf(outOfGroup, 0), simcloud.ASGOptions{}, func(a *simcloud.ASG) {
		a.At(time.Minute, func() {
			id = a.Stub.Existing("linux")[0].ID
			a.Somebody("EnterStandby", url.Values{
				"AutoScalingGroupName": {"linux"}, "InstanceIds.member.1": {id}, "ShouldDecrementDesiredCapacity": {"true"},
			})
		})
	})
	for _, call := range ours(a, "TerminateInstanceInAutoScalingGroup") {
		require.NotEqual(t, id, call.Arg("InstanceId"), "it is not ours to end")
	}
}

// C24: the group does not list its instances yet, and one of them has a job
// already. What is taken back of the rest takes that one with it.
func TestC24_AWithdrawalBeforeTheInstancesAreListed(t *testing.T) {
	for seed := range 4 {
		clouds(t, func(t *testing.T, cloud sim.NewCloud) {
			play(t, fmt.Sprintf("seed: %d\n", seed)+fmt.Sprintf(onePool, "max: 8, idle_time: 30s")+`
duration: 30m
cloud: {linux: {boot: {p50: 20s, p95: 90s}, visible_after: 2m, protected: false}}
jobs:
  - {at: 1s, id: long, tags: [docker], duration: 10m}
  - {at: 2s, id: short, count: 5, tags: [docker], duration: 1s}
expect: [busy_kills == 0, forced_kills == 0, jobs.completed == 6]
`, cloud)
		})
	}
}

// C33: somebody sets the number to zero while the group launches nothing, so
// that it can't be set back, and then the store is wiped. The instances that live on
// must not be stuck: no use for anybody, and not removable below a number of zero.
func TestC33_ZeroDesiredAndNoMemory(t *testing.T) {
	t.Parallel()
	play(t, fmt.Sprintf(onePool, "max: 3, max_uses: 1, idle_time: 2m")+`
duration: 2h
cloud: {linux: {initial: 3, halts: [{from: 60s, to: 10m, launch: suspended}]}}
jobs:
  - {at: 1s, id: first, count: 3, tags: [docker], duration: 15m}
  - {at: 20m, id: second, count: 3, tags: [docker], duration: 5m}
events:
  - {at: 100s, set_desired: {pool: linux, to: 0}}
  - {at: 150s, store: {fault: wiped}}
expect:
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 6
  - pool.linux.in_service == 0
`, simcloud.NewASG(simcloud.ASGOptions{}).Cloud)
}
