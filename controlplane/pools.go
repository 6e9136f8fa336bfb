package controlplane

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/scaler"
)

// definitions are the pools as they are defined now, in the order of the
// configuration: what GitLab says that their runners take may have changed them since.
func (c *ControlPlane) definitions() []spillway.Pool {
	loops := c.loop.Pools()
	pools := make([]spillway.Pool, len(loops))
	for i, p := range loops {
		pools[i] = p.Definition()
	}
	return pools
}

func (c *ControlPlane) definition(name string) (spillway.Pool, bool) {
	for _, p := range c.loop.Pools() {
		if p.Name() == name {
			return p.Definition(), true
		}
	}
	return spillway.Pool{}, false
}

// poolConfig is what a pool's loop is made of.
func (c *ControlPlane) poolConfig(p spillway.Pool) scaler.PoolConfig {
	policy, life := c.cfg.Policies()[p.Name], c.cfg.Lifecycles()[p.Name]
	return scaler.PoolConfig{
		Pool: p, Policy: policy, Rules: rulesOf(life, policy.Max, p.CapacityPerInstance, c.cfg.Timeouts), Refresh: c.cfg.Tick,
	}
}

// reconfigure has a pool's runners take something else from now on.
func (c *ControlPlane) reconfigure(name string, takes spillway.Capability) {
	p, ok := c.definition(name)
	if !ok {
		return
	}
	p.Capability = takes
	c.log.Info("what the pool's runners take", "pool", name, "capability", takes.String())
	c.loop.Reconfigure(c.poolConfig(p))
	c.metrics.AddPool(p)
	if g := c.gitlab; g != nil && g.tokens != nil {
		pools := c.definitions()
		for i := range pools {
			if pools[i].Name == name {
				pools[i] = p // the loop takes it up with its next tick
			}
		}
		if bindings, err := g.bindings(pools); err == nil {
			g.tokens.Replace(bindings)
		} else {
			c.log.Warn("the runners' tokens can't be read: they go on as before", "error", err)
		}
	}
	c.poke()
}
