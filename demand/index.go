package demand

import (
	"slices"

	"github.com/spillway-ci/spillway"
)

// Index narrows a list of capabilities down to those that a [Matcher] need be
// asked about. A fleet of a thousand pools and as many job classes is a million
// pairs, and a class's rarest tag leaves a few of them.
type Index struct {
	byTag    map[string][]int // the capabilities that have a tag, in ascending order
	untagged []int            // the capabilities that take jobs without tags, in ascending order
}

// NewIndex returns the index of the capabilities 0 … size−1. It keeps none of them.
func NewIndex(size int, capability func(i int) *spillway.Capability) *Index {
	x := &Index{byTag: make(map[string][]int, size)}
	for i := range size {
		c := capability(i)
		if c.RunUntagged {
			x.untagged = append(x.untagged, i)
		}
		for _, tag := range c.Tags {
			if list := x.byTag[tag]; len(list) == 0 || list[len(list)-1] != i { // a tag named twice is one tag
				x.byTag[tag] = append(list, i)
			}
		}
	}
	return x
}

// Candidates returns the capabilities that have r's rarest tag or, where r has no
// tags, those that take such jobs; in ascending order. A matcher has to be asked
// about each; any other can't take r. The list is the index's own: do not change it.
func (x *Index) Candidates(r *spillway.Requirement) []int {
	if len(r.Tags) == 0 {
		return x.untagged
	}
	rarest := x.byTag[r.Tags[0]]
	for _, tag := range r.Tags[1:] {
		if list := x.byTag[tag]; len(list) < len(rarest) {
			rarest = list
		}
	}
	return rarest
}

// withTags returns the capabilities that no predicate on tags keeps from taking r,
// in ascending order.
func (x *Index) withTags(r *spillway.Requirement) []int {
	list := slices.Clone(x.Candidates(r))
	for _, tag := range r.Tags {
		has := x.byTag[tag]
		list = slices.DeleteFunc(list, func(i int) bool {
			_, found := slices.BinarySearch(has, i)
			return !found
		})
	}
	return list
}
