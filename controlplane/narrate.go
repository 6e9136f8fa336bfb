package controlplane

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/providers"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/scaler"
)

// scalerEvents has log, metrics and whoever the options name told of what the
// loops do. An info line is written only when something has changed.
func (c *ControlPlane) scalerEvents() scaler.Events {
	also := c.opt.Scaler
	return scaler.Events{
		Decided: func(e scaler.LedgerEntry) {
			c.metrics.Decided(e.Pool, e.Direction, e.Reason)
			if e.Action != "" {
				c.log.Info("decided", "pool", e.Pool, "from", e.From, "to", e.To, "reason", e.Reason, "action", e.Action, "result", e.Result)
			}
			call(also.Decided, e)
		},
		Called: func(i scaler.CallInfo) { call(also.Called, i) },
		Changed: func(i scaler.ChangeInfo) {
			c.log.Info("instance "+string(i.Kind), "pool", i.Pool, "instance", i.Instance, "detail", i.Detail)
			call(also.Changed, i)
		},
		Trouble: func(i scaler.TroubleInfo) {
			c.log.Warn("trouble", append(inPool(i.Pool), "doing", i.Doing, "error", i.Err)...)
			call(also.Trouble, i)
		},
		Ticked: func(s scaler.Status) {
			c.metrics.PoolObserved(poolStatus(c.scaled[s.Pool].Definition(), s))
			call(also.Ticked, s)
		},
		Looked: func(pic *scaler.Picture) {
			c.metrics.DemandObserved(demandView(pic, c.unscaled()))
			c.observeRegistered(pic)
			c.dispatcher.SetRoom(pic.Rooms())
			if c.gitlab != nil {
				c.gitlab.looked(pic)
			}
			for i := range c.pools {
				if pic.MachinesKnown {
					c.metrics.RunnersConnected(c.pools[i].Name, connected(pic.Machines[c.pools[i].Name]))
				}
			}
			call(also.Looked, pic)
		},
	}
}

// inPool is the attribute of a log line that names its pool, none where it is of no one.
func inPool(pool string) []any {
	if pool == "" {
		return nil
	}
	return []any{"pool", pool}
}

// sessionEvents does the same for the router, and pokes the scaler when something
// has changed that a decision could depend on.
func (c *ControlPlane) sessionEvents() session.Events {
	also := c.opt.Session
	return session.Events{
		MachineConnected: func(e session.MachineConnected) {
			c.log.Info(e.String())
			call(also.MachineConnected, e)
		},
		MachineDisconnected: func(e session.MachineDisconnected) {
			c.log.Info(e.String())
			call(also.MachineDisconnected, e)
		},
		MachineInterrupted: func(e session.MachineInterrupted) {
			c.log.Warn(e.String())
			call(also.MachineInterrupted, e)
		},
		MachineHealth: func(e session.MachineHealth) {
			c.log.Warn(e.String())
			call(also.MachineHealth, e)
		},
		StreamRefused: func(e session.StreamRefused) {
			c.log.Warn(e.String())
			call(also.StreamRefused, e)
		},
		JobAssigned: func(e session.JobAssigned) {
			c.metrics.JobAssigned(e.Pool, e.Wait)
			call(also.JobAssigned, e)
		},
		JobRefused: also.JobRefused,
		JobStarted: also.JobStarted,
		JobFinished: func(e session.JobFinished) {
			c.metrics.JobFinished(e.Record.State, e.Record.Result.Reason)
			call(also.JobFinished, e)
		},
		JobLost: func(e session.JobLost) {
			c.log.Warn(e.String())
			call(also.JobLost, e)
		},
		JobQuarantined: func(e session.JobQuarantined) {
			c.metrics.JobQuarantined()
			c.metrics.JobFinished(spillway.Failed, spillway.RunnerSystemFailure)
			c.log.Warn(e.String())
			call(also.JobQuarantined, e)
		},
		JobRetried: func(e session.JobRetried) {
			c.metrics.JobRetried()
			c.log.Info(e.String())
			call(also.JobRetried, e)
		},
		JobsPushed: func(e session.JobsPushed) {
			c.metrics.JobsPushed(e.Accepted, e.Duplicate, e.Conflict, e.Invalid, e.Full, e.Unavailable)
			call(also.JobsPushed, e)
		},
		JobRejected: func(e session.JobRejected) {
			c.log.Warn(e.String())
			call(also.JobRejected, e)
		},
		Dispatched: also.Dispatched,
		StoreTrouble: func(e session.StoreTrouble) {
			c.metrics.StoreFailed(e.Err)
			c.log.Warn(e.String())
			call(also.StoreTrouble, e)
		},
		RecordsWritten: func(e session.RecordsWritten) {
			if e.News {
				c.poke()
			}
			call(also.RecordsWritten, e)
		},
	}
}

func (c *ControlPlane) hostObserver() providers.Observer {
	return providers.Observer{
		CallRepeated: func(i providers.CallInfo, _ error) { c.metrics.ProviderRepeated(i.Provider, string(i.Op)) },
		CallDone:     func(i providers.CallDone) { c.metrics.ProviderCalled(i.Provider, string(i.Op), i.Err, i.Duration) },
		StateChanged: func(s providers.State) {
			c.metrics.PluginState(s.Name, s.Phase == providers.Ready)
			if s.Phase == providers.Ready && s.Restarts > 0 {
				c.metrics.PluginRestarted(s.Name)
			}
			c.log.Info(s.String())
		},
	}
}

func connected(machines []router.Machine) int {
	n := 0
	for i := range machines {
		if machines[i].Connected {
			n++
		}
	}
	return n
}

func call[T any](f func(T), x T) {
	if f != nil {
		f(x)
	}
}
