package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Limits of the GitLab settings.
const (
	MinJobsEvery     = time.Second
	MaxJobsEvery     = 10 * time.Minute
	MaxRequests      = 100_000 // a minute
	MinLongPoll      = time.Second
	MaxLongPoll      = 5 * time.Minute // a runner was seen to wait for 75 s without complaint
	MaxHoldPerToken  = 64              // the job router keeps no more
	MaxRatePerToken  = 33              // a second: GitLab's own limit is 2,000 a minute
	MaxScopePaths    = 100
	MinMetricsEvery  = time.Second
	MaxMetricsEvery  = 5 * time.Minute
	MaxStaticTargets = 10_000
)

func (v *validator) gitlab() {
	c := v.config
	g := c.GitLab
	if g == nil {
		for _, at := range []struct{ path, address string }{{"listen.gitlab", c.Listen.GitLab}, {"listen.job_router", c.Listen.JobRouter}} {
			v.need(at.address == "", at.path, "there is no gitlab section, so nothing would be served there; remove it, or set gitlab.url")
		}
		return
	}
	v.gitlabURL(g)
	v.gitlabJobs(g)
	if g.Webhook != nil {
		v.need(!g.Webhook.Secret.IsZero(), "gitlab.webhook.secret",
			"anybody could tell us of jobs; set {env: NAME} or {file: PATH}, and the same as the secret token of the webhook in GitLab")
	}
	v.need(g.Webhook == nil || g.Route != nil || !g.APIToken.IsZero(), "gitlab.webhook",
		"a webhook does not say which tags a job has, and without gitlab.api_token nobody can ask; set it, or remove webhook")
	v.need(c.Listen.JobRouter == "" || g.Route != nil, "listen.job_router", "there is no gitlab.route, so nothing would be served there; remove it, or set gitlab.route.server_url")
	v.need(c.Listen.GitLab == "" || g.Route != nil || g.Webhook != nil, "listen.gitlab", "there is neither gitlab.route nor gitlab.webhook, so nothing would be served there; remove it")
	if g.Webhook != nil || g.Route != nil {
		c.Listen.GitLab = cmp.Or(c.Listen.GitLab, DefaultGitLab)
	}
	if g.Route != nil {
		c.Listen.JobRouter = cmp.Or(c.Listen.JobRouter, DefaultJobRouter)
		v.route(g.Route)
	}
}

func (v *validator) gitlabURL(g *GitLab) {
	u, err := url.Parse(g.URL)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	v.need(ok, "gitlab.url", "%s: write the address of GitLab, such as https://gitlab.example.com", quote(g.URL))
	g.URL = strings.TrimRight(g.URL, "/")
	v.need(!ok || len(g.URL) <= spillway.MaxOriginBytes, "gitlab.url", "%d bytes, at most %d are allowed", len(g.URL), spillway.MaxOriginBytes)
	ascii := !strings.ContainsFunc(g.URL, func(r rune) bool { return r <= ' ' || r > '~' })
	v.need(!ok || ascii, "gitlab.url", "%s: write it in ASCII and without blanks, a name as its DNS has it (xn--…)", quote(g.URL)) // it is the origin of the jobs
}

func (v *validator) gitlabJobs(g *GitLab) {
	j := &g.Jobs
	if j.Scope == "" {
		j.Scope = "instance"
		if g.APIToken.IsZero() {
			j.Scope = "none"
		}
	}
	v.oneOf(j.Scope, "gitlab.jobs.scope", "instance", "groups", "projects", "none")
	v.need(j.Scope == "none" || !g.APIToken.IsZero(), "gitlab.jobs.scope",
		"GitLab lists jobs for a token only; set gitlab.api_token to {env: NAME} or {file: PATH}, or scope: none")
	for _, list := range []struct {
		scope string
		paths []string
	}{{"groups", j.Groups}, {"projects", j.Projects}} {
		at := "gitlab.jobs." + list.scope
		v.need((len(list.paths) > 0) == (j.Scope == list.scope), at, "name the full paths of %s here if, and only if, scope is %s", list.scope, list.scope)
		v.need(len(list.paths) <= MaxScopePaths, at, "%d paths, at most %d are allowed; name a group that holds them, or use scope: instance", len(list.paths), MaxScopePaths)
		for i, p := range list.paths {
			v.need(p != "" && path.Clean("/"+p) == "/"+p, fmt.Sprintf("%s[%d]", at, i), "%s: write the full path as in the address, such as team/app", quote(p))
		}
	}
	v.between(j.Every, MinJobsEvery, MaxJobsEvery, "gitlab.jobs.every")
	v.intBetween(j.PerMin, 1, MaxRequests, "gitlab.jobs.requests_per_minute")
}

func (v *validator) route(r *Route) {
	u, err := url.Parse(r.ServerURL)
	ok := err == nil && slices.Contains([]string{"grpc", "grpcs", "ws", "wss"}, u.Scheme) && u.Host != "" && u.User == nil
	v.need(ok, "gitlab.route.server_url", "%s: write what the runners connect to: grpc, grpcs, ws or wss, a host and a port, such as grpcs://spillway.example.com:7704", quote(r.ServerURL))
	v.need(!ok || strings.HasPrefix(u.Scheme, "ws") || u.Path == "", "gitlab.route.server_url", "%s: a gRPC address has no path", quote(r.ServerURL))
	if r.Advertise != "" {
		_, ok := reached(r.Advertise)
		v.need(ok, "gitlab.route.advertise", "%s: write HOST:PORT, as other replicas reach listen.job_router of this one", quote(r.Advertise))
	}
	v.between(r.LongPoll, MinLongPoll, MaxLongPoll, "gitlab.route.long_poll")
	v.intBetween(r.HoldPerToken, 0, MaxHoldPerToken, "gitlab.route.hold_per_token")
	v.intBetween(r.RatePerToken, 1, MaxRatePerToken, "gitlab.route.rate_per_token")
}

// mode checks that a pool has what its mode lives on.
func (v *validator) mode(p *Pool, at string) {
	v.oneOf(p.Mode, at+".mode", ModeOrchestrate, ModeObserve, ModeRoute)
	g := v.config.GitLab
	if p.Mode == ModeOrchestrate {
		v.need(p.GitLab == nil, at+".gitlab", "is for pools whose jobs come from GitLab; set mode to observe or route, or remove it")
		v.need(p.Observe == nil, at+".observe", "is for pools that GitLab serves; set mode to observe or route, or remove it")
		return
	}
	v.need(g != nil, at+".mode", "mode %s needs a gitlab section with a url", p.Mode)
	if p.GitLab == nil {
		p.GitLab = &PoolGitLab{}
	}
	v.need(p.GitLab.RunnerID >= 0, at+".gitlab.runner_id", "%d is negative; use the number that GitLab shows for the runner", p.GitLab.RunnerID)
	if p.Mode == ModeRoute {
		v.need(g == nil || g.Route != nil, at+".mode", "mode route needs gitlab.route, so that the runners can be told where to ask")
		v.need(!p.GitLab.Token.IsZero(), at+".gitlab.token", "jobs are asked for with the runners' own token; set {env: NAME} or {file: PATH}")
	}
	v.observe(p, at)
}

func (v *validator) observe(p *Pool, at string) {
	if p.Observe == nil {
		p.Observe = &Observe{Drain: "none"}
	}
	o := p.Observe
	v.oneOf(o.Drain, at+".observe.drain", "sidecar", "hook", "none")
	v.need(o.Drain != "sidecar" || !p.RunnerToken.IsZero(), at+".observe.drain", "sidecars register with the pool's runner_token; set it to {env: NAME} or {file: PATH}")
	if m := o.Metrics; m != nil {
		v.runnerMetrics(m, at+".observe.metrics")
	}
	v.blind(p, at)
}

// blind says what of a pool can't be seen or done with what it is given.
func (v *validator) blind(p *Pool, at string) {
	g := v.config.GitLab
	if p.Mode != ModeObserve || g == nil {
		return
	}
	sidecar, api := p.Observe.Drain == "sidecar", g.Jobs.Scope != "none" && p.GitLab.RunnerID > 0
	switch {
	case p.Observe.Drain == "none":
		v.warnf(at, "will hold with cannot_drain: nothing can tell a runner of this pool to stop, so it never scales in; set observe.drain to sidecar (an agent beside gitlab-runner) or hook (a terminating hook whose script stops it)")
	case !sidecar && p.Observe.Metrics == nil:
		v.warnf(at, "will hold with cannot_drain: nothing proves that an instance is idle, so it never scales in; set observe.metrics, or observe.drain to sidecar")
	case !sidecar && !api:
		v.warnf(at, "will hold with cannot_drain: metrics alone don't prove that an instance is idle; set gitlab.api_token and the pool's gitlab.runner_id, or observe.drain to sidecar")
	}
	if p.Policy.MaxUses > 0 {
		v.warnf(at+".policy.max_uses", "has no effect: GitLab hands this pool's jobs out, and nothing counts them by instance; remove it and set policy.max_age, or use mode route, which counts them")
	}
	if g.Jobs.Scope == "none" && p.Count == nil {
		v.warnf(at, "will never scale out by itself: nothing tells of waiting jobs; set gitlab.api_token, or a count")
	}
}

func (v *validator) runnerMetrics(m *RunnerMetrics, at string) {
	v.need(m.File == "" || len(m.Targets) == 0, at+".targets_file", "targets are set too; keep one of them")
	v.need(len(m.Targets) <= MaxStaticTargets, at+".targets", "%d targets, at most %d are allowed", len(m.Targets), MaxStaticTargets)
	for instance, target := range m.Targets {
		_, ok := reached(target)
		v.need(ok, at+".targets."+instance, "%s: write HOST:PORT of the runner's metrics", quote(target))
	}
	v.intBetween(m.Port, 1, 65535, at+".port")
	_, err := url.Parse("http://runner" + m.Path)
	v.need(strings.HasPrefix(m.Path, "/") && err == nil, at+".path", "%s: write a path that begins with /, such as /metrics", quote(m.Path))
	v.need(m.CAFile == "" || m.TLS, at+".ca_file", "is for TLS; set tls: true, or remove it")
	v.between(m.Every, MinMetricsEvery, MaxMetricsEvery, at+".every")
	if silent := v.config.Timeouts.Silent; m.Every >= silent {
		v.warnf(at+".every", "a runner that is asked every %s counts as silent for a part of that time, since timeouts.silent is %s; make it a third of that", m.Every, silent)
	}
}

func (v *validator) prometheus(c *Count, at string) {
	v.need(c.Metric == "" && c.Provider == "", at, "provider and metric are a cloud's, prometheus is a query; keep one of them")
	u, err := url.Parse(c.Prometheus.URL)
	v.need(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil, at+".prometheus.url",
		"%s: write the address of a Prometheus server, such as http://prometheus.internal:9090", quote(c.Prometheus.URL))
	v.need(strings.TrimSpace(c.Prometheus.Query) != "", at+".prometheus.query", "write a query whose answer is one number, such as sum(gitlab_runner_jobs)")
}

// poolCapability: a pool of GitLab's runners may leave to GitLab what they take.
func (v *validator) poolCapability(p *Pool, at string) {
	if p.CapabilityFromGitLab() {
		v.need(v.config.GitLab == nil || !v.config.GitLab.APIToken.IsZero(), at,
			"what runner %d takes must be asked of GitLab, and there is no gitlab.api_token; set it, or write the capability here", p.GitLab.RunnerID)
		v.leftToGitLab(p, at)
		return
	}
	v.capability(&p.Capability, at)
}

// leftToGitLab says which settings of a capability nobody reads.
func (v *validator) leftToGitLab(p *Pool, at string) {
	c := &p.Capability
	for _, setting := range []struct {
		name string
		set  bool
	}{
		{"protected", c.Protected},
		{"type", c.Type != "instance"},
		{"groups", len(c.Groups) > 0},
		{"projects", len(c.Projects) > 0},
		{"resources", c.Resources.MilliCPU != 0 || c.Resources.MemoryMiB != 0 || len(c.Resources.Features) > 0},
	} {
		if setting.set {
			v.warnf(at+"."+setting.name, "has no effect: without tags and run_untagged GitLab is asked what runner %d takes; write those here too, or remove it", p.GitLab.RunnerID)
		}
	}
}

// CapabilityFromGitLab reports whether the pool leaves it to GitLab what its runners
// take.
func (p *Pool) CapabilityFromGitLab() bool {
	c := &p.Capability
	return p.Mode != ModeOrchestrate && p.GitLab != nil && p.GitLab.RunnerID > 0 && len(c.Tags) == 0 && !c.RunUntagged
}
