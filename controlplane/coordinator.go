package controlplane

import (
	"context"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	"github.com/spillway-ci/spillway/router/session"
)

// maxAPIMessageBytes bounds one message to listen.api [bytes]: gRPC's own default, since
// workers may report all that a job has written. Its tail is kept.
const maxAPIMessageBytes = 4 << 20

// makeCoordinator makes the service of workers that poll. The pools that were registered
// are read when it runs.
func (c *ControlPlane) makeCoordinator(context.Context) (err error) {
	c.jobs = session.NewJobs(c.dispatcher, c.store, c.store, c.poke)
	k, t := c.cfg.Coordinator, c.cfg.Timeouts
	c.coordinator, err = coordinator.New(c.dispatcher, c.jobs, c.store, coordinator.Options{
		Replica:    c.cfg.ReplicaName(),
		Configured: c.configuredPools,
		Replace:    func(pools []spillway.Pool) error { return c.poolSet.replace(coordinatorPart, pools) },
		MaxWorkers: k.MaxWorkers, MaxQueued: k.MaxQueued, PollWait: k.PollWait,
		SilentAfter: t.Silent, AcceptTimeout: t.Assign,
		Events: c.coordinatorEvents(),
	})
	return err
}

// configuredPools are the pools of the configuration, as they are now.
func (c *ControlPlane) configuredPools() []coordinator.Configured {
	rules := c.rules.Load()
	pools := c.poolSet.configured()
	all := make([]coordinator.Configured, len(pools))
	for i := range pools {
		all[i].Pool = c.poolSet.inForce(pools[i])
		if p, ok := rules.Pool(pools[i].Name); ok {
			all[i].MinIdle, all[i].Max = p.Policy.IdleCount, p.Policy.Max
		}
	}
	return all
}

func (c *ControlPlane) coordinatorEvents() coordinator.Events {
	return coordinator.Events{
		WorkerAttached: func(e coordinator.WorkerAttached) { c.metrics.CoordinatorWorkers(e.Workers) },
		WorkerDetached: func(e coordinator.WorkerDetached) {
			c.metrics.CoordinatorWorkers(e.Workers)
			if e.Lost != "" {
				c.metrics.CoordinatorLost()
				c.log.Warn("a worker with a job is silent: another one gets it", "worker", e.Runner, "pool", e.Pool, "job", e.Lost)
			}
		},
		Polled:    func(o coordinator.PollOutcome) { c.metrics.CoordinatorPoll(string(o)) },
		Reported:  func(o coordinator.ReportOutcome) { c.metrics.CoordinatorReport(string(o)) },
		Submitted: func(o coordinator.SubmitOutcome) { c.metrics.CoordinatorSubmit(string(o)) },
		PoolChanged: func(e coordinator.PoolChanged) {
			c.log.Info("registered pools", "pool", e.Pool, "added", e.Added, "by", e.By)
		},
		Trouble: func(e coordinator.Trouble) { c.log.Warn("coordinator", "doing", e.Op, "error", e.Err) },
	}
}
