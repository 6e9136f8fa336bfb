package controlplane

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
)

// registered are the pools that were registered while it runs, as of a look; nil: before
// the first. Nobody scales them, so that no loop tells of them: their machines do.
func (c *ControlPlane) registered(pic *scaler.Picture) []server.PoolStatus {
	pools := c.poolSet.of(coordinatorPart)
	all := make([]server.PoolStatus, len(pools))
	for i := range pools {
		all[i].Pool = c.poolSet.inForce(pools[i])
	}
	if pic == nil || len(all) == 0 {
		return all
	}
	demand := demandView(pic, c.unscaled())
	for i := range all {
		s := &all[i]
		for _, class := range demand.Classes {
			s.Pending += class.Attributed[s.Pool.Name]
		}
		if pic.MachinesKnown {
			countMachines(s, pic.Machines[s.Pool.Name])
			s.LastSuccess = pic.At
		}
	}
	c.boundRegistered(all)
	return all
}

// boundRegistered says how many workers there may be in each pool, and how many there should be for
// whoever starts them.
func (c *ControlPlane) boundRegistered(all []server.PoolStatus) {
	for _, r := range c.coordinator.Registered() {
		for i := range all {
			if s := &all[i]; s.Pool.Name == r.Pool.Name {
				s.Max, s.Desired = r.Max, r.Wanted(s.Pending+s.Running)
			}
		}
	}
}

// countMachines counts the machines of a pool that nobody scales as the instances that
// they are.
func countMachines(s *server.PoolStatus, machines []router.Machine) {
	for i := range machines {
		switch m := &machines[i]; {
		case !m.Connected:
			s.Lost++
		case m.Draining || !m.StoppingSince.IsZero():
			s.Draining++
			s.Running += m.InUse()
		default:
			s.InService++
			s.Running += m.InUse()
			if m.InUse() == 0 {
				s.Idle++
			}
		}
	}
}

// observeRegistered shows them in the metrics.
func (c *ControlPlane) observeRegistered(pic *scaler.Picture) {
	if !pic.MachinesKnown {
		return // what was known stays
	}
	for _, s := range c.registered(pic) {
		c.metrics.PoolObserved(s)
		c.metrics.RunnersConnected(s.Pool.Name, connected(pic.Machines[s.Pool.Name]))
	}
}

// unscaled are the pools that take jobs and that no loop scales: registered ones and those
// of other cells.
func (c *ControlPlane) unscaled() (pools []spillway.Pool) {
	for _, part := range []string{coordinatorPart, cellsPart} {
		pools = append(pools, c.poolSet.of(part)...)
	}
	return pools
}

// demandView is what the last attribution was made from. That knows the scaled pools only:
// what none of them can take, and one of the others can, goes there.
func demandView(pic *scaler.Picture, others []spillway.Pool) server.DemandView {
	v := server.DemandView{At: pic.At, Signals: pic.Signals, Classes: make([]server.ClassDemand, len(pic.Classes))}
	for i, c := range pic.Classes {
		v.Classes[i] = server.ClassDemand{
			Class: c.ID, Requirement: c.Requirement, Pending: c.Pending, Oldest: c.Oldest, Attributed: map[string]int{}, Sample: c.Sample,
		}
	}
	for _, f := range pic.Attribution.Flows {
		v.Classes[f.Class].Attributed[f.Pool] += f.Jobs
	}
	for _, u := range pic.Attribution.Unmatched {
		class := &v.Classes[u.Class]
		if pool, ok := takerAmong(others, &class.Requirement); ok {
			class.Attributed[pool] += u.Jobs
			continue
		}
		class.Unmatched += u.Jobs
		class.Reason = u.Predicate + ": " + u.Detail
	}
	for _, o := range pic.Attribution.Overflow {
		v.Classes[o.Class].Overflow += o.Jobs
	}
	return v
}

// takerAmong is the first pool that can take such a job.
func takerAmong(pools []spillway.Pool, r *spillway.Requirement) (name string, ok bool) {
	for i := range pools {
		if ok, _ := router.Fits(&pools[i].Capability, r); ok {
			return pools[i].Name, true
		}
	}
	return "", false
}
