package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/server"
)

func (g *gitLab) sourceEvents() *collect.Events {
	log := g.c.log
	return &collect.Events{
		Trouble: func(doing string, err error) { log.Warn("trouble with GitLab", "doing", doing, "error", err) },
		Stale: func(job collect.JobKey, why string) {
			log.Info("a job that is listed is over", "job", job.ID, "why", why)
		},
	}
}

func (g *gitLab) contactEvents() route.Events {
	log := g.c.log
	return route.Events{
		Shared: func(s route.SharedSystem) { log.Warn(s.String()) },
		Full:   func(pool string) { log.Warn("a machine was turned away: too many of the pool", "pool", pool) },
		Failed: func(machines int, err error) {
			log.Warn("machines that ask for jobs could not be registered", "machines", machines, "error", err)
		},
		Wrote: func(_, firsts int) {
			if firsts > 0 {
				g.c.poke()
			}
		},
	}
}

// deskEvents has the jobs that the desk holds counted anew when they change.
func (g *gitLab) deskEvents() jobrouter.Events {
	log, m := g.c.log, g.c.metrics
	var refused, unanswered seldom
	changed := func() {
		if source := g.known.source(); source != nil {
			source.HeldChanged()
		}
	}
	return jobrouter.Events{
		JobFound: func(jobrouter.HeldJob) { m.JobRouted(server.JobFound) },
		JobGiven: func(j jobrouter.HeldJob, i jobrouter.GivenInfo) {
			m.JobRouted(server.JobGiven)
			log.Info("a job was handed to a machine", "job", j.ID, "pool", i.Pool, "machine", i.Machine)
			changed()
			g.c.poke()
		},
		JobKept: func(j jobrouter.HeldJob) {
			m.JobRouted(server.JobKept)
			log.Info("a job waits for a machine", "job", j.ID)
			changed()
		},
		JobLeft: func(j jobrouter.HeldJob, why string) {
			m.JobRouted(server.JobLeft)
			log.Warn("a job was left to GitLab", "job", j.ID, "why", why)
			changed()
		},
		JobRejected: func(j jobrouter.HeldJob, why string) {
			m.JobRouted(server.JobRefused)
			log.Warn("a job was refused", "job", j.ID, "why", why)
			changed()
		},
		Refused: func(i jobrouter.RefusedInfo) {
			refused.say(time.Now(), func(unsaid int) {
				log.Warn("a runner was not let wait", "why", i.Why, "told", i.Told, "unsaid", unsaid)
			})
		},
		Polled: func(i jobrouter.PolledInfo) {
			m.Polled(i.Status)
			if i.Ill && !errors.Is(i.Err, context.Canceled) {
				unanswered.say(time.Now(), func(unsaid int) {
					log.Warn("GitLab gives no jobs", "token", shortHash(i.Token), "status", i.Status, "error", i.Err, "unsaid", unsaid)
				})
			}
		},
		Lease: func(i jobrouter.LeaseInfo) {
			log.Info("who asks GitLab for a token", "token", shortHash(i.Token), "holder", i.Holder, "ours", i.Ours)
		},
		Hold: g.holdChanged,
		Held: g.held,
		Degraded: func(token, why string) {
			m.Degraded()
			log.Warn("a runner is served with less", "token", shortHash(token), "why", why)
		},
		Trouble:  func(doing string, err error) { log.Warn("trouble with the job router", "doing", doing, "error", err) },
		Panicked: func(value any, stack []byte) { g.c.panicked("GetJob", value, stack) },
	}
}

// shortHash is as much of a token's hash as tells tokens apart.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }

func (g *gitLab) proxyEvents() frontproxy.Events {
	log, m := g.c.log, g.c.metrics
	var store, upstream seldom
	return frontproxy.Events{
		Given: func(who route.Caller, job spillway.JobID) {
			m.JobRouted(server.JobFound)
			m.JobRouted(server.JobGiven)
			log.Info("a job was handed to a machine", "job", job, "pool", who.Pool.Name, "machine", who.System)
			g.c.poke()
		},
		Undelivered: func(who route.Caller, job spillway.JobID, why frontproxy.Why, err error) {
			m.JobRouted(server.JobFound)
			if err == nil {
				m.JobRouted(server.JobKept)
			} else {
				m.JobRouted(server.JobLeft)
			}
			log.Info("a job was not handed to a machine", "job", job, "machine", who.System, "why", why.String(), "error", err)
		},
		Late: func(job spillway.JobID) {
			log.Warn("a runner acknowledged a job too late, and was told not to begin it", "job", job)
		},
		Ended: func(spillway.JobID) { g.c.poke() },
		StoreFailed: func(what string, err error) {
			store.say(time.Now(), func(unsaid int) { log.Warn("trouble with the store", "doing", what, "error", err, "unsaid", unsaid) })
		},
		Upstream: func(err error) {
			upstream.say(time.Now(), func(unsaid int) { log.Warn("GitLab did not answer", "error", err, "unsaid", unsaid) })
		},
	}
}
