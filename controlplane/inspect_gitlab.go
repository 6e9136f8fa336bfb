package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/webhook"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// inspectTimeout bounds all questions to GitLab [time]: the budget of calls may make
// a large configuration wait for its turn.
const inspectTimeout = 2 * time.Minute

// gitlab looks at what the configuration says of GitLab, with the tokens that it names.
func (i *surroundings) gitlab(ctx context.Context) {
	i.webhook()
	client, err := newGitLabClient(i.cfg)
	if err != nil {
		i.add("gitlab_unusable", pluginsdk.FindingError, place{setting: "gitlab"}, "see the message", "%s", said(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	q := questions{
		surroundings: i, client: client, pools: i.cfg.SpillwayPools(), api: readable(i.cfg.GitLab.APIToken),
		runners: map[int64]runnerAnswer{}, ids: map[string]tokenAnswer{},
	}
	if err := q.all(ctx); err != nil {
		i.add("gitlab_unusable", pluginsdk.FindingError, place{setting: "gitlab.url"}, remedy(err), "%s", said(err))
	}
}

// webhook: the receiver itself says what is wrong with its secret.
func (i *surroundings) webhook() {
	w := i.cfg.GitLab.Webhook
	if w == nil || !readable(w.Secret) {
		return // said already
	}
	deaf := func(context.Context, webhook.Event) error { return nil }
	if _, err := webhook.New(webhook.Options{Secret: reveal(w.Secret), Heard: deaf}); err != nil {
		i.add("webhook_secret_short", pluginsdk.FindingError, place{setting: "gitlab.webhook.secret"},
			"make a longer one, and give the webhook in GitLab the same", "%s", strings.TrimPrefix(err.Error(), "gitlab.webhook.secret: "))
	}
}

// questions asks GitLab each thing once. Its methods return the errors that are nobody's
// in particular: GitLab isn't there, so that the next question would get the same.
type questions struct {
	*surroundings
	client  *gitlab.Client
	pools   []spillway.Pool // in the order of the configuration
	api     bool            // there is a token for the API that GitLab takes
	runners map[int64]runnerAnswer
	ids     map[string]tokenAnswer // by runner token
}

type runnerAnswer struct {
	gitlab.Runner
	err error
}

type tokenAnswer struct {
	runner int64
	err    error
}

// isGeneral reports whether an answer says nothing about what was asked.
func isGeneral(err error) bool {
	var limited *gitlab.Limited
	return errors.Is(err, gitlab.ErrUnavailable) || errors.Is(err, gitlab.ErrProtocol) || errors.As(err, &limited) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// said is an error of the client as a sentence about a setting.
func said(err error) string { return strings.TrimPrefix(err.Error(), "gitlab: ") }

// remedy is what to do about an error that does not say it itself.
func remedy(err error) string {
	switch {
	case errors.Is(err, gitlab.ErrUnauthorized):
		return "put a token that GitLab takes where gitlab.api_token points"
	case errors.Is(err, gitlab.ErrForbidden):
		return "give the token that right, or ask for less with gitlab.jobs"
	case errors.Is(err, gitlab.ErrNotFound):
		return "correct gitlab.jobs, or let the token see it"
	case errors.Is(err, gitlab.ErrProtocol):
		return "correct gitlab.url"
	default:
		return "see the message"
	}
}

func (q *questions) all(ctx context.Context) error {
	if err := q.rights(ctx); err != nil {
		return err
	}
	for n := range q.cfg.Pools {
		p := &q.cfg.Pools[n]
		if p.Mode == config.ModeOrchestrate {
			continue
		}
		id, err := q.identify(ctx, p)
		if err == nil && id > 0 && q.api {
			err = q.pool(ctx, n, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rights looks whether the token may list the jobs that it is to list.
func (q *questions) rights(ctx context.Context) error {
	scope, listed := jobScope(q.cfg.GitLab.Jobs)
	if !q.api || !listed {
		return nil
	}
	err := q.client.Check(ctx, scope)
	switch {
	case err == nil:
		return nil
	case isGeneral(err):
		return err
	default:
		q.refused(err)
		return nil
	}
}

// refused says what is wrong with the API token.
func (q *questions) refused(err error) {
	q.api = q.api && !errors.Is(err, gitlab.ErrUnauthorized)
	q.add("gitlab_unusable", pluginsdk.FindingError, place{setting: "gitlab.api_token"}, remedy(err), "%s", said(err))
}

// jobScope is whose jobs are listed; ok is false where none are.
func jobScope(j config.GitLabJobs) (scope gitlab.Scope, ok bool) {
	switch j.Scope {
	case "none":
		return gitlab.Scope{}, false
	case "groups":
		return gitlab.Scope{Kind: gitlab.Groups, Paths: j.Groups}, true
	case "projects":
		return gitlab.Scope{Kind: gitlab.Projects, Paths: j.Projects}, true
	default:
		return gitlab.Scope{Kind: gitlab.Instance}, true
	}
}

// identify finds the runner of a pool, by its token too where it has one; 0 = it isn't
// known.
func (q *questions) identify(ctx context.Context, p *config.Pool) (int64, error) {
	id := p.GitLab.RunnerID
	if !readable(p.GitLab.Token) {
		return id, nil
	}
	of, err := q.verify(ctx, p.GitLab.Token)
	at := in(p, "gitlab.token")
	switch {
	case errors.Is(err, gitlab.ErrUnauthorized):
		q.add("runner_token_refused", pluginsdk.FindingError, at, "put the token of a runner that exists where gitlab.token points", "%s", said(err))
	case err != nil:
		return 0, err
	case id > 0 && of != id:
		q.add("runner_token_differs", pluginsdk.FindingWarning, at, "correct gitlab.runner_id or the token",
			"the token is that of runner %d, and gitlab.runner_id is %d", of, id)
	case id == 0:
		id = of
	}
	return id, nil
}

func (q *questions) verify(ctx context.Context, token config.SecretSource) (int64, error) {
	secret, err := token.Read()
	if err != nil {
		return 0, err
	}
	a, asked := q.ids[secret.Reveal()]
	if !asked {
		a.runner, a.err = q.client.Verify(ctx, secret.Reveal(), "")
		q.ids[secret.Reveal()] = a
	}
	return a.runner, a.err
}

// pool compares a pool with its runner in GitLab.
func (q *questions) pool(ctx context.Context, n int, id int64) error {
	a, asked := q.runners[id]
	if !asked {
		a.Runner, a.err = q.client.Runner(ctx, id)
		q.runners[id] = a
	}
	p := &q.cfg.Pools[n]
	at := in(p, "gitlab.runner_id")
	switch {
	case a.err == nil:
	case errors.Is(a.err, gitlab.ErrNotFound):
		q.add("runner_not_found", pluginsdk.FindingError, at, "correct gitlab.runner_id", "GitLab knows no runner %d", id)
		return nil
	case errors.Is(a.err, gitlab.ErrUnauthorized):
		q.refused(a.err)
		return nil
	case errors.Is(a.err, gitlab.ErrForbidden):
		q.add("runner_unreadable", pluginsdk.FindingError, at, "give gitlab.api_token that right", "%s", said(a.err))
		return nil
	default:
		return a.err
	}
	if a.Paused {
		q.add("runner_paused", pluginsdk.FindingWarning, at, "resume it in GitLab", "runner %d is paused: it takes no jobs, and the pool starts no instances", id)
	}
	ours, theirs := q.pools[n].Capability, collect.CapabilityOf(q.cfg.GitLab.URL, &a.Runner)
	if !p.CapabilityFromGitLab() && !sameJobs(ours, theirs) {
		q.add("capability_differs", pluginsdk.FindingWarning, in(p, "capability"), "correct one of them, or leave the pool's capability out",
			"%s", difference(ours, theirs, id))
	}
	return nil
}

// sameJobs reports whether two capabilities take the same jobs of GitLab, which knows
// nothing of resources.
func sameJobs(a, b spillway.Capability) bool {
	a.Resources, b.Resources = spillway.Resources{}, spillway.Resources{}
	return a.Fingerprint() == b.Fingerprint()
}

// difference is a sentence with both capabilities.
func difference(ours, theirs spillway.Capability, runner int64) string {
	ours.Origin, theirs.Origin = "", "" // the same GitLab
	return fmt.Sprintf("the pool says %q, and runner %d in GitLab says %q", ours, runner, theirs)
}

// hook: a pool that drains by its group's hook needs a plugin that has seen one and can
// let it go on. That there is none is the plugin's own finding.
func (i *inspection) hook(plugin *providers.Plugin, p *config.Pool, found []pluginsdk.Finding) []Finding {
	if p.Mode == config.ModeOrchestrate || p.Observe.Drain != "hook" {
		return nil
	}
	told := slices.ContainsFunc(found, func(f pluginsdk.Finding) bool {
		return f.Group == p.Group && (f.Code == terminatingHook || f.Code == "no_terminating_hook")
	})
	if told && slices.Contains(plugin.State().Capabilities, pluginsdk.CanCompleteHook) {
		return nil
	}
	return []Finding{i.about("hook_not_verifiable", pluginsdk.FindingWarning, "for ec2asg set hooks.drain_timeout in the provider's config; otherwise use observe.drain: sidecar",
		"the plugin does not tell whether the group has a terminating hook, or can't complete one: the pool holds with cannot_drain")}
}
