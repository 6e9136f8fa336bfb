package scaler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// BenchmarkQuietFleet is what a tick costs for each of 1,000 pools when nothing is to be
// done, without what providers and the store take. Each pool has a machine, and every
// other one a job on it.
func BenchmarkQuietFleet(b *testing.B) {
	const pools = 1_000
	fleet := newWorld()
	var all []*Pool
	for i := range pools {
		own := newWorld()
		own.status = pluginsdk.GroupStatus{Group: "g", Desired: 1, Min: 1, Max: 10}
		own.list = []pluginsdk.Instance{{ID: fmt.Sprintf("i-%017d", i), State: pluginsdk.StateRunning, LaunchedAt: t0}}
		cfg := config(own)
		cfg.Pool.Name, cfg.Policy.Min = fmt.Sprintf("pool-%d", i), 1
		cfg.Pool.Capability.Tags = []string{cfg.Pool.Name}
		all = append(all, NewPool(cfg, own, fleet, own, own, &Events{}))
		fleet.machines = append(fleet.machines, router.Machine{
			ID: spillway.MachineID("m" + own.list[0].ID), InstanceID: own.list[0].ID, Pool: cfg.Pool.Name, Capacity: 1, Busy: i % 2, Connected: true, RegisteredAt: t0,
		})
	}
	f := NewFleet(fleet, fleet, 5*time.Second, spillway.SilentAfter, &Events{})
	var pic *Picture
	tick := func() {
		fleet.pass(5 * time.Second)
		before := pic
		pic = f.Observe(b.Context(), fleet.now, all)
		for _, p := range all {
			if pic.Concerns(before, p.Name()) && before != nil {
				b.Fatal("nothing has changed")
			}
			p.Tick(b.Context(), fleet.now, pic)
		}
	}
	for range 3 { // until each offers what it has
		tick()
		pic = nil
	}
	require.Equal(b, policy.ReasonMin, all[0].Status().Decision.Reason)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		tick()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*pools), "µs/pool")
}
