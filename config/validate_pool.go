package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Limits of a pool's policy. Those of names, tags, priority, capacity and
// instances are package spillway's.
const (
	MaxIdleFactor = 10.0      // ten free instances for each busy one
	MaxUsesLimit  = 1_000_000 // jobs
	MinMaxAge     = time.Hour
	MinCountEvery = 10 * time.Second // clouds keep a metric's value for a minute as a rule
)

func (v *validator) pools() {
	c := v.config
	v.need(len(c.Pools) > 0, "pools", "there is no pool, so nothing would ever be scaled; name at least one")
	v.need(len(c.Pools) <= spillway.MaxPools, "pools", "%d pools, at most %d are allowed", len(c.Pools), spillway.MaxPools)
	if len(c.Pools) > spillway.MaxPools {
		return // what is wrong with each of them does not matter now
	}
	used := map[string]bool{}
	for i := range c.Pools {
		p, path := &c.Pools[i], fmt.Sprintf("pools[%d]", i)
		if p.Group == "" {
			p.Group = p.Name
		}
		used[p.Provider] = true
		v.pool(p, path)
		v.policy(&p.Policy, path+".policy")
	}
	v.spills()
	v.unique()
	v.tagCase()
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if !used[name] {
			v.warnf("providers."+name, "no pool uses this provider; its plugin would be started for nothing")
		}
	}
}

func (v *validator) pool(p *Pool, path string) {
	v.need(p.Name != "", path+".name", "a pool needs a name")
	v.need(p.Name == "" || spillway.PoolName(p.Name), path+".name",
		"%s cannot name a pool; use 1 to %d of a-z, 0-9, - and _, beginning with a letter or digit", quote(p.Name), spillway.MaxPoolNameBytes)
	v.mode(p, path)
	v.poolCapability(p, path+".capability")
	v.intBetween(p.Priority, 0, spillway.MaxPoolPriority, path+".priority")
	v.intBetween(p.CapacityPerInstance, 1, spillway.MaxCapacityPerInst, path+".capacity_per_instance")
	v.need(p.CostPerJob >= 0, path+".cost_per_job", "%g is negative; use 0 or more", p.CostPerJob)
	v.provider(p, path)
	v.count(p, path)
	if v.config.opts.ProviderOptional || !p.RunnerToken.IsZero() || p.Mode != ModeOrchestrate {
		return
	}
	if p.Policy.Min > 0 {
		v.warnf(path, "keeps at least %d instances, but no runner can register in it: set runner_token to {env: NAME} or {file: PATH}", p.Policy.Min)
	} else {
		v.warnf(path, "no runner can register in this pool: set runner_token to {env: NAME} or {file: PATH}")
	}
}

func (v *validator) intBetween(n, low, high int, path string) {
	v.need(low <= n && n <= high, path, "%d is out of range; use %d to %d", n, low, high)
}

func (v *validator) provider(p *Pool, path string) {
	if p.Provider == "" {
		v.need(v.config.opts.ProviderOptional, path+".provider", "a pool needs a provider; %s", list(slices.Collect(maps.Keys(v.config.Providers))))
		return
	}
	_, known := v.config.Providers[p.Provider]
	v.need(known || v.config.opts.ProviderOptional, path+".provider", "there is no provider %s; %s",
		quote(p.Provider), suggest(p.Provider, slices.Collect(maps.Keys(v.config.Providers))))
}

func (v *validator) count(p *Pool, path string) {
	c := p.Count
	if c == nil {
		return
	}
	path += ".count"
	if c.Prometheus != nil {
		v.prometheus(c, path)
	} else {
		if c.Provider == "" {
			c.Provider = p.Provider
		}
		_, known := v.config.Providers[c.Provider]
		v.need(known, path+".provider", "there is no provider %s; %s", quote(c.Provider), suggest(c.Provider, slices.Collect(maps.Keys(v.config.Providers))))
		v.need(c.Metric != "", path+".metric", "name a metric of the provider's config, or set prometheus")
	}
	if c.Every == 0 {
		c.Every = DefaultCountEvery
	}
	if c.Means == "" {
		c.Means = "jobs"
	}
	v.oneOf(c.Means, path+".means", "jobs", "instances")
	v.between(c.Every, MinCountEvery, MaxDuration, path+".every")
}

// capability trims the tags, since blanks around a tag in a file are never
// meant, and reports what package spillway says of the rest.
func (v *validator) capability(c *Capability, path string) {
	for i, tag := range c.Tags {
		if trimmed := strings.TrimSpace(tag); trimmed != tag {
			v.warnf(fmt.Sprintf("%s.tags[%d]", path, i), "the blanks around %s were removed", quote(trimmed))
			c.Tags[i] = trimmed
		}
	}
	v.oneOf(c.Type, path+".type", "instance", "group", "project")
	if !slices.Contains([]string{"instance", "group", "project"}, c.Type) {
		c.Type = "instance" // reported already
	}
	for _, text := range sentences(c.spillway().Validate()) {
		v.need(false, path, "%s", text)
	}
}

// sentences splits a joined error of package spillway.
func sentences(err error) []string {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, spillway.ErrInvalid.Error()+": ")
	}
	return lines
}

func (v *validator) policy(p *Policy, path string) {
	v.oneOf(p.Need, path+".need", "queue", "step")
	v.need(p.Max >= 1, path+".max", "%d would never start anything; set 1 or more", p.Max)
	v.need(p.Max <= spillway.MaxInstancesPerPool, path+".max", "%d instances, at most %d are allowed; split the pool", p.Max, spillway.MaxInstancesPerPool)
	v.need(p.Min >= 0, path+".min", "%d is negative; use 0 or more", p.Min)
	v.need(p.Min <= p.Max || p.Max < 1 || !v.read(path+".max"), path+".min", "%d is more than max (%d); lower min or raise max", p.Min, p.Max)
	v.intBetween(p.IdleCount, 0, spillway.MaxInstancesPerPool, path+".idle_count")
	v.need(p.IdleFactor >= 0 && p.IdleFactor <= MaxIdleFactor, path+".idle_factor", "%g is out of range; use 0 to %g (free instances for each busy one)", p.IdleFactor, MaxIdleFactor)
	v.need(p.Tolerance >= 0 && p.Tolerance < 1, path+".tolerance", "%g is out of range; use 0 to less than 1 (a share of the present instances)", p.Tolerance)
	v.intBetween(p.MaxUses, 0, MaxUsesLimit, path+".max_uses")
	v.between(p.IdleTime, 0, MaxDuration, path+".idle_time")
	v.between(p.RegisterTimeout, time.Second, MaxDuration, path+".register_timeout")
	v.between(p.SilentTimeout, time.Second, MaxDuration, path+".silent_timeout")
	v.need(p.SilentTimeout >= v.config.Timeouts.Silent, path+".silent_timeout",
		"%s is shorter than timeouts.silent (%s), after which a machine only counts as silent; set it to the same or more", p.SilentTimeout, v.config.Timeouts.Silent)
	v.between(p.MaxAge, 0, MaxDuration, path+".max_age")
	v.need(p.MaxAge == 0 || p.MaxAge >= MinMaxAge, path+".max_age",
		"%s would replace instances as fast as they boot; use 0s for no limit, or %s or more", p.MaxAge, MinMaxAge)
	v.between(p.DrainTimeout, 0, MaxDuration, path+".drain_timeout")
	v.intBetween(p.Step, 1, spillway.MaxInstancesPerPool, path+".step")
	v.between(p.StepWait, 0, MaxDuration, path+".step_wait")
	v.damping(p, path)
	if p.IdleCount > p.Max && p.Max > 0 {
		v.warnf(path+".idle_count", "%d is more than max (%d), which limits it", p.IdleCount, p.Max)
	}
}

func (v *validator) damping(p *Policy, path string) {
	out, in := path+".scale_out", path+".scale_in"
	v.between(p.ScaleOut.Stabilization, 0, MaxDuration, out+".stabilization")
	v.between(p.ScaleOut.Cooldown, 0, MaxDuration, out+".cooldown")
	v.intBetween(p.ScaleOut.StepLimit, 0, spillway.MaxInstancesPerPool, out+".step_limit")
	v.between(p.ScaleIn.Stabilization, 0, MaxDuration, in+".stabilization")
	v.between(p.ScaleIn.Cooldown, 0, MaxDuration, in+".cooldown")
	v.intBetween(p.ScaleIn.StepLimit, 0, spillway.MaxInstancesPerPool, in+".step_limit")
	v.intBetween(p.ScaleIn.MaxRemovalsPerTick, 0, spillway.MaxInstancesPerPool, in+".max_removals_per_tick")
	v.intBetween(p.ScaleIn.PercentBudget, 1, 100, in+".percent_budget")
}

// unique refuses two pools that would fight over one name or one group.
func (v *validator) unique() {
	names, groups := map[string]int{}, map[[2]string]int{}
	for i, p := range v.config.Pools {
		path := fmt.Sprintf("pools[%d]", i)
		if first, again := names[p.Name]; again && p.Name != "" {
			v.need(false, path+".name", "%s is the name of pools[%d] already (line %d); each pool needs its own", p.Name, first, v.where(fmt.Sprintf("pools[%d].name", first)).Line)
			continue // its default group is then the same too
		}
		names[p.Name] = i
		if p.Provider == "" || p.Group == "" {
			continue
		}
		group := [2]string{p.Provider, p.Group}
		if first, again := groups[group]; again {
			v.need(false, path+".group", "group %s of provider %s belongs to pool %s already; two pools on one group would undo each other's decisions", p.Group, p.Provider, v.config.Pools[first].Name)
		}
		groups[group] = i
	}
}

// tagCase hints at tags that look equal to people and are not to GitLab.
func (v *validator) tagCase() {
	spelling := map[string]string{}
	for i, p := range v.config.Pools {
		for j, tag := range p.Capability.Tags {
			folded := strings.ToLower(tag)
			if other, ok := spelling[folded]; ok && other != tag {
				v.warnf(fmt.Sprintf("pools[%d].capability.tags[%d]", i, j), "%s differs only in case from %s in another place; tags are case-sensitive: a job with the one does not match the other", quote(tag), quote(other))
				continue
			}
			spelling[folded] = tag
		}
	}
}
