package demand_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// BenchmarkAttribute: each pool has 3 of tags tags, each class needs 1 or 2, so
// that pools overlap in many ways and jobs must be moved; places are short.
func BenchmarkAttribute(b *testing.B) {
	for _, size := range []struct{ jobs, classes, pools, tags int }{
		{10_000, 500, 50, 12},
		{10_000, 500, 50, 3},
		{100_000, 1_000, 1_000, 20},
		{100_000, 1_000, 1_000, 300},
	} {
		b.Run(fmt.Sprintf("jobs=%d/classes=%d/pools=%d/tags=%d", size.jobs, size.classes, size.pools, size.tags), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			tag := func() string { return fmt.Sprintf("tag-%d", rng.IntN(size.tags)) }
			classes := make([]demand.Class, size.classes)
			for i := range classes {
				r := spillway.Requirement{Tags: []string{tag(), tag()}[:1+rng.IntN(2)], Project: int64(i)}.Normalize()
				classes[i] = demand.Class{
					ID: r.Class(), Requirement: r, Pending: size.jobs / size.classes,
					Oldest: t0.Add(time.Duration(rng.IntN(1000)) * time.Second),
				}
			}
			pools := make([]demand.Supply, size.pools)
			perPool := size.jobs / size.pools
			for i := range pools {
				pools[i] = with(pool(fmt.Sprintf("p%d", i), tag(), tag(), tag()), func(s *demand.Supply) {
					s.Priority = rng.IntN(3)
					s.Free, s.Booting, s.Launchable = rng.IntN(perPool/2), rng.IntN(perPool/2), rng.IntN(perPool)
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				demand.Attribute(classes, pools, match)
			}
		})
	}
}
