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
	for i := range runners {
		fp := runners[i].Capability.Fingerprint()
		if _, known := live[fp]; !known {
			out = append(out, spillway.Signal{Fingerprint: fp, TotalJobs: eligibleJobs(classes, &runners[i].Capability, match)})
		}
		live[fp] += max(0, runners[i].Live)
	}
	for i, s := range out {
		out[i] = spillway.NewSignal(s.Fingerprint, s.TotalJobs, live[s.Fingerprint], at)
	}
	slices.SortFunc(out, func(a, b spillway.Signal) int { return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:]) })
	return out
}

func eligibleJobs(classes []Class, c *spillway.Capability, match Matcher) int {
	jobs := 0
	for i := range classes {
		if classes[i].Pending <= 0 {
			continue
		}
		if ok, _ := match(c, &classes[i].Requirement); ok {
			jobs += classes[i].Pending
		}
	}
	return jobs
}
