package demand_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// fleet is a small random fleet; small, since the oracle is slow and counter-
// examples of flows are small.
type fleet struct {
	classes []demand.Class
	pools   []demand.Supply
}

func drawFleet(t *rapid.T) fleet {
	tags := func(label string, least int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), least, 3, rapid.ID).Draw(t, label)
	}
	few := rapid.IntRange(0, 3)
	var f fleet
	for i := range rapid.IntRange(0, 6).Draw(t, "classes") {
		r := spillway.Requirement{Tags: tags("needs", 0), Protected: rapid.Bool().Draw(t, "on protected ref")}
		f.classes = append(f.classes, demand.Class{
			ID: r.Class(), Requirement: r, Pending: rapid.IntRange(0, 4).Draw(t, "pending"),
			Priority: rapid.IntRange(0, 2).Draw(t, "urgency"), Oldest: t0.Add(time.Duration(i) * time.Second),
		})
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "pools") {
		f.pools = append(f.pools, demand.Supply{
			Pool: fmt.Sprintf("p%d", i),
			Capability: spillway.Capability{
				Tags: tags("has", 1), RunUntagged: rapid.Bool().Draw(t, "untagged"), Protected: rapid.Bool().Draw(t, "protected"),
			},
			Priority: rapid.IntRange(0, 2).Draw(t, "priority"), CostPerJob: float64(rapid.IntRange(0, 1).Draw(t, "cost")),
			Free: few.Draw(t, "free"), Booting: few.Draw(t, "booting"), Draining: rapid.IntRange(0, 1).Draw(t, "draining"),
			Launchable: few.Draw(t, "launchable"), CooledOff: rapid.IntRange(0, 4).Draw(t, "cooled") == 0,
		})
	}
	return f
}

// place is one place, job is one job: the oracle knows no counts.
type place struct {
	pool  *demand.Supply
	stage demand.Stage
}

// places lists f's places in the order of the rule, up to a stage.
func (f fleet) places(last demand.Stage) []place {
	pools := slices.Clone(f.pools)
	slices.SortFunc(pools, func(a, b demand.Supply) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.CostPerJob, b.CostPerJob), cmp.Compare(a.Pool, b.Pool))
	})
	var out []place
	for stage := demand.FreePlaces; stage <= last; stage++ {
		for i := range pools {
			p := &pools[i]
			n := []int{p.Free, p.Booting + p.Draining, p.Launchable}[stage]
			if stage == demand.LaunchPlaces && p.CooledOff {
				n = 0
			}
			out = append(out, slices.Repeat([]place{{p, stage}}, n)...)
		}
	}
	return out
}

// jobs lists f's jobs as indices of their class, most urgent first.
func (f fleet) jobs() []int {
	order := make([]int, len(f.classes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &f.classes[i], &f.classes[j]
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Oldest.Compare(b.Oldest))
	})
	var out []int
	for _, c := range order {
		out = append(out, slices.Repeat([]int{c}, f.classes[c].Pending)...)
	}
	return out
}

// most is the size of a maximum matching of jobs and places, by the textbook's
// augmenting paths over single jobs.
func (f fleet) most(jobs []int, places []place) int {
	takenBy := slices.Repeat([]int{-1}, len(places))
	size := 0
	for j := range jobs {
		seen := make([]bool, len(places))
		var try func(j int) bool
		try = func(j int) bool {
			for i, p := range places {
				if ok, _ := match(&p.pool.Capability, &f.classes[jobs[j]].Requirement); !ok || seen[i] {
					continue
				}
				seen[i] = true
				if takenBy[i] < 0 || try(takenBy[i]) {
					takenBy[i] = j
					return true
				}
			}
			return false
		}
		if try(j) {
			size++
		}
	}
	return size
}

func placedPerClass(a demand.Attribution, classes int) []int {
	out := make([]int, classes)
	for _, f := range a.Flows {
		out[f.Class] += f.Jobs
	}
	return out
}

// The stages' greedy rule fixes each pool's share exactly: a place is used iff
// with it one more job can be placed than with all places before it.
func TestSharesAreThoseOfTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		got := demand.Attribute(f.classes, f.pools, match)
		want := map[string]demand.PoolShare{}
		for _, p := range f.pools {
			want[p.Pool] = demand.PoolShare{}
		}
		jobs, places := f.jobs(), f.places(demand.LaunchPlaces)
		for i, p := range places {
			if f.most(jobs, places[:i+1]) > f.most(jobs, places[:i]) {
				s := want[p.pool.Pool]
				switch p.stage {
				case demand.FreePlaces:
					s.Free++
				case demand.ComingPlaces:
					s.Coming++
				default:
					s.Launch++
				}
				want[p.pool.Pool] = s
			}
		}
		for name, share := range got.Pools {
			share.Beyond = 0
			require.Equal(t, want[name], share, name)
		}
		require.Len(t, got.Pools, len(want))
	})
}

// So does the order of urgency: a job is placed iff it can be in addition to all
// that come before it.
func TestPlacedJobsAreThoseOfTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		got := demand.Attribute(f.classes, f.pools, match)
		want := make([]int, len(f.classes))
		jobs, places := f.jobs(), f.places(demand.LaunchPlaces)
		for j, class := range jobs {
			if f.most(jobs[:j+1], places) > f.most(jobs[:j], places) {
				want[class]++
			}
		}
		require.Equal(t, want, placedPerClass(got, len(f.classes)))
	})
}

func TestAttributionIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		got := demand.Attribute(f.classes, f.pools, match)

		accounted := placedPerClass(got, len(f.classes))
		beyond := map[string]int{}
		for _, o := range got.Overflow {
			accounted[o.Class] += o.Jobs
			for i := range f.pools {
				if ok, _ := match(&f.pools[i].Capability, &f.classes[o.Class].Requirement); ok {
					beyond[f.pools[i].Pool] += o.Jobs
				}
			}
		}
		for _, u := range got.Unmatched {
			require.NotEmpty(t, u.Predicate)
			require.NotEmpty(t, u.Detail)
			accounted[u.Class] += u.Jobs
		}
		for i, c := range f.classes {
			require.Equal(t, c.Pending, accounted[i], "each job is accounted for exactly once")
		}

		byPool := map[string]demand.PoolShare{}
		for _, fl := range got.Flows {
			require.Positive(t, fl.Jobs)
			i := slices.IndexFunc(f.pools, func(s demand.Supply) bool { return s.Pool == fl.Pool })
			ok, why := match(&f.pools[i].Capability, &f.classes[fl.Class].Requirement)
			require.True(t, ok, why)
			s := byPool[fl.Pool]
			switch fl.Stage {
			case demand.FreePlaces:
				s.Free += fl.Jobs
			case demand.ComingPlaces:
				s.Coming += fl.Jobs
			default:
				s.Launch += fl.Jobs
			}
			byPool[fl.Pool] = s
		}
		for _, p := range f.pools {
			share := got.Pools[p.Pool]
			require.Equal(t, beyond[p.Pool], share.Beyond, "each pool that could take them shows the jobs left over")
			share.Beyond = 0
			require.Equal(t, byPool[p.Pool], share, "flows and shares agree")
			require.LessOrEqual(t, share.Free, p.Free)
			require.LessOrEqual(t, share.Coming, p.Booting+p.Draining)
			require.LessOrEqual(t, share.Launch, p.Launchable)
		}
		require.True(t, slices.IsSortedFunc(got.Flows, func(a, b demand.Flow) int {
			return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Stage, b.Stage))
		}))
	})
}

// I3: what is on its way is never asked for again, in any pool.
func TestOneMoreBootingPlaceNeverRaisesLaunches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		if len(f.pools) == 0 {
			return
		}
		before := demand.Attribute(f.classes, f.pools, match)
		f.pools[rapid.IntRange(0, len(f.pools)-1).Draw(t, "booting in")].Booting++
		after := demand.Attribute(f.classes, f.pools, match)
		for name, share := range after.Pools {
			require.LessOrEqual(t, share.Launch, before.Pools[name].Launch, name)
		}
	})
}

func TestOrderOfPoolsHasNoMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		want := demand.Attribute(f.classes, f.pools, match)
		require.Equal(t, want, demand.Attribute(f.classes, f.pools, match), "equal input, equal output")
		shuffled := rapid.Permutation(f.pools).Draw(t, "shuffled")
		require.Equal(t, want, demand.Attribute(f.classes, shuffled, match))
	})
}

// A class in several entries of one age and urgency is as good as in one.
func TestSplittingAClassChangesNoShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		var split []demand.Class
		for _, c := range f.classes {
			first := c
			first.Pending = rapid.IntRange(0, c.Pending).Draw(t, "first part")
			c.Pending -= first.Pending
			split = append(split, first, c)
		}
		require.Equal(t, demand.Attribute(f.classes, f.pools, match).Pools, demand.Attribute(split, f.pools, match).Pools)
	})
}
