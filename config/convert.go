package config

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// Lifecycle is the times of a pool's machines.
type Lifecycle struct {
	IdleTime        time.Duration // idle for this long before an instance may go
	MaxUses         int           // jobs before an instance is replaced; 0 = no limit
	RegisterTimeout time.Duration // from launch to registration
	SilentTimeout   time.Duration // silent for this long before it may be removed
	SilentAfter     time.Duration // silent for this long: no new job, covers no demand
	SecondLook      time.Duration // from the drain's acknowledgement to the second look
	MaxAge          time.Duration // since its launch, before an instance takes no more jobs; 0 = no limit
	DrainTimeout    time.Duration // what an instance that its group ends has for its jobs; 0 = as long as the group waits
}

// SpillwayPools are the pools in the order of the file.
func (c *Config) SpillwayPools() []spillway.Pool {
	pools := make([]spillway.Pool, 0, len(c.Pools))
	for i := range c.Pools {
		p := c.Pools[i].spillway()
		if c.Pools[i].CapabilityFromGitLab() {
			p.Capability = unknownCapability
		}
		if c.Pools[i].Mode != ModeOrchestrate && c.GitLab != nil {
			p.Capability.Origin = c.GitLab.URL
		}
		pools = append(pools, p)
	}
	return pools
}

// unknownCapability is that of a pool whose runners' capability GitLab has not told
// yet: a valid one that takes no job, since no project has that id.
var unknownCapability = spillway.Capability{Tags: []string{"(asked of GitLab)"}, Type: spillway.ProjectType, Projects: []int64{math.MaxInt64}}

// RulesOf are the policy and the times of one pool; zero for one that there isn't.
func (c *Config) RulesOf(name string) (policy.Policy, Lifecycle) {
	p := c.pool(name)
	if p == nil {
		return policy.Policy{}, Lifecycle{}
	}
	return p.policy(), c.lifecycle(p)
}

// Pool returns the pool of that name.
func (c *Config) Pool(name string) (Pool, bool) {
	if p := c.pool(name); p != nil {
		return *p, true
	}
	return Pool{}, false
}

// pool is the pool of that name, nil without one. There may be thousands, and each is
// large: none is copied on the way.
func (c *Config) pool(name string) *Pool {
	for i := range c.Pools {
		if c.Pools[i].Name == name {
			return &c.Pools[i]
		}
	}
	return nil
}

// ReplicaName is the replica's name: the configured one, else this host's name
// and process, which no two replicas share at one time.
func (c *Config) ReplicaName() string {
	if c.Replica != "" {
		return c.Replica
	}
	host, err := os.Hostname()
	if err != nil {
		host = "replica" // the process number still tells replicas of one host apart
	}
	return fmt.Sprintf("%s-%d", regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-"), os.Getpid())
}

// capacity is how many jobs one instance runs at once. One that takes at most so
// many in its life never runs more at once.
func (p *Pool) capacity() int {
	if uses := p.maxUses(); uses > 0 {
		return min(p.CapacityPerInstance, uses)
	}
	return p.CapacityPerInstance
}

// maxUses is policy.max_uses where somebody counts: of what GitLab hands out to the
// runners neither their metrics nor a sidecar tell how many there ever were on an
// instance, over its runner's restarts.
func (p *Pool) maxUses() int {
	if p.Mode == ModeObserve {
		return 0
	}
	return p.Policy.MaxUses
}

func (c *Config) lifecycle(p *Pool) Lifecycle {
	return Lifecycle{
		IdleTime:        p.Policy.IdleTime,
		MaxUses:         p.maxUses(),
		RegisterTimeout: p.Policy.RegisterTimeout,
		SilentTimeout:   p.Policy.SilentTimeout,
		SilentAfter:     c.Timeouts.Silent,
		SecondLook:      SecondLook,
		MaxAge:          p.Policy.MaxAge,
		DrainTimeout:    p.Policy.DrainTimeout,
	}
}

func (p *Pool) spillway() spillway.Pool {
	return spillway.Pool{
		Name:                p.Name,
		Capability:          p.Capability.spillway(),
		Priority:            p.Priority,
		CapacityPerInstance: p.capacity(),
		CostPerJob:          p.CostPerJob,
		SpillAfter:          p.SpillAfter,
		Provider:            p.Provider,
		Group:               p.Group,
		MaxUses:             p.maxUses(),
	}
}

func (c *Capability) spillway() spillway.Capability {
	return spillway.Capability{
		Tags:        c.Tags,
		RunUntagged: c.RunUntagged,
		Protected:   c.Protected,
		Type:        spillway.RunnerType(c.Type),
		Groups:      c.Groups,
		Projects:    c.Projects,
		Resources: spillway.Resources{
			MilliCPU:  c.Resources.MilliCPU,
			MemoryMiB: c.Resources.MemoryMiB,
			Features:  c.Resources.Features,
		},
	}
}

func (p *Pool) policy() policy.Policy {
	in := p.Policy.ScaleIn
	budget := in.PercentBudget
	if budget == DefaultPercentBudget {
		budget = 0 // the whole peak may go: policy's word for no limit
	}
	return policy.Policy{
		Need:                policy.Need(p.Policy.Need),
		Min:                 p.Policy.Min,
		Max:                 p.Policy.Max,
		CapacityPerInstance: p.capacity(),
		IdleCount:           p.Policy.IdleCount,
		IdleFactor:          p.Policy.IdleFactor,
		IdleTime:            p.Policy.IdleTime,
		Tolerance:           p.Policy.Tolerance,
		Out: policy.Rules{
			Stabilization: p.Policy.ScaleOut.Stabilization,
			Cooldown:      p.Policy.ScaleOut.Cooldown,
			StepLimit:     p.Policy.ScaleOut.StepLimit,
		},
		In:                 policy.Rules{Stabilization: in.Stabilization, Cooldown: in.Cooldown, StepLimit: in.StepLimit},
		MaxRemovalsPerTick: in.MaxRemovalsPerTick,
		InPercentBudget:    budget,
		Step:               p.Policy.Step,
		StepWait:           p.Policy.StepWait,
		Paused:             p.Policy.Paused,
	}
}
