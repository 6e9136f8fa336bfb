package simcloud_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// c35 is an account of 120 pools, each with an instance that is busy all the time.
// Most of them want nothing; some want more in the middle of the trouble, and some
// when it is just over.
const (
	c35Pools    = 120
	c35Tick     = 20 * time.Second
	throttled   = 4 * time.Minute
	unthrottled = throttled + 10*time.Minute
)

func c35() string {
	var pools, groups, jobs strings.Builder
	for i := range c35Pools {
		fmt.Fprintf(&pools, "    - {name: p%03d, capability: {tags: [t%d]}, policy: {max: 3}}\n", i, i)
		fmt.Fprintf(&groups, "  p%03d: {initial: 1}\n", i)
		fmt.Fprintf(&jobs, "  - {at: 1s, id: busy%d, tags: [t%d], duration: 1h}\n", i, i)
	}
	for i := range 5 {
		fmt.Fprintf(&jobs, "  - {at: 8m, id: during%d, tags: [t%d], duration: 1h}\n", i, i)
		fmt.Fprintf(&jobs, "  - {at: 841s, id: after%d, tags: [t%d], duration: 1h}\n", i, 50+i)
	}
	return fmt.Sprintf("duration: 17m\ntick: %s\nconfig:\n  pools:\n%scloud:\n%sjobs:\n%s", c35Tick, &pools, &groups, &jobs)
}

// TestC35: 120 pools are two calls of DescribeAutoScalingGroups a tick. With half of
// all calls throttled for ten minutes nothing is lowered or lost, there are not many
// more calls than otherwise, and a tick after it all is well.
func TestC35_ThrottledAccountOf120Pools(t *testing.T) {
	if testing.Short() {
		t.Skip("120 pools")
	}
	t.Parallel()
	throttle := asgstub.Faults{Calls: []asgstub.CallFault{{
		Window: asgstub.Window{From: throttled, To: unthrottled}, Code: "Throttling", Ratio: 0.5,
	}}}
	r, a := playASG(t, c35(), simcloud.ASGOptions{
		OneProcess: true, Faults: throttle,
		Group: func(g *asgstub.GroupConfig) { g.Faults.Calls = throttle.Calls },
	}, nil)

	quiet := describes(a, time.Minute, throttled)
	require.Equal(t, 2*int((throttled-time.Minute)/c35Tick), quiet, "two calls a tick")
	during := describes(a, throttled, unthrottled)
	usual := 2 * int((unthrottled-throttled)/c35Tick)
	require.LessOrEqual(t, during, 3*usual)
	refused := 0
	for _, c := range a.Stub.Calls() {
		if c.Code == "Throttling" {
			refused++
		}
	}
	require.Greater(t, refused, usual/4, "half of the calls were throttled")

	require.Zero(t, r.BusyKills+r.ForcedKills)
	require.Zero(t, r.Pools["p099"].ScaleCalls)
	for name, p := range r.Pools {
		for i := 1; i < len(p.Desired); i++ {
			require.Greater(t, p.Desired[i].N, p.Desired[i-1].N, "%s was lowered", name)
		}
	}
	for i := range 5 {
		during, after := r.Pools[fmt.Sprintf("p%03d", i)], r.Pools[fmt.Sprintf("p%03d", 50+i)]
		require.Equal(t, 1, during.Launches)
		require.Equal(t, 1, after.Launches)
		raised := time.Duration(float64(after.Desired[len(after.Desired)-1].T) * float64(time.Second))
		require.LessOrEqual(t, raised, unthrottled+c35Tick, "within a tick after the end")
	}
}

// describes counts the reads of groups in a span of the story.
func describes(a *simcloud.ASG, from, to time.Duration) (n int) {
	for _, c := range ours(a, "DescribeAutoScalingGroups") {
		if d := at(c.At); d >= from && d < to {
			n++
		}
	}
	return n
}
