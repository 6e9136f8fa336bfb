package session

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// faceIndex finds the pools that can take a job without asking each of a thousand.
// Pools of one fingerprint answer alike: one of them speaks for all.
type faceIndex struct {
	distinct []poolFace // by the order of the first pool of each
	index    *demand.Index
}

func newFaceIndex(pools map[string]poolFace, names []string) faceIndex {
	var x faceIndex
	seen := make(map[spillway.Fingerprint]bool, len(names))
	for _, name := range names {
		if face := pools[name]; !seen[face.fingerprint] {
			seen[face.fingerprint] = true
			x.distinct = append(x.distinct, face)
		}
	}
	x.index = demand.NewIndex(len(x.distinct), func(k int) *spillway.Capability { return &x.distinct[k].capability })
	return x
}

// eligibleJobs returns the pending jobs that each of the distinct pools can take.
func (x *faceIndex) eligibleJobs(counts []router.ClassCount) []int {
	jobs := make([]int, len(x.distinct))
	for i := range counts {
		c := &counts[i]
		if c.Pending == 0 {
			continue
		}
		for _, k := range x.index.Candidates(&c.Requirement) {
			if router.Match(&x.distinct[k].capability, &c.Requirement).OK() {
				jobs[k] += c.Pending
			}
		}
	}
	return jobs
}

// take reports whether some pool can take r.
func (x *faceIndex) take(r *spillway.Requirement) bool {
	for _, k := range x.index.Candidates(r) {
		if router.Match(&x.distinct[k].capability, r).OK() {
			return true
		}
	}
	return false
}
