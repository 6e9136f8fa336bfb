package controlplane

import (
	"reflect"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/scaler"
)

// definitions are the pools of the configuration as they are now: what GitLab says that
// their runners take, and what somebody has set, may have changed them since.
func (c *ControlPlane) definitions() []spillway.Pool {
	pools := c.poolSet.configured()
	for i := range pools {
		pools[i] = c.poolSet.inForce(pools[i])
	}
	return pools
}

// definition is that of one pool of the configuration.
func (c *ControlPlane) definition(name string) spillway.Pool {
	for _, p := range c.definitions() {
		if p.Name == name {
			return p
		}
	}
	return spillway.Pool{}
}

// poolConfig is what a pool's loop is made of.
func (c *ControlPlane) poolConfig(p spillway.Pool) scaler.PoolConfig {
	policy, life := c.rules.Load().RulesOf(p.Name)
	return scaler.PoolConfig{
		Pool: p, Policy: policy, Rules: rulesOf(life, policy.Max, p.CapacityPerInstance, c.cfg.Timeouts), Refresh: c.cfg.Tick,
	}
}

// poolsChanged is told of every change of the pool set, one at a time: the router and
// the loops go by it from then on.
func (c *ControlPlane) poolsChanged(pools []spillway.Pool) {
	c.dispatcher.SetPools(pools)
	if c.loop == nil {
		return // it is made with them
	}
	shown := make(map[string]bool, len(pools))
	for _, p := range pools {
		shown[p.Name] = true
		c.metrics.AddPool(p)
		if l := c.scaled[p.Name]; l != nil && !reflect.DeepEqual(l.Definition(), p) {
			c.loop.Reconfigure(c.poolConfig(p))
		}
	}
	for name := range c.shown {
		if !shown[name] {
			c.metrics.RemovePool(name)
		}
	}
	c.shown = shown
	c.poke()
}

// reconfigure has a pool's runners take something else from now on.
func (c *ControlPlane) reconfigure(name string, takes spillway.Capability) {
	c.log.Info("what the pool's runners take", "pool", name, "capability", takes.String())
	err := c.poolSet.update(configPart, func(pools []spillway.Pool) []spillway.Pool {
		for i := range pools {
			if pools[i].Name == name {
				pools[i].Capability = takes
			}
		}
		return pools
	})
	if err != nil {
		c.log.Error("the pools can't be changed", "error", err) // no other part has a name of ours
	}
	c.rebind()
}

// rebind has route mode go by the pools as they are now.
func (c *ControlPlane) rebind() {
	g := c.gitlab
	if g == nil || g.tokens == nil {
		return
	}
	bindings, err := g.bindings(c.definitions())
	if err != nil {
		c.log.Warn("the runners' tokens can't be read: they go on as before", "error", err)
		return
	}
	g.tokens.Replace(bindings)
}
