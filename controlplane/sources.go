package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
)

// sources answers what people ask.
func (c *ControlPlane) sources() server.Sources {
	a := answers{c}
	return server.Sources{
		Pools: a, Demand: a, Runners: a, Plugins: a, Feeds: a, Ledger: a, WhyNot: a, Priorities: a, Choices: a,
		SilentAfter: c.cfg.Timeouts.Silent,
	}
}

type answers struct{ c *ControlPlane }

// Pools lists the pools in the order of the configuration, then the registered ones.
func (a answers) Pools(context.Context) ([]server.PoolStatus, error) { return a.c.Pools(), nil }

// Pools lists the pools in the order of the configuration, then the registered ones.
func (c *ControlPlane) Pools() []server.PoolStatus {
	out := make([]server.PoolStatus, 0, len(c.pools))
	for _, p := range c.loop.Pools() {
		s := poolStatus(p.Definition(), p.Status())
		if c.gitlab != nil {
			s.Finding = alsoFound(c.gitlab.known.finding(p.Name()), s.Finding)
			if c.gitlab.holds != nil {
				s.Finding = alsoFound(s.Finding, c.gitlab.holds.finding(p.Name()))
			}
		}
		out = append(out, s)
	}
	return append(out, c.registered(c.loop.Picture())...)
}

// alsoFound is two findings as one: what causes the other is first.
func alsoFound(cause, other string) string {
	switch {
	case cause == "":
		return other
	case strings.HasSuffix(other, cause): // it says so itself
		return cause
	case other == "":
		return cause
	default:
		return cause + "; " + other
	}
}

func poolStatus(p spillway.Pool, s scaler.Status) server.PoolStatus {
	return server.PoolStatus{
		Pool: p, Min: s.Min, Max: s.Max, Pending: s.Pending, Running: s.Running, Desired: s.Desired,
		InService: s.InService, Idle: s.Idle, Booting: s.Booting, Draining: s.Draining, Lost: s.Lost,
		Reason: s.Decision.Reason, Hold: s.Hold, Finding: s.Finding, DecidedAt: s.DecidedAt, LastSuccess: s.LastSuccess,
	}
}

// Demand is what the last attribution was made from.
func (a answers) Demand(context.Context) (server.DemandView, error) {
	pic := a.c.loop.Picture()
	if pic == nil {
		return server.DemandView{At: time.Now()}, nil
	}
	return demandView(pic, a.c.unscaled()), nil
}

// Runners lists every machine that is registered with any replica.
func (a answers) Runners(ctx context.Context) ([]router.Machine, error) {
	return a.c.allMachines().Machines(ctx)
}

// Plugins lists the plugin processes of this replica.
func (a answers) Plugins(context.Context) ([]server.PluginStatus, error) {
	var out []server.PluginStatus
	for _, s := range a.c.host.States() {
		p := server.PluginStatus{
			Provider: s.Name, Name: s.Plugin, Version: s.Version, Path: s.Path, SHA256: s.SHA256, State: string(s.Phase),
			PID: s.PID, Contract: s.Contract, Restarts: s.Restarts, LastError: s.LastError, StartedAt: s.Since,
		}
		for _, capability := range s.Capabilities {
			p.Capabilities = append(p.Capabilities, string(capability))
		}
		out = append(out, p)
	}
	return out, nil
}

// Feeds lists where demand comes from.
func (a answers) Feeds(context.Context) ([]server.FeedStatus, error) {
	return a.c.feeds(), nil
}

// feeds is how each source does, by this replica.
func (c *ControlPlane) feeds() (feeds []server.FeedStatus) {
	if c.gitlab != nil {
		feeds = c.gitlab.feeds()
	}
	if c.polls == nil {
		return feeds
	}
	for _, s := range c.polls.Status() {
		f := server.FeedStatus{Name: scaler.CountName(s.Pool), Every: s.Every, GoodAt: s.At, Calls: s.Reads}
		if s.Err != nil {
			f.Error = s.Err.Error()
		}
		feeds = append(feeds, f)
	}
	return feeds
}

// reportFeeds shows them in the metrics until ctx ends, where no GitLab has that done.
func (c *ControlPlane) reportFeeds(ctx context.Context) {
	for ctx.Err() == nil {
		c.metrics.SourcesRead(c.feeds())
		pause(ctx, reportEvery)
	}
}

// Ledger reads the newest decisions of a pool.
func (a answers) Ledger(ctx context.Context, pool string, limit int) ([]server.LedgerEntry, error) {
	raw, err := a.c.store.Ledger(ctx, pool, limit)
	if err != nil {
		return nil, err
	}
	out := make([]server.LedgerEntry, 0, len(raw))
	for _, data := range raw {
		var e scaler.LedgerEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("decoding a decision of pool %s: %w", pool, err)
		}
		out = append(out, server.LedgerEntry{
			At: e.At, Pool: e.Pool, From: e.From, To: e.To, Direction: e.Direction, Reason: e.Reason,
			Trace: e.Trace, Action: e.Action, Result: e.Result, Epoch: e.Epoch,
		})
	}
	return out, nil
}

// WhyNot says what keeps a job from running.
func (a answers) WhyNot(ctx context.Context, id spillway.JobID) (server.JobExplanation, error) {
	record, err := a.c.store.Get(ctx, id)
	if err != nil {
		return server.JobExplanation{}, err
	}
	e := server.ExplainJob(record, a.c.Pools())
	if choice, err := a.c.dispatcher.ExplainChoice(ctx, &record.Job); err == nil { // else less is known, and what is known is true
		e = e.InLightOf(choice)
	}
	return e, nil
}

// Choice says how the router would choose a place for a job.
func (a answers) Choice(ctx context.Context, id spillway.JobID) (server.JobChoice, error) {
	record, err := a.c.store.Get(ctx, id)
	if err != nil {
		return server.JobChoice{}, err
	}
	choice, err := a.c.dispatcher.ExplainChoice(ctx, &record.Job)
	if err != nil {
		return server.JobChoice{}, err
	}
	c := server.JobChoice{Record: record, Choice: choice}
	if record.Pool != "" {
		c.Fingerprint = a.c.dispatcher.Fingerprint(record.Pool)
	}
	return c, nil
}
