package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab"
)

// Times of learning what runners take.
const (
	// capabilityTimeout is what GitLab has for one answer.
	capabilityTimeout = 10 * time.Second
	// capabilityRetry is when one that can't be asked is asked again.
	capabilityRetry = 15 * time.Second
	// capabilityLook is how often what GitLab says by now is compared.
	capabilityLook = 15 * time.Second
)

// capabilities is what GitLab says that the pools' runners take. Jobs are listed once
// GitLab has answered of every pool: until then the pools are held, since the board is
// absent. A pool that it tells nothing of is held by itself.
type capabilities struct {
	g *gitLab
	// left are the pools that leave it to GitLab what their runners take.
	left map[string]bool

	mu struct {
		sync.Mutex
		ids      map[string]int64 // GitLab's id of each pool's runner
		declared map[string]spillway.Capability
		findings map[string]string // by pool
		source   *collect.GitLab   // the one that runs
	}
}

func newCapabilities(g *gitLab) *capabilities {
	k := &capabilities{g: g, left: map[string]bool{}}
	k.mu.ids, k.mu.declared, k.mu.findings = map[string]int64{}, map[string]spillway.Capability{}, map[string]string{}
	for i := range g.c.cfg.Pools {
		p := &g.c.cfg.Pools[i]
		if p.GitLab != nil && p.GitLab.RunnerID > 0 {
			k.mu.ids[p.Name] = p.GitLab.RunnerID
		}
		k.left[p.Name] = p.CapabilityFromGitLab()
	}
	return k
}

// runner is GitLab's id of a pool's runner; 0 = not known.
func (k *capabilities) runner(pool string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.ids[pool]
}

func (k *capabilities) runners() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(k.mu.ids)))
}

// finding is what somebody should look at about a pool's runner in GitLab; empty =
// nothing.
func (k *capabilities) finding(pool string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.findings[pool]
}

// unknown is why it isn't known what a pool's runners take; empty = it is. No job is
// the pool's then, which says nothing of how many there are.
func (k *capabilities) unknown(pool string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.mu.declared[pool]; known || !k.left[pool] {
		return ""
	}
	return cmp.Or(k.mu.findings[pool], "GitLab has not said yet what the pool's runners take")
}

func (k *capabilities) source() *collect.GitLab {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.source
}

// run learns what the pools' runners take, has jobs listed accordingly, and begins anew
// when that changes.
func (k *capabilities) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := k.learn(ctx); err != nil {
			if ctx.Err() == nil {
				k.g.c.log.Warn("what the pools' runners take is not known: their pools are held", "error", err)
			}
			pause(ctx, capabilityRetry)
			continue
		}
		if err := k.list(ctx); err != nil {
			k.g.c.log.Error("GitLab's jobs can't be listed", "error", err)
			pause(ctx, capabilityRetry)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// learn asks GitLab about the runner of each pool that leaves it to GitLab. That GitLab
// refuses to answer of one is noted, and no error: the others need not wait for somebody
// to mend it.
func (k *capabilities) learn(ctx context.Context) error {
	var errs []error
	for i := range k.g.c.cfg.Pools {
		p := &k.g.c.cfg.Pools[i]
		if p.Mode == config.ModeOrchestrate {
			continue
		}
		if err := k.identify(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", p.Name, err))
			continue
		}
		if !p.CapabilityFromGitLab() {
			continue
		}
		if err := k.ask(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// identify finds the id of a runner that only its token is known of.
func (k *capabilities) identify(ctx context.Context, p *config.Pool) error {
	if k.runner(p.Name) > 0 || p.GitLab.Token.IsZero() || k.g.cfg.Jobs.Scope == "none" {
		return nil
	}
	secret, err := p.GitLab.Token.Read()
	if err != nil {
		return fmt.Errorf("gitlab.token: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, capabilityTimeout)
	defer cancel()
	id, err := k.g.client.Verify(ctx, secret.Reveal(), "")
	switch {
	case errors.Is(err, gitlab.ErrUnauthorized):
		k.note(p.Name, "runner_token_refused: "+said(err))
		return nil
	case err != nil:
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.ids[p.Name] = id
	return nil
}

func (k *capabilities) ask(ctx context.Context, p *config.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, capabilityTimeout)
	defer cancel()
	r, err := k.g.client.Runner(ctx, k.runner(p.Name))
	switch {
	case errors.Is(err, gitlab.ErrNotFound):
		k.note(p.Name, fmt.Sprintf("runner_not_found: GitLab knows no runner %d: correct gitlab.runner_id", k.runner(p.Name)))
		return nil
	case errors.Is(err, gitlab.ErrForbidden):
		k.note(p.Name, "runner_unreadable: "+said(err))
		return nil
	case err != nil:
		return err
	}
	k.declare(p, collect.CapabilityOf(k.g.cfg.URL, &r))
	return nil
}

// declare takes over what GitLab says that a pool's runners take, and reports whether
// that is news.
func (k *capabilities) declare(p *config.Pool, c spillway.Capability) bool {
	k.mu.Lock()
	before, known := k.mu.declared[p.Name]
	news := !known || before.Fingerprint() != c.Fingerprint()
	k.mu.declared[p.Name] = c
	k.mu.Unlock()
	if !news {
		return false
	}
	if !p.CapabilityFromGitLab() {
		k.compare(p, c)
		return false
	}
	k.note(p.Name, "")
	k.g.c.reconfigure(p.Name, c)
	return true
}

// compare tells where the configuration and GitLab differ. The configuration counts.
func (k *capabilities) compare(p *config.Pool, c spillway.Capability) {
	ours := k.g.c.definition(p.Name)
	if sameJobs(ours.Capability, c) {
		k.note(p.Name, "")
		return
	}
	k.note(p.Name, fmt.Sprintf("capability_differs: %s: correct one of them, or leave the pool's capability out", difference(ours.Capability, c, k.runner(p.Name))))
}

func (k *capabilities) note(pool, finding string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if finding != "" && k.mu.findings[pool] != finding {
		k.g.c.log.Warn(finding, "pool", pool)
	}
	k.mu.findings[pool] = finding
}

// list has GitLab's jobs listed until ctx ends or what a runner takes has changed.
func (k *capabilities) list(ctx context.Context) error {
	if !k.g.tells() {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source, err := k.g.source(ctx, k.g.c.definitions())
	if err != nil {
		return err
	}
	k.setSource(source)
	defer k.setSource(nil)
	k.g.machines.SetPools(k.g.watched()) // by now the ids of their runners are known
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx)
	}()
	tick := time.NewTicker(capabilityLook)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			if k.follow(ctx) {
				cancel()
				<-done
				return nil
			}
		}
	}
}

func (k *capabilities) setSource(s *collect.GitLab) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.source = s
}

// follow compares what the board says of each runner, and reports whether jobs have to
// be listed anew.
func (k *capabilities) follow(ctx context.Context) bool {
	board, err := k.g.sources.Board(ctx)
	if err != nil {
		return false
	}
	news := false
	for i := range k.g.c.cfg.Pools {
		p := &k.g.c.cfg.Pools[i]
		if p.Mode == config.ModeOrchestrate {
			continue
		}
		if k.runner(p.Name) == 0 { // a token that was refused may be good by now
			news = (k.identify(ctx, p) == nil && k.runner(p.Name) > 0) || news
			continue
		}
		if state, ok := board.Runners[k.runner(p.Name)]; ok && state.Declares != nil {
			news = k.declare(p, state.Declares.Capability) || news
		}
	}
	return news
}
