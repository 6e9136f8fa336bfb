package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// maxHookP99Millis is how long it may take from a job that GitLab has queued to the
// provider's call.
const maxHookP99Millis = 500

// hookPause is the longest pause between two jobs: they come at any phase of the control
// plane's clocks, and as slowly as the default budget of API calls allows, since each
// costs one.
const hookPause = time.Second

func gitlabWebhook() Benchmark {
	return Benchmark{"gitlab/webhook", "GitLab queues a job and sends a hook → the provider's SetDesiredCapacity", runWebhook}
}

func runWebhook(ctx context.Context, b *bench) error {
	f := reactShape(b.pick(50, 15))
	return withGitLab(ctx, b, gitlabShape{
		pools: f.pools, group: f.group, cloud: f.cloud, policy: f.policy,
		section: map[string]any{
			"api_token": fromVariable(apiTokenVariable),
			"webhook":   map[string]any{"secret": fromVariable(hookSecretVariable)},
		},
		pool: func(i int) map[string]any {
			return map[string]any{"mode": "observe", "capability": map[string]any{"tags": []string{poolTag(i)}}}
		},
	}, webhooks)
}

// hooked is a job that GitLab told of.
type hooked struct {
	id      int64
	queued  time.Time
	reacted float64 // until the cloud was called [ms]
}

func webhooks(ctx context.Context, b *bench, s *gitlabStand) error {
	p, err := s.start(ctx, "spillway")
	if err != nil {
		return err
	}
	s.gitlab.AddWebhook("http://"+p.log.at.GitLab+controlplane.WebhookPath, hookSecret)
	if err := s.firstList(ctx); err != nil {
		return err
	}
	rounds := make([][]hooked, b.Rounds)
	for i := range rounds {
		if rounds[i], err = s.hookRound(ctx, i*s.shape.pools); err != nil {
			return err
		}
	}
	s.hookRows(b, rounds)
	b.note("%d pools, one job after another at random phase, all defaults (a list every %s besides; %d API calls a minute, of which each hook costs one); control plane, plugin and Redis are processes, GitLab and the cloud stand-ins in this one; calls to GitLab's API: %d pages of lists, %d single jobs",
		s.shape.pools, config.DefaultJobsEvery, config.DefaultRequestsPerMinute, len(s.gitlab.CallsTo(gitlabtest.RouteGraphQL)), len(s.gitlab.CallsTo(gitlabtest.RouteJob)))
	return nil
}

func (s *gitlabStand) hookRows(b *bench, rounds [][]hooked) {
	answered, p50 := measure.Series{Name: "job queued → hook answered, p50"}, measure.Series{Name: "job queued → SetDesiredCapacity, p50"}
	var all []float64
	for _, round := range rounds {
		took := make([]float64, len(round))
		for i, h := range round {
			took[i] = h.reacted
		}
		all = append(all, took...)
		p50.Figures = append(p50.Figures, measure.Percentile(took, 50))
		answered.Figures = append(answered.Figures, measure.Percentile(s.answeredAfter(round), 50))
	}
	p99 := measure.Series{Name: fmt.Sprintf("job queued → SetDesiredCapacity, p99 of all %d", len(all)), Figures: []float64{measure.Percentile(all, 99)}}
	slowest := measure.Series{Name: "job queued → SetDesiredCapacity, the slowest", Figures: []float64{measure.Percentile(all, 100)}}
	below, beyond := s.cloud.against(s.shape.pools, len(rounds))
	b.add(
		measure.ReferenceRow(answered, "ms"),
		measure.RowOf(p50, "ms").Against(p50, answered),
		measure.RowOf(p99, "ms").Judged(measure.ValueAtMost(maxHookP99Millis)),
		measure.RowOf(slowest, "ms"),
		measure.Exactly("hooks lost or refused", "hooks", s.hooksFailed(), 0),
		measure.Exactly("pools without an instance for each job", "pools", below, 0),
		measure.Exactly("instances asked for beyond one per job", "instances", beyond, 0),
	)
}

// firstList waits until a control plane has read GitLab's first list, and settled.
func (s *gitlabStand) firstList(ctx context.Context) error {
	if err := until(ctx, serveTimeout, "no list of jobs was asked for", func() bool {
		return len(s.gitlab.CallsTo(gitlabtest.RouteGraphQL)) > 0
	}); err != nil {
		return err
	}
	return wait(ctx, reactBoot)
}

// until looks often until ok, and fails with what was not so after a while.
func until(ctx context.Context, most time.Duration, what string, ok func() bool) error {
	const every = 10 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, most, errors.New(what+" within "+most.String()))
	defer cancel()
	for !ok() {
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// hookRound queues a job for each pool, one at a time.
func (s *gitlabStand) hookRound(ctx context.Context, before int) ([]hooked, error) {
	phase := rand.New(rand.NewPCG(3, uint64(before)))
	round := make([]hooked, s.shape.pools)
	for pool := range round {
		if err := wait(ctx, time.Duration(phase.Int64N(int64(hookPause)))); err != nil {
			return nil, err
		}
		h, err := s.hookOnce(ctx, pool, before+pool+1)
		if err != nil {
			return nil, err
		}
		round[pool] = h
	}
	return round, nil
}

// hookOnce queues a job and waits until the cloud was called so often in all.
func (s *gitlabStand) hookOnce(ctx context.Context, pool, sets int) (hooked, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reactTimeout, fmt.Errorf("no reaction within %s", reactTimeout))
	defer cancel()
	h := hooked{queued: time.Now()}
	h.id = s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{poolTag(pool)}})
	if err := s.cloud.waitForSets(ctx, sets); err != nil {
		return hooked{}, err
	}
	calls := good(s.cloud.Calls(), opSetDesired)
	last := calls[len(calls)-1]
	if last.Group != groupName(pool) {
		return hooked{}, fmt.Errorf("the cloud was asked for an instance of %s, and the job is for %s", last.Group, groupName(pool))
	}
	h.reacted = millis(last.At.Sub(h.queued))
	return h, nil
}

// answeredAfter is how long it took until each job's hook was answered [ms].
func (s *gitlabStand) answeredAfter(jobs []hooked) (took []float64) {
	queued := map[int64]time.Time{}
	for _, h := range jobs {
		queued[h.id] = h.queued
	}
	for _, call := range s.gitlab.HookCalls() {
		if at, ours := queued[call.JobID]; ours {
			took = append(took, millis(call.At.Sub(at)))
		}
	}
	return took
}

// hooksFailed is how many hooks were not sent or not taken.
func (s *gitlabStand) hooksFailed() (failed int) {
	for _, call := range s.gitlab.HookCalls() {
		if call.Lost != "" || call.Status < 200 || call.Status >= 300 {
			failed++
		}
	}
	return failed
}
