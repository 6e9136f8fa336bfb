package demand_test

import (
	"fmt"
	"testing"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// largeFleet is as many classes and pools, of which each class fits one or two.
func largeFleet(size int) ([]demand.Class, []demand.Supply) {
	classes, pools := make([]demand.Class, size), make([]demand.Supply, size)
	for i := range size {
		own := fmt.Sprintf("kind-%d", i)
		r := spillway.Requirement{Tags: []string{"linux", own}}.Normalize()
		classes[i] = demand.Class{ID: r.Class(), Requirement: r, Pending: 1, Oldest: t0}
		pools[i] = with(pool(fmt.Sprintf("p%d", i), "docker", own, fmt.Sprintf("kind-%d", (i+1)%size), "linux"), func(s *demand.Supply) {
			s.Capability, s.Launchable = s.Capability.Normalize(), 4
		})
	}
	return classes, pools
}

func BenchmarkAttributeOneKindEach(b *testing.B) {
	classes, pools := largeFleet(1000)
	b.ReportAllocs()
	for b.Loop() {
		demand.Attribute(classes, pools, match)
	}
}

func BenchmarkSignals(b *testing.B) {
	classes, pools := largeFleet(1000)
	runners := make([]demand.Runners, len(pools))
	for i := range pools {
		runners[i] = demand.Runners{Capability: pools[i].Capability, Live: 1}
	}
	b.ReportAllocs()
	for b.Loop() {
		demand.Signals(classes, runners, match, t0)
	}
}
