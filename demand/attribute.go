package demand

import (
	"cmp"
	"slices"

	"github.com/spillway-ci/spillway"
)

// Matcher says whether a runner of capability c may take a job that needs r, and
// names the predicate that failed if not. It must be a pure function of its
// arguments, must not keep or change them, and must answer alike for
// capabilities of equal fingerprint. It must refuse a requirement with a tag that
// the capability lacks, and one without tags where the capability does not take
// such jobs: it isn't even asked about most of those.
type Matcher func(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string)

// Attribute gives each pending job to one pool, so that it is demand for that
// pool and no other.
//
// Places are added to one residual network stage by stage, and within a stage
// pool by pool (priority, then cost per job, then name). After each addition the
// flow is augmented without a reset: a job placed earlier may be moved to
// another pool to make room, but is never dropped. From that follows:
//
//   - the jobs placed are as many as any placement could place (maximum flow);
//   - those on free places are as many as free places alone could hold, and only
//     jobs that neither free nor coming places hold cause launches;
//   - one more booting instance never raises any pool's launches;
//   - where places are short, the jobs left over are the least urgent ones
//     (priority, then age), whatever they need.
//
// A job that has waited for less than a pool's Supply.SpillAfter is first placed as if
// pools of lower priority did not exist; only what then finds no place spills over, to the
// next pool that it waits for at most, and so on. The
// second and third of the above hold for the jobs that need not wait.
//
// Entries whose jobs wait for admission (Class.Unadmitted) come after all others, and
// get free and coming places only.
//
// The result depends on the values given only: the order of pools has no meaning.
func Attribute(classes []Class, pools []Supply, match Matcher) Attribution {
	if anyUnadmitted(classes) {
		return withUnadmitted(classes, pools, match)
	}
	if spills := spillTimes(pools); len(spills) > 0 {
		parts, of := splitByAge(classes, spills)
		return attribute(parts, pools, match).fold(of)
	}
	return attribute(classes, pools, match)
}

// attribute is Attribute for entries whose jobs are of one age.
func attribute(classes []Class, pools []Supply, match Matcher) Attribution {
	pools = inOrder(pools)
	e := newEligibility(classes, pools, match)
	n := newNetwork(e, classes, pools)
	for stage := range Stage(numberOfStage) {
		for p := range pools {
			n.addPlaces(p, pools[p].places(stage))
		}
	}
	for level := 1; level <= len(e.levels) && n.waiting > 0; level++ {
		n.spill(level, pools)
	}
	a := Attribution{Pools: make(map[string]PoolShare, len(pools))}
	a.Flows = placements(n, pools, a.Pools)
	a.Unmatched, a.Overflow = leftOver(n, e, classes, pools, match)
	showBeyond(a.Overflow, e, pools, a.Pools)
	return a
}

// places is what s adds to the network in a stage [jobs].
func (s *Supply) places(stage Stage) int {
	switch {
	case stage == FreePlaces:
		return max(0, s.Free)
	case stage == ComingPlaces:
		return max(0, s.Booting) + max(0, s.Draining)
	case s.CooledOff:
		return 0
	default:
		return max(0, s.Launchable)
	}
}

// inOrder returns pools in the order in which their places are added.
func inOrder(pools []Supply) []Supply {
	order := make([]int, len(pools)) // an entry is large to be moved about
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &pools[i], &pools[j]
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.CostPerJob, b.CostPerJob),
			cmp.Compare(a.Pool, b.Pool),
		)
	})
	sorted := make([]Supply, len(pools))
	for i, at := range order {
		sorted[i] = pools[at]
	}
	return sorted
}

// Less is the order in which class entries are served: the most urgent first,
// then the one with the oldest job, then by id so that the order is total.
func (c *Class) Less(o *Class) bool { return c.compare(o) < 0 }

func (c *Class) compare(o *Class) int {
	return cmp.Or(
		cmp.Compare(c.Priority, o.Priority),
		c.Oldest.Compare(o.Oldest),
		cmp.Compare(c.ID, o.ID),
	)
}

// compareFairly is the order in which a pool that shares fairly serves class entries.
func (c *Class) compareFairly(o *Class) int {
	return cmp.Or(cmp.Compare(c.Priority, o.Priority), cmp.Compare(c.Share, o.Share), c.compare(o))
}

// inOrderOf returns the indices of classes in an order.
func inOrderOf(classes []Class, compare func(c, o *Class) int) []int {
	order := make([]int, len(classes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(&classes[i], &classes[j]) })
	return order
}

// placements turns the network's flow between groups and pools into flows of
// class entries. Better stages are handed out first and the most urgent class
// takes first, so that an urgent job isn't told to wait for a launch while a less
// urgent one of the same pool has the free place.
func placements(n *network, pools []Supply, shares map[string]PoolShare) []Flow {
	inflow := n.inflow()
	waits := n.classQueues()
	var flows []Flow
	for stage := range Stage(numberOfStage) {
		for p := range pools {
			jobs := min(pools[p].places(stage), total(inflow[p]))
			share := shares[pools[p].Pool]
			share.add(stage, jobs)
			shares[pools[p].Pool] = share
			for jobs > 0 {
				from := waits.mostUrgent(n.orderOf[p], inflow[p])
				class, k := waits.take(n.orderOf[p], from.group, min(jobs, from.jobs))
				from.jobs -= k
				jobs -= k
				flows = append(flows, Flow{Class: class, Pool: pools[p].Pool, Stage: stage, Jobs: k})
			}
		}
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Stage, b.Stage))
	})
	return flows
}

func (s *PoolShare) add(stage Stage, jobs int) {
	switch stage {
	case FreePlaces:
		s.Free += jobs
	case ComingPlaces:
		s.Coming += jobs
	default:
		s.Launch += jobs
	}
}

// leftOver reports the jobs that were not placed, by class entry.
func leftOver(n *network, e *eligibility, classes []Class, pools []Supply, match Matcher) ([]Unmatched, []Overflow) {
	var unmatched []Unmatched
	var overflow []Overflow
	for i := range classes {
		switch left := n.left[i]; {
		case left == 0:
		case e.groupOf[i] == noGroup:
			unmatched = append(unmatched, diagnose(i, left, &classes[i].Requirement, pools, e, match))
		default:
			overflow = append(overflow, Overflow{Class: i, Jobs: left})
		}
	}
	return unmatched, overflow
}

// showBeyond adds the overflow to the share of each pool that could take it.
func showBeyond(overflow []Overflow, e *eligibility, pools []Supply, shares map[string]PoolShare) {
	if len(overflow) == 0 {
		return
	}
	byGroup := make([]int, e.groups)
	for _, o := range overflow {
		byGroup[e.groupOf[o.Class]] += o.Jobs
	}
	beyond := make([]int, len(e.takes)) // of each capability
	for k := range beyond {
		for g := range e.takes[k].all {
			beyond[k] += byGroup[g]
		}
	}
	for p := range pools {
		share := shares[pools[p].Pool]
		share.Beyond = beyond[e.capabilityOf[p]]
		shares[pools[p].Pool] = share
	}
}
