package spillway

import (
	"errors"
	"math"
	"time"
)

// Limits on pools.
const (
	MaxPools              = 5_000
	MaxPoolNameBytes      = 63
	MaxCapacityPerInst    = 1_000 // jobs
	MaxInstancesPerPool   = 10_000
	MaxPoolPriority       = 1_000
	MaxSpillAfter         = 24 * time.Hour
	MinSignalInterval     = time.Second // a signal for one fingerprint is published at most this often
	DefaultHeartbeatEvery = 15 * time.Second
	// SilentAfter is three heartbeats: a machine silent for longer gets no new job
	// and covers no demand, but still counts for max and cost.
	SilentAfter = 45 * time.Second
)

// Pool is what one policy scales: one capability, one provider group, one
// priority. The policy itself is scaler/policy's.
type Pool struct {
	Name                string
	Capability          Capability
	Priority            int // 0 first
	CapacityPerInstance int // jobs that one instance runs at once, ≥ 1
	MaxUses             int // jobs that one instance takes in its life; 0 = no limit
	CostPerJob          float64
	// SpillAfter is how long a job that the pool could take waits for it, while it has
	// room to grow, before a pool of lower priority may take the job; 0 = not at all.
	SpillAfter time.Duration
	// LeastWait is how long a job waits, whatever other pools have, before this pool may
	// take it; 0 = not at all.
	LeastWait time.Duration
	// StartWithin is how long a machine may take to start a job that it has accepted: on
	// top of the job's time limit. 0 = at once, as machines do that run jobs themselves.
	StartWithin time.Duration
	Provider    string // name of the provider in the config
	Group       string // the provider's object behind the pool
}

// Validate reports every rule that p breaks, joined; nil when there is none.
func (p *Pool) Validate() error {
	errs := []error{p.Capability.Validate()}
	if !PoolName(p.Name) {
		errs = append(errs, invalidf("pool name %.80q: use 1 to %d of a-z, 0-9, - and _, beginning with a letter or digit", p.Name, MaxPoolNameBytes))
	}
	if p.CapacityPerInstance < 1 || p.CapacityPerInstance > MaxCapacityPerInst {
		errs = append(errs, invalidf("capacity_per_instance %d: use 1 to %d jobs", p.CapacityPerInstance, MaxCapacityPerInst))
	}
	if p.Priority < 0 || p.Priority > MaxPoolPriority {
		errs = append(errs, invalidf("priority %d: use 0 (first) to %d", p.Priority, MaxPoolPriority))
	}
	if p.MaxUses < 0 {
		errs = append(errs, invalidf("max_uses %d is negative", p.MaxUses))
	}
	if p.SpillAfter < 0 || p.SpillAfter > MaxSpillAfter {
		errs = append(errs, invalidf("spill_after %s: use 0 to %s", p.SpillAfter, MaxSpillAfter))
	}
	if p.LeastWait < 0 || p.LeastWait > MaxSpillAfter || p.StartWithin < 0 || p.StartWithin > MaxSpillAfter {
		errs = append(errs, invalidf("least_wait %s, start_within %s: use 0 to %s", p.LeastWait, p.StartWithin, MaxSpillAfter))
	}
	if !(p.CostPerJob >= 0) || math.IsInf(p.CostPerJob, 0) { // written so that NaN is refused too
		errs = append(errs, invalidf("cost_per_job %g: use 0 or more", p.CostPerJob))
	}
	return errors.Join(errs...)
}

// PoolName reports whether s can name a pool: it becomes a metric label, a
// store key and an argument of the command line.
func PoolName(s string) bool {
	if s == "" || len(s) > MaxPoolNameBytes || s[0] == '-' || s[0] == '_' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Signal is demand published per fingerprint, for runners and for people. The
// scaler never decides by the ratio: it is 0 for a pool at zero, however many
// jobs wait.
type Signal struct {
	Fingerprint     Fingerprint
	TotalJobs       int     // pending jobs of every class that the fingerprint can take
	TotalRunners    int     // live machines, not tokens
	DemandPerRunner float64 // TotalJobs ÷ TotalRunners; 0 without runners
	At              time.Time
}

// NewSignal computes the ratio.
func NewSignal(fp Fingerprint, jobs, runners int, at time.Time) Signal {
	s := Signal{Fingerprint: fp, TotalJobs: jobs, TotalRunners: runners, At: at}
	if runners > 0 {
		s.DemandPerRunner = float64(jobs) / float64(runners)
	}
	return s
}
