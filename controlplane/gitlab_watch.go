package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/scaler/watch"
	"github.com/spillway-ci/spillway/server"
)

// watchGitLab makes what knows the machines of pools whose jobs others hand out.
func (g *gitLab) watchGitLab() (err error) {
	c := g.c
	g.hooks = newHookChecks(c)
	pools := map[string]collect.ExporterPool{}
	for i := range c.cfg.Pools {
		p := &c.cfg.Pools[i]
		if p.Mode == config.ModeOrchestrate || p.Observe.Metrics == nil {
			continue
		}
		pools[p.Name] = exporterPool(p.Observe.Metrics)
	}
	if len(pools) > 0 {
		g.exporters, err = collect.NewExporters(collect.ExporterOptions{Pools: pools, Changed: g.scraped})
		if err != nil {
			return err
		}
	}
	g.lists = watch.NewLists(time.Now, g.listed)
	o := watch.Options{
		Registry: machines{c.store, c}, Boards: c.store, Tenure: c.leases, Lists: g.lists, GitLab: runners{g.sources}, HookVerified: g.hooks.verified,
		Fresh:   c.cfg.Timeouts.Silent,
		Trouble: g.watchTrouble(),
	}
	if g.exporters != nil {
		o.Metrics = g.exporters
	}
	g.machines = watch.New(o, g.watched())
	return nil
}

// watchTrouble tells what keeps a look at the machines from seeing everything. What is of
// no pool is of all of them, and each look meets it.
func (g *gitLab) watchTrouble() func(pool string, err error) {
	const what = "not everything is known of the machines"
	var all seldom
	return func(pool string, err error) {
		if pool != "" {
			g.c.log.Warn(what, "pool", pool, "error", err)
			return
		}
		all.say(time.Now(), func(unsaid int) { g.c.log.Warn(what, "error", err, "unsaid", unsaid) })
	}
}

// watched are the pools of which not every machine has a stream.
func (g *gitLab) watched() []watch.Pool {
	var all []watch.Pool
	for i := range g.c.cfg.Pools {
		p := &g.c.cfg.Pools[i]
		if p.Mode == config.ModeOrchestrate {
			continue
		}
		w := watch.Pool{Name: p.Name, Mode: evidence.Observe, Capacity: g.c.pools[i].CapacityPerInstance, Scraped: p.Observe.Metrics != nil, Hooked: g.cfg.Webhook != nil}
		switch p.Observe.Drain {
		case "sidecar":
			w.Drain = evidence.DrainSidecar
		case "hook":
			w.Drain = evidence.DrainHook
		default:
			w.Drain = evidence.DrainNone
		}
		if p.Mode == config.ModeRoute {
			w.Mode = evidence.RouteOne
			if g.cfg.Route.Front {
				w.Mode = evidence.RouteFront
			}
			if w.Drain == evidence.DrainNone {
				w.Drain = evidence.DrainRouter
			}
		}
		if id := g.known.runner(p.Name); id > 0 && g.cfg.Jobs.Scope != "none" {
			w.Runners = []int64{id}
		}
		all = append(all, w)
	}
	return all
}

// listed hands a group's instances to whoever reads their metrics.
func (g *gitLab) listed(pool string, list []pluginsdk.Instance) {
	if g.exporters == nil {
		return
	}
	targets := make([]collect.Target, 0, len(list))
	for i := range list {
		targets = append(targets, collect.Target{Instance: list[i].ID, Address: list[i].Address})
	}
	g.exporters.SetInstances(pool, targets)
}

func (g *gitLab) scraped(i collect.ScrapeInfo) {
	if i.Err != nil {
		g.c.log.Warn("an instance's metrics can't be read", "pool", i.Pool, "instance", i.Instance, "error", i.Err)
	} else {
		g.c.log.Info("an instance's metrics can be read again", "pool", i.Pool, "instance", i.Instance)
	}
}

// runners is how GitLab has the pools' runners, by the board.
type runners struct{ sources *collect.Sources }

// Runners implements watch.GitLab. That GitLab could not have been asked yet, as when we
// have just begun, is nothing known and no trouble.
func (r runners) Runners(ctx context.Context) (map[int64]collect.RunnerState, error) {
	board, err := r.sources.Board(ctx)
	if errors.Is(err, collect.ErrNothingYet) {
		return map[int64]collect.RunnerState{}, nil
	}
	return board.Runners, err
}

// source lists GitLab's jobs, for pools whose capabilities are known.
func (g *gitLab) source(ctx context.Context, pools []spillway.Pool) (*collect.GitLab, error) {
	o := collect.Options{
		URL: g.cfg.URL, Store: g.c.store, Replica: g.c.cfg.ReplicaName(), Runners: g.known.runners(), Every: g.cfg.Jobs.Every, Busy: g.busy, Ages: g.ages,
		Hooks:  g.cfg.Webhook != nil,
		Events: g.sourceEvents(),
	}
	for i := range pools {
		if pools[i].Capability.Origin == g.cfg.URL {
			o.Pools = append(o.Pools, pools[i])
		}
	}
	if g.desk != nil {
		o.Held, o.HeldLacks = held{g}, g.heldLacks
	}
	if scope, listed := jobScope(g.cfg.Jobs); listed {
		o.API, o.Scope = g.client, scope
	}
	if len(g.cfg.Jobs.Groups) > 0 {
		o.Covers = g.covers(ctx)
	}
	return collect.New(o)
}

// tells reports whether anything tells which of GitLab's jobs wait: its lists, or jobs
// that are held for a pool at zero.
func (g *gitLab) tells() bool { return g.cfg.Jobs.Scope != "none" || g.cfg.Route != nil }

// covers says of which runners the listed groups show all jobs: those that serve nothing
// but one of the groups. Where a group can't be looked up, nothing is proven by the list.
func (g *gitLab) covers(ctx context.Context) func(gitlab.Runner) bool {
	ids := map[int64]bool{}
	for _, path := range g.cfg.Jobs.Groups {
		asking, cancel := context.WithTimeout(ctx, capabilityTimeout)
		id, err := g.client.GroupID(asking, path)
		cancel()
		if err != nil {
			g.c.log.Warn("that no job runs can't be proven by GitLab's list", "group", path, "error", err)
			continue
		}
		ids[id] = true
	}
	return func(r gitlab.Runner) bool {
		return r.Type == spillway.GroupType && len(r.Groups) > 0 &&
			!slices.ContainsFunc(r.Groups, func(id int64) bool { return !ids[id] })
	}
}

// busy counts the jobs that machines say they run: a list of GitLab that has none then
// is not to be believed.
func (g *gitLab) busy(context.Context) (int, error) {
	jobs := 0
	if pic := g.c.loop.Picture(); pic != nil {
		for i := range g.c.pools {
			if g.c.pools[i].Capability.Origin != g.cfg.URL {
				continue
			}
			for _, m := range pic.Machines[g.c.pools[i].Name] {
				jobs += m.Busy
			}
		}
	}
	return jobs, nil
}

// held is the jobs that the desk keeps for machines that are still to come.
type held struct{ g *gitLab }

// Held implements collect.Held.
func (h held) Held() []collect.HeldJob {
	jobs := h.g.desk.Held()
	kept := make([]collect.HeldJob, 0, len(jobs))
	for i := range jobs {
		need := jobs[i].Requirement()
		kept = append(kept, collect.HeldJob{
			Sighting: collect.Sighting{
				Job: collect.JobKey{Origin: h.g.cfg.URL, ID: jobs[i].ID}, State: spillway.Pending,
				Requirement: &need, Project: jobs[i].Project, Since: jobs[i].Since, At: jobs[i].At,
			},
			Pools: names(jobs[i].Pools),
		})
	}
	return kept
}

func names(pools []spillway.Pool) []string {
	out := make([]string, len(pools))
	for i := range pools {
		out[i] = pools[i].Name
	}
	return out
}

// reportEvery is how often the state of the sources goes into the metrics.
const reportEvery = 5 * time.Second

func (g *gitLab) reportSources(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		g.c.metrics.SourcesRead(g.c.feeds())
		if board, err := g.sources.Board(ctx); err == nil {
			g.c.metrics.StaleJobs(board.Stale)
		}
		if g.desk != nil {
			waiting := 0
			for _, t := range g.desk.Status() {
				waiting += t.Waiting
			}
			g.c.metrics.WaitingRunners(waiting)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// feeds is how each source of GitLab's does, by this replica.
func (g *gitLab) feeds() []server.FeedStatus {
	all := g.sources.Status()
	if source := g.known.source(); source != nil {
		all = append(all, source.Status()...)
	}
	if g.exporters != nil {
		all = append(all, g.exporters.Status()...)
	}
	feeds := make([]server.FeedStatus, 0, len(all))
	for i := range all {
		s := &all[i]
		if s.Standby {
			continue // another replica asks, and shows it to us
		}
		f := server.FeedStatus{Name: s.Name, Every: s.Every, GoodAt: s.At, Error: s.Err, Partial: s.Partial, Calls: int(s.Calls)}
		if f.Error == "" && s.Partial {
			f.Error = s.Why
		}
		feeds = append(feeds, f)
	}
	return feeds
}

// group is a pool's group as its loop sees it.
func (c *ControlPlane) group(pool string, g scaler.Group) scaler.Group {
	if c.gitlab == nil {
		return g
	}
	return c.gitlab.lists.Of(pool, g)
}

// allMachines is the machines of all pools, however they are known.
func (c *ControlPlane) allMachines() scaler.Machines {
	if c.gitlab == nil {
		return machines{c.store, c}
	}
	return understood{c.gitlab.machines, c.gitlab.known}
}

// watcher is machines that are watched.
type watcher interface {
	scaler.Machines
	scaler.Evidence
}

// understood holds pools of which it isn't known what their machines take.
type understood struct {
	watcher
	known *capabilities
}

// Limits implements scaler.Evidence.
func (u understood) Limits(pool string) scaler.Limits {
	l := u.watcher.Limits(pool)
	l.CannotDrain = cmp.Or(u.known.unknown(pool), l.CannotDrain) // nothing is launched for it either: no job is the pool's
	return l
}

// failingQuestions is how many questions to GitLab in a row may fail before it isn't
// known any more whether a job waits.
const failingQuestions = 3

// heldLacks says of which pools it isn't known whether jobs wait that the desk would hold:
// those of the runner tokens with which GitLab can't be asked, and no others.
func (g *gitLab) heldLacks() map[string]string { return lacksOf(g.desk.Status(), g.tokens) }

func lacksOf(tokens []jobrouter.TokenStatus, of *route.Tokens) map[string]string {
	lacks := map[string]string{}
	for _, t := range tokens {
		if !t.Ours || t.Failing < failingQuestions {
			continue
		}
		pools, _ := of.Pools(t.Token) // none has one that was taken out of the configuration
		for _, name := range names(pools) {
			lacks[name] = fmt.Sprintf("GitLab has refused the pool's runner token or not answered, in the last %d job requests", t.Failing)
		}
	}
	return lacks
}
