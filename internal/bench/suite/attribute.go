package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/router"
)

// maxAttributeMillis is what the attribution of a large fleet's waiting jobs may
// take: it comes before every reaction.
const maxAttributeMillis = 5

func demandAttribute() Benchmark {
	return Benchmark{"demand/attribute", "waiting jobs to pools, by maximum flow", runAttribute}
}

// fleet is a random problem: each pool has 3 tags, each class needs 1 or 2, so that
// pools overlap in many ways; places are short, so that jobs must be moved.
type fleet struct {
	classes []demand.Class
	pools   []demand.Supply
}

func randomFleet(jobs, classes, pools, tags int) fleet {
	rng := rand.New(rand.NewPCG(1, 2)) // the same problem every time
	tag := func() string { return fmt.Sprintf("tag-%d", rng.IntN(tags)) }
	start := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	f := fleet{classes: make([]demand.Class, classes), pools: make([]demand.Supply, pools)}
	for i := range f.classes {
		r := spillway.Requirement{Tags: []string{tag(), tag()}[:1+rng.IntN(2)], Project: int64(i + 1)}.Normalize()
		f.classes[i] = demand.Class{
			ID: r.Class(), Requirement: r, Pending: jobs / classes, Oldest: start.Add(time.Duration(rng.IntN(1000)) * time.Second),
		}
	}
	perPool := jobs / pools
	for i := range f.pools {
		f.pools[i] = demand.Supply{
			Pool:       fmt.Sprintf("pool-%d", i),
			Capability: spillway.Capability{Tags: []string{tag(), tag(), tag()}}.Normalize(),
			Priority:   rng.IntN(3),
			Free:       rng.IntN(perPool / 2), Booting: rng.IntN(perPool / 2), Launchable: rng.IntN(perPool),
		}
	}
	return f
}

func runAttribute(ctx context.Context, b *bench) error {
	target := measure.ValueAtMost(maxAttributeMillis)
	if err := attributeRows(ctx, b, randomFleet(10_000, 500, 50, 12), "10,000 jobs, 500 classes, 50 pools", &target); err != nil {
		return err
	}
	if b.Short {
		return nil
	}
	return attributeRows(ctx, b, randomFleet(100_000, 1_000, 1_000, 300), "100,000 jobs, 1,000 classes, 1,000 pools", nil)
}

func attributeRows(ctx context.Context, b *bench, f fleet, size string, target *measure.Target) error {
	all, err := measure.Rounds(ctx, b.Rounds, []measure.Subject{
		{Name: "match each class with each pool once: " + size, Run: f.matchAll},
		{Name: "Attribute: " + size, Run: f.attribute},
	})
	if err != nil {
		return err
	}
	row := measure.RowOf(all[1], "ms").Against(all[1], all[0])
	if target != nil {
		row = row.Judged(*target)
	}
	b.add(measure.ReferenceRow(all[0], "ms"), row)
	return nil
}

// attributeCalls is how many calls one figure is the mean of.
const attributeCalls = 5

func (f *fleet) attribute(context.Context) (float64, error) {
	began := time.Now()
	for range attributeCalls {
		if a := demand.Attribute(f.classes, f.pools, router.Fits); len(a.Flows) == 0 {
			return 0, fmt.Errorf("nothing was attributed")
		}
	}
	return millis(time.Since(began)) / attributeCalls, nil
}

// matchAll is the least that any attribution does that knows of nothing before.
func (f *fleet) matchAll(context.Context) (float64, error) {
	began := time.Now()
	for range attributeCalls {
		fits := 0
		for i := range f.classes {
			for j := range f.pools {
				if ok, _ := router.Fits(&f.pools[j].Capability, &f.classes[i].Requirement); ok {
					fits++
				}
			}
		}
		if fits == 0 {
			return 0, fmt.Errorf("no pool takes any job")
		}
	}
	return millis(time.Since(began)) / attributeCalls, nil
}
