package router

import (
	"cmp"
	"slices"

	"github.com/spillway-ci/spillway"
)

// Predicate names one condition of [Match]. The set is closed: it is a metric
// label and the answer of why-not.
type Predicate string

// The predicates, in the order in which they are looked at. The first one that
// fails is the verdict, so that equal questions get equal answers.
const (
	PredicateNone      Predicate = ""          // none failed
	PredicateOrigin    Predicate = "origin"    // a runner takes jobs of its own queue or GitLab only
	PredicateProtected Predicate = "protected" // a protected runner takes jobs of protected refs only
	PredicateUntagged  Predicate = "untagged"  // a job without tags needs a runner that takes such jobs
	PredicateTags      Predicate = "tags"      // every tag of the job is a tag of the runner
	PredicateScope     Predicate = "scope"     // the job's project is in the runner's scope
	PredicateResources Predicate = "resources" // the runner offers what the job asks for
)

// Verdict says whether a runner can take a job and, if not, why.
type Verdict struct {
	Predicate Predicate // the first that failed
	Detail    string    // a sentence for people; only [Explain] fills it in
}

// OK reports whether the runner can take the job.
func (v Verdict) OK() bool { return v.Predicate == PredicateNone }

// Match says whether a runner with capability c can take a job with requirement
// r. It is asked for every pair of job class and pool, so it builds no sentence;
// use [Explain] for that. Inputs in normal form cost no allocation.
func Match(c *spillway.Capability, r *spillway.Requirement) Verdict {
	switch {
	case !sameOrigin(c.Origin, r.Origin):
		return Verdict{Predicate: PredicateOrigin}
	case c.Protected && !r.Protected:
		return Verdict{Predicate: PredicateProtected}
	case len(r.Tags) == 0 && !c.RunUntagged:
		return Verdict{Predicate: PredicateUntagged}
	case !subset(r.Tags, c.Tags):
		return Verdict{Predicate: PredicateTags}
	case !inScope(c, r):
		return Verdict{Predicate: PredicateScope}
	case !suffices(&c.Resources, &r.Resources):
		return Verdict{Predicate: PredicateResources}
	default:
		return Verdict{}
	}
}

// Fits is [Match] in the shape in which demand.Attribute asks.
func Fits(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string) {
	v := Match(c, r)
	return v.OK(), string(v.Predicate)
}

// sameOrigin reports whether a runner of one origin takes the jobs of another: see
// [spillway.CellOrigin].
func sameOrigin(runner, job string) bool {
	if runner == spillway.CellOrigin || job == spillway.CellOrigin {
		return runner+job == spillway.CellOrigin // the other one is our own queue
	}
	return runner == job
}

// inScope: a job without a project is in the scope of instance runners only.
func inScope(c *spillway.Capability, r *spillway.Requirement) bool {
	switch c.Type {
	case spillway.GroupType:
		return overlap(r.Groups, c.Groups)
	case spillway.ProjectType:
		return r.Project != 0 && contains(ordered(c.Projects), r.Project)
	case spillway.InstanceType, "":
		return true
	default:
		return false // an unknown type serves nobody
	}
}

func suffices(has, wants *spillway.Resources) bool {
	return has.MilliCPU >= wants.MilliCPU &&
		has.MemoryMiB >= wants.MemoryMiB &&
		subset(wants.Features, has.Features)
}

// subset reports whether every element of a is in b.
func subset[T cmp.Ordered](a, b []T) bool {
	if len(a) == 0 {
		return true
	}
	b = ordered(b)
	for _, v := range a {
		if !contains(b, v) {
			return false
		}
	}
	return true
}

// overlap reports whether a and b share an element.
func overlap[T cmp.Ordered](a, b []T) bool {
	if len(a) == 0 {
		return false
	}
	b = ordered(b)
	return slices.ContainsFunc(a, func(v T) bool { return contains(b, v) })
}

// contains looks v up in a sorted list: a scope may have ten thousand entries.
func contains[T cmp.Ordered](sorted []T, v T) bool {
	_, found := slices.BinarySearch(sorted, v)
	return found
}

// ordered returns s sorted, and s itself if it already is.
func ordered[T cmp.Ordered](s []T) []T {
	if slices.IsSorted(s) {
		return s
	}
	return slices.Sorted(slices.Values(s))
}
