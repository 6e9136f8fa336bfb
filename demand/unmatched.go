package demand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-ci/spillway"
)

// What Unmatched.Predicate may say beyond the names of the matcher's predicates.
const (
	NoPool         = "no_pool"           // there is no pool at all
	NoPoolWithTags = "no_pool_with_tags" // the matcher's "tags", seen over all pools
)

// maxTagsShown bounds the tags in a sentence [tags].
const maxTagsShown = 5

// relaxation is one predicate of the matcher and the change of a pool or job
// after which it holds. The order is by how far a pool is from taking the job
// without it, nearest first: more resources is a bigger machine of the same kind,
// other tags is another kind of runner.
type relaxation struct {
	predicate string
	relax     func(c *spillway.Capability, r *spillway.Requirement)
}

var relaxations = [...]relaxation{
	{"resources", func(c *spillway.Capability, r *spillway.Requirement) { c.Resources = r.Resources }},
	{"protected", func(c *spillway.Capability, _ *spillway.Requirement) { c.Protected = false }},
	{"scope", func(c *spillway.Capability, _ *spillway.Requirement) {
		c.Type, c.Groups, c.Projects = spillway.InstanceType, nil, nil
	}},
	{"untagged", func(c *spillway.Capability, _ *spillway.Requirement) { c.RunUntagged = true }},
	{"tags", func(c *spillway.Capability, r *spillway.Requirement) { c.Tags = r.Tags }},
	{"origin", func(c *spillway.Capability, r *spillway.Requirement) { c.Origin = r.Origin }},
}

// distance is how far a pool is from taking a job: the predicates that fail, as
// bits in the order of relaxations, then the number of missing tags. Less is
// nearer.
type distance struct {
	failing     int
	missingTags int
	worst       string // the farthest failing predicate
}

func (d distance) nearer(o distance) bool {
	if d.failing != o.failing {
		return d.failing < o.failing
	}
	return d.missingTags < o.missingTags
}

// diagnose says why no pool takes a class. A matcher names only the first
// predicate that fails, which would hide that a protected pool has the very tags
// that every other pool lacks; so each predicate that fails is waived in turn
// until the pool would match, and the pool with the least waived is the nearest.
func diagnose(class, jobs int, r *spillway.Requirement, pools []Supply, e *eligibility, match Matcher) Unmatched {
	u := Unmatched{Class: class, Jobs: jobs, Predicate: NoPool, Detail: "there is no pool"}
	nearest, best := e.nearest(r, pools, match)
	if nearest == nil {
		return u
	}
	u.Pool, u.Predicate, u.Detail = nearest.Pool, best.worst, explain(nearest, r, best.worst)
	if u.Predicate == "tags" {
		u.Predicate = NoPoolWithTags
	}
	return u
}

// nearest returns the pool that is the least away from taking r; nil if there is
// none at all. Those that have r's tags are looked at first: no other is as near.
func (e *eligibility) nearest(r *spillway.Requirement, pools []Supply, match Matcher) (nearest *Supply, best distance) {
	var relaxed spillway.Capability
	look := func(k int) {
		p := &pools[e.firstPool[k]]
		if d := measure(&p.Capability, &relaxed, r, match); nearest == nil || d.nearer(best) {
			nearest, best = p, d
		}
	}
	if e.index != nil {
		for _, k := range e.index.withTags(r) {
			look(k)
		}
		if nearest != nil && best.failing < leastTagged {
			return nearest, best
		}
		nearest = nil
	}
	for k := range e.firstPool {
		look(k)
		if e.index != nil && best == oneTagAway {
			break // none is nearer, and of equals the first counts
		}
	}
	return nearest, best
}

// leastTagged is the least distance with a predicate on tags among those that fail;
// oneTagAway is the least for a job with tags where no pool has them all.
const leastTagged = 1 << 3

var oneTagAway = distance{failing: 1 << 4, missingTags: 1, worst: "tags"}

// measure uses relaxed as its memory.
func measure(c, relaxed *spillway.Capability, r *spillway.Requirement, match Matcher) distance {
	*relaxed = *c
	var d distance
	for range len(relaxations) + 1 { // each can fail once
		ok, predicate := match(relaxed, r)
		if ok {
			break
		}
		i := slices.IndexFunc(relaxations[:], func(x relaxation) bool { return x.predicate == predicate })
		if i < 0 { // a predicate that isn't known here: as far as can be
			return distance{failing: 1 << len(relaxations), worst: predicate}
		}
		if 1<<i > d.failing {
			d.worst = predicate
		}
		d.failing |= 1 << i
		if predicate == "tags" {
			d.missingTags = countMissing(c.Tags, r.Tags)
		}
		relaxations[i].relax(relaxed, r)
	}
	return d
}

// missing returns the tags of want that have lacks.
func missing(have, want []string) []string {
	var lacks []string
	for _, t := range want {
		if !slices.Contains(have, t) {
			lacks = append(lacks, t)
		}
	}
	return lacks
}

func countMissing(have, want []string) int {
	n := 0
	for _, t := range want {
		if !slices.Contains(have, t) {
			n++
		}
	}
	return n
}

// explain is the sentence for an operator: what to change on which pool.
func explain(s *Supply, r *spillway.Requirement, predicate string) string {
	switch predicate {
	case "tags":
		return explainTags(s, missing(s.Capability.Tags, r.Tags))
	case "untagged":
		return fmt.Sprintf("the job has no tags and pool %s, the nearest, takes tagged jobs only", s.Pool)
	case "protected":
		return fmt.Sprintf("the job is on an unprotected ref and pool %s, the nearest, takes protected jobs only", s.Pool)
	case "scope":
		return fmt.Sprintf("project %d is not in the scope of pool %s, the nearest", r.Project, s.Pool)
	case "origin":
		return fmt.Sprintf("pool %s, the nearest, takes jobs of %s, and the job is handed out by %s", s.Pool, originName(s.Capability.Origin), originName(r.Origin))
	case "resources":
		return fmt.Sprintf("pool %s, the nearest, offers each job less than it asks for", s.Pool)
	default:
		return fmt.Sprintf("pool %s, the nearest, fails on %s", s.Pool, predicate)
	}
}

func originName(origin string) string {
	switch origin {
	case "":
		return "Spillway's own queue"
	case spillway.CellOrigin:
		return "another cell"
	default:
		return origin
	}
}

func explainTags(s *Supply, lacks []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s, the nearest, lacks ", s.Pool)
	for i, t := range lacks[:min(len(lacks), maxTagsShown)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", t)
	}
	if more := len(lacks) - maxTagsShown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, t := range lacks {
		i := slices.IndexFunc(s.Capability.Tags, func(have string) bool { return strings.EqualFold(have, t) })
		if i >= 0 {
			fmt.Fprintf(&b, " (%q differs from its %q only in case)", t, s.Capability.Tags[i])
			break
		}
	}
	return b.String()
}
