package demand_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

func anything(*spillway.Capability, *spillway.Requirement) (bool, string) { return true, "" }

// Jobs that wait for admission hold what is there and launch nothing, and never take
// anything from the others.
func TestUnadmittedJobsBuyNothing(t *testing.T) {
	launched := false
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 6)
		pools := []demand.Supply{
			{Pool: "a", Free: n.Draw(rt, "free"), Booting: n.Draw(rt, "booting"), Draining: n.Draw(rt, "draining"), Launchable: n.Draw(rt, "launchable")},
			{Pool: "b", Priority: 1, Free: n.Draw(rt, "free b"), Launchable: n.Draw(rt, "launchable b")},
		}
		for i := range pools {
			pools[i].Capability = spillway.Capability{RunUntagged: true, Type: spillway.InstanceType}
		}
		sure := []demand.Class{{ID: "1", Pending: rapid.IntRange(0, 30).Draw(rt, "sure")}}
		unsure := demand.Class{ID: "2", Pending: n.Draw(rt, "unsure"), Unadmitted: true, Priority: 0}
		alone := demand.Attribute(sure, pools, anything)
		both := demand.Attribute([]demand.Class{unsure, sure[0]}, pools, anything)
		placed := 0
		for _, p := range pools {
			require.Equal(rt, alone.Pools[p.Pool].Launch, both.Pools[p.Pool].Launch, "they launch nothing")
			require.Equal(rt, alone.Pools[p.Pool].Beyond, both.Pools[p.Pool].Beyond)
			require.LessOrEqual(rt, both.Pools[p.Pool].Free, p.Free)
			require.LessOrEqual(rt, both.Pools[p.Pool].Coming, p.Booting+p.Draining)
			placed += both.Pools[p.Pool].Free + both.Pools[p.Pool].Coming - alone.Pools[p.Pool].Free - alone.Pools[p.Pool].Coming
			launched = launched || both.Pools[p.Pool].Launch > 0
		}
		room := 0
		for _, p := range pools {
			room += p.Free + p.Booting + p.Draining - alone.Pools[p.Pool].Free - alone.Pools[p.Pool].Coming
		}
		require.Equal(rt, min(room, unsure.Pending), placed, "they hold all that is there")
		require.True(rt, slices.IsSortedFunc(both.Flows, func(x, y demand.Flow) int { return x.Class - y.Class }))
		for _, f := range both.Flows {
			require.False(rt, f.Class == 0 && f.Stage == demand.LaunchPlaces)
		}
	})
	require.True(t, launched)
}
