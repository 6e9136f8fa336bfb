package demand

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
)

// obedient is a matcher as Matcher asks for.
func obedient(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string) {
	switch {
	case c.Protected && !r.Protected:
		return false, "protected"
	case !c.RunUntagged && len(r.Tags) == 0:
		return false, "untagged"
	case countMissing(c.Tags, r.Tags) > 0:
		return false, "tags"
	case c.Type == spillway.ProjectType && !slices.Contains(c.Projects, r.Project):
		return false, "scope"
	case r.Resources.MemoryMiB > c.Resources.MemoryMiB:
		return false, "resources"
	case c.Resources.MilliCPU < r.Resources.MilliCPU:
		return false, "a predicate that demand does not know"
	}
	return true, ""
}

func drawTags(t *rapid.T, label string) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 4).Draw(t, label) // also twice
}

func drawPools(t *rapid.T) []Supply {
	pools := make([]Supply, rapid.IntRange(0, 6).Draw(t, "pools"))
	for i := range pools {
		pools[i] = Supply{Pool: fmt.Sprint("p", i), Capability: spillway.Capability{
			Tags: drawTags(t, "has"), RunUntagged: rapid.Bool().Draw(t, "untagged"), Protected: rapid.Bool().Draw(t, "protected"),
			Resources: spillway.Resources{MemoryMiB: rapid.Int64Range(0, 1).Draw(t, "has MiB"), MilliCPU: rapid.Int64Range(0, 1).Draw(t, "has mCPU")},
		}}
		if rapid.Bool().Draw(t, "of a project") {
			pools[i].Capability.Type, pools[i].Capability.Projects = spillway.ProjectType, []int64{1}
		}
	}
	return pools
}

func drawClasses(t *rapid.T) []Class {
	classes := make([]Class, rapid.IntRange(0, 8).Draw(t, "classes"))
	for i := range classes {
		r := spillway.Requirement{
			Tags: drawTags(t, "needs"), Protected: rapid.Bool().Draw(t, "on protected ref"), Project: rapid.Int64Range(0, 2).Draw(t, "project"),
			Resources: spillway.Resources{MemoryMiB: rapid.Int64Range(0, 1).Draw(t, "MiB"), MilliCPU: rapid.Int64Range(0, 1).Draw(t, "mCPU")},
		}
		classes[i] = Class{ID: r.Class(), Requirement: r, Pending: rapid.IntRange(-1, 3).Draw(t, "pending")}
	}
	return classes
}

// What the index leaves out must make no difference: everybody is asked here.
func TestTheIndexLeavesOutNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools, classes := drawPools(t), drawClasses(t)
		e := newEligibility(classes, pools, obedient)
		for i := range classes {
			c, g := &classes[i], e.groupOf[i]
			for p := range pools {
				ok, _ := obedient(&pools[p].Capability, &c.Requirement)
				require.Equal(t, ok && c.Pending > 0, g != noGroup && e.takes[e.capabilityOf[p]].has(g), "%+v in %+v", c, pools[p])
			}
			index := NewIndex(len(e.firstPool), func(k int) *spillway.Capability { return &pools[e.firstPool[k]].Capability })
			candidates, tagged := index.Candidates(&c.Requirement), index.withTags(&c.Requirement)
			require.True(t, slices.IsSorted(candidates))
			require.True(t, slices.IsSorted(tagged))
			for k, p := range e.firstPool {
				has := countMissing(pools[p].Capability.Tags, c.Requirement.Tags) == 0
				if len(c.Requirement.Tags) == 0 {
					has = pools[p].Capability.RunUntagged
				}
				require.Equal(t, has, slices.Contains(tagged, k))
				require.True(t, !has || slices.Contains(candidates, k))
			}
		}
	})
}

func TestSignalsAreThoseOfAskingEveryPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools, classes := drawPools(t), drawClasses(t)
		var runners []Runners
		want := map[spillway.Fingerprint]spillway.Signal{}
		live := map[spillway.Fingerprint]int{}
		at := time.Unix(1, 0)
		for p := range pools {
			c := pools[p].Capability
			runners = append(runners, Runners{Capability: c, Live: p})
			live[c.Fingerprint()] += p
			jobs := 0
			for i := range classes {
				if ok, _ := obedient(&c, &classes[i].Requirement); ok {
					jobs += max(0, classes[i].Pending)
				}
			}
			want[c.Fingerprint()] = spillway.NewSignal(c.Fingerprint(), jobs, live[c.Fingerprint()], at)
		}
		got := Signals(classes, runners, obedient, at)
		require.Len(t, got, len(want))
		for _, s := range got {
			require.Equal(t, want[s.Fingerprint], s)
		}
	})
}

func TestTheNearestPoolIsThatOfMeasuringAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools, classes := drawPools(t), drawClasses(t)
		e := newEligibility(classes, pools, obedient)
		for i := range classes {
			r := &classes[i].Requirement
			var want *Supply
			var least distance
			for p := range pools {
				var memory spillway.Capability
				if d := measure(&pools[p].Capability, &memory, r, obedient); want == nil || d.nearer(least) {
					want, least = &pools[p], d
				}
			}
			got, best := e.nearest(r, pools, obedient)
			require.Equal(t, least, best)
			require.Same(t, want, got)
		}
	})
}
