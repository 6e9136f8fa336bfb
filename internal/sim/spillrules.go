package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
)

// dispatched checks I11: nobody of a lower priority got a job while somebody of a
// higher one that could take it is free; nor, in the job's first moment, while somebody
// of another replica is.
func (c *rules) dispatched(s *session, given []router.Assignment) {
	alone := len(c.world.config.Pools) == 1 && len(s.replica.outCells) == 0
	if len(given) == 0 || alone || c.world.gitlab != nil {
		return
	}
	pools := c.world.pools()
	here, elsewhere := c.free(s, c.world.now), make(map[string]bool)
	for _, r := range c.world.replicas {
		if r.working() && &r.session != s && c.world.store.Fault == memstore.Healthy {
			maps.Copy(elsewhere, c.free(&r.session, c.world.now.Add(-router.RemoteFresh))) // what is younger need not be known
		}
	}
	for i := range given {
		m, _ := s.engine.Machine(given[i].Machine)
		if away := s.replica.cellMachine(m.ID); away != nil {
			c.handsOver(away, &given[i], here)
			continue
		}
		at := slices.IndexFunc(pools, func(p spillway.Pool) bool { return p.Name == m.Pool })
		young := c.world.now.Sub(given[i].Job.SubmittedAt) < router.RemotePatience
		for j := range pools {
			name := pools[j].Name
			if at >= 0 && (here[name] || young && elsewhere[name]) && pools[j].Priority < pools[at].Priority &&
				router.Match(&pools[j].Capability, &given[i].Job.Requirement).OK() {
				c.broken("I11", "job %s went to %s while %s has a free place", given[i].Ref.ID, m.ID, name)
			}
		}
	}
}

// free is the pools of which a machine of a replica has a free place, and has done
// nothing since a time.
func (c *rules) free(s *session, since time.Time) map[string]bool {
	free := make(map[string]bool)
	for _, m := range s.engine.Machines() {
		p, _ := c.world.config.Pool(m.Pool)
		usedUp := p.Policy.MaxUses > 0 && m.Uses >= p.Policy.MaxUses
		if m.Connected && !m.Draining && m.StoppingSince.IsZero() && m.InUse() < m.Capacity && !usedUp && !m.LastUsedAt.After(since) {
			free[m.Pool] = true
		}
	}
	return free
}
