package sim

import (
	"time"

	"github.com/spillway-ci/spillway"
)

// Fact implements scenario.Facts. Paths were checked when the scenario was read.
func (r *Result) Fact(path []string, at time.Duration) float64 {
	switch path[0] {
	case "busy_kills":
		return float64(r.BusyKills)
	case "forced_kills":
		return float64(r.ForcedKills)
	case "duration_s":
		return float64(r.Duration)
	case "decisions":
		return float64(len(r.Decisions))
	case "calls":
		return float64(r.countCalls("", path[1:]))
	case "unmatched":
		return float64(r.Unmatched[path[1]])
	case "invariants":
		return float64(r.Invariants[path[1]])
	case "failures":
		return float64(r.Failures[path[1]])
	case "controller":
		c := r.Controllers[path[1]]
		return float64(map[string]int{"asked": c.Asked, "allowed": c.Allowed, "refused": c.Refused}[path[2]])
	case "handed":
		h := r.Handed[path[1]]
		return float64(map[string]int{"over": h.Over, "ended": h.Ended, "back": h.Back}[path[2]])
	case "cell":
		return r.Cells[path[1]].Fact(path[2:], at)
	case "job":
		return r.oneJobFact(path[1], path[2])
	case "jobs":
		return r.jobFact(path[1:], at)
	default:
		return r.poolFact(path[1], path[2:], at)
	}
}

// countCalls counts those of a pool (empty = any) and of an operation, if one is
// named.
func (r *Result) countCalls(pool string, op []string) int {
	n := 0
	for _, c := range r.Calls {
		if (pool == "" || c.Pool == pool) && (len(op) == 0 || c.Op == op[0]) {
			n++
		}
	}
	return n
}

func (r *Result) jobFact(path []string, at time.Duration) float64 {
	if s := r.rec.series[path[0]]; s != nil && at >= 0 {
		return float64(s.at(epoch.Add(at)))
	}
	switch path[0] {
	case "submitted":
		return float64(r.Jobs.Submitted)
	case "completed":
		return float64(r.Jobs.Completed)
	case "failed":
		return float64(r.Jobs.Failed)
	case "rejected":
		return float64(r.Jobs.Rejected)
	case "canceled":
		return float64(r.Jobs.Canceled)
	case "pending":
		return float64(r.Jobs.Pending)
	case "running":
		return float64(r.Jobs.Running)
	case "unmatched":
		return float64(r.Jobs.Unmatched)
	}
	switch path[1] { // wait
	case "p50":
		return float64(r.Jobs.Wait.P50)
	case "p95":
		return float64(r.Jobs.Wait.P95)
	default:
		return float64(r.Jobs.Wait.Max)
	}
}

// oneJobFact is about one job; 0 for one that was never submitted.
func (r *Result) oneJobFact(id, what string) float64 {
	j := r.rec.jobs[spillway.JobID(id)]
	if j == nil {
		return 0
	}
	switch what {
	case "wait":
		if j.startedAt.IsZero() {
			return 0
		}
		return j.startedAt.Sub(j.at).Seconds()
	case "starts":
		return float64(j.starts)
	case "reviews":
		return float64(j.reviews)
	}
	if string(j.state) == what {
		return 1
	}
	return 0
}

func (r *Result) poolFact(name string, path []string, at time.Duration) float64 {
	p, story := r.Pools[name], r.rec.pools[name]
	if story == nil {
		return 0 // a reload brings it, and the story ended before
	}
	switch path[0] {
	case "launches":
		return float64(p.Launches)
	case "removals":
		return float64(p.Removals)
	case "scale_calls":
		return float64(p.ScaleCalls)
	case "max_live":
		return float64(p.MaxLive)
	case "instance_seconds":
		return float64(p.InstanceSeconds)
	case "cost":
		return p.Cost
	case "limited_by":
		return float64(p.LimitedBy[path[1]])
	case "calls":
		return float64(r.countCalls(name, path[1:]))
	case "desired":
		return float64(story.desired.fact(path[1:], at))
	default:
		return float64(story.inService.fact(path[1:], at))
	}
}

// fact is the lowest, the highest, the number at a time, or the last one.
func (s *series) fact(which []string, at time.Duration) int {
	if len(s.points) == 0 {
		return 0
	}
	if len(which) == 0 && at >= 0 {
		return s.at(epoch.Add(at))
	}
	n := s.points[len(s.points)-1].n
	if len(which) == 0 {
		return n
	}
	for _, p := range s.points {
		if (which[0] == "min") == (p.n < n) && p.n != n {
			n = p.n
		}
	}
	return n
}
