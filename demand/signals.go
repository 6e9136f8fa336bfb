package demand

import (
	"bytes"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// Runners is the live machines of one capability. A capability without a machine
// belongs in the list too: its waiting jobs are what wakes a pool from zero.
type Runners struct {
	Capability spillway.Capability
	Live       int // machines, not tokens
}

// Signals returns one signal per distinct fingerprint of runners, in the order of
// the fingerprints. A job counts for every fingerprint that can take it: signals
// are for showing and for runners; what a pool is scaled by is [Attribute].
func Signals(classes []Class, runners []Runners, match Matcher, at time.Time) []spillway.Signal {
	live := make(map[spillway.Fingerprint]int, len(runners))
	out := make([]spillway.Signal, 0, len(runners))
	distinct := make([]*spillway.Capability, 0, len(runners)) // of each signal
	for i := range runners {
		fp := runners[i].Capability.Fingerprint()
		if _, known := live[fp]; !known {
			out = append(out, spillway.Signal{Fingerprint: fp})
			distinct = append(distinct, &runners[i].Capability)
		}
		live[fp] += max(0, runners[i].Live)
	}
	jobs := eligibleJobs(classes, distinct, match)
	for i, s := range out {
		out[i] = spillway.NewSignal(s.Fingerprint, jobs[i], live[s.Fingerprint], at)
	}
	slices.SortFunc(out, func(a, b spillway.Signal) int { return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:]) })
	return out
}

// eligibleJobs returns the waiting jobs that each of the capabilities can take.
func eligibleJobs(classes []Class, capabilities []*spillway.Capability, match Matcher) []int {
	jobs := make([]int, len(capabilities))
	index := NewIndex(len(capabilities), func(i int) *spillway.Capability { return capabilities[i] })
	for i := range classes {
		if classes[i].Pending <= 0 {
			continue
		}
		for _, k := range index.Candidates(&classes[i].Requirement) {
			if ok, _ := match(capabilities[k], &classes[i].Requirement); ok {
				jobs[k] += classes[i].Pending
			}
		}
	}
	return jobs
}
