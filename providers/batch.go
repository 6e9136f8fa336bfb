package providers

import (
	"context"
	"slices"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// batcher makes one Status call of those that come within batchWindow of each other:
// with a thousand pools on one account, a call for each would use up the budget. A
// batch that holds every group that there is doesn't wait, and a lone group needs
// none.
type batcher struct {
	plugin *Plugin
	mu     struct {
		sync.Mutex
		groups map[string]bool // all that a pool may ask for
		open   *batch          // that can still be joined
	}
}

// batch is one shared call. It goes on as long as one of the callers waits.
type batch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	begun  time.Time
	groups map[string]bool // guarded by batcher.mu while open, then constant
	done   chan struct{}
	// The outcome, constant once done is closed.
	statuses map[string]pluginsdk.GroupStatus
	err      error
	waiting  int // guarded by batcher.mu
}

func newBatcher(p *Plugin) *batcher {
	b := &batcher{plugin: p}
	b.mu.groups = map[string]bool{}
	return b
}

// expect tells that somebody will ask for group.
func (b *batcher) expect(group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.groups[group] = true
}

// status asks for one group, together with whoever asks now.
func (b *batcher) status(ctx context.Context, group string) (pluginsdk.GroupStatus, error) {
	if b.alone(group) {
		answers, err := b.plugin.reads.Status(ctx, []string{group})
		if err != nil {
			return pluginsdk.GroupStatus{}, err
		}
		return answers[0], answers[0].Err
	}
	shared := b.join(group)
	select {
	case <-shared.done:
		b.leave(shared, nil)
	case <-ctx.Done():
		b.leave(shared, context.Cause(ctx))
		return pluginsdk.GroupStatus{}, pluginsdk.Errorf(pluginsdk.KindTransient, "no status: %w", endOf(ctx))
	}
	if shared.err != nil {
		return pluginsdk.GroupStatus{}, shared.err
	}
	s := shared.statuses[group]
	return s, s.Err
}

// alone reports whether nobody else could ask.
func (b *batcher) alone(group string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.groups) == 1 && b.mu.groups[group]
}

func (b *batcher) join(group string) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.mu.open
	if open == nil || len(open.groups) == pluginsdk.MaxGroupsPerCall {
		open = b.begin()
		b.mu.open = open
	}
	open.groups[group] = true
	open.waiting++
	switch full := len(open.groups) >= min(len(b.mu.groups), pluginsdk.MaxGroupsPerCall); {
	case !full && time.Since(open.begun) > batchPatience-batchWindow: // goes when it was to go
	case !open.timer.Stop(): // goes already
	case full:
		b.mu.open = nil
		go b.carryOut(open)
	default:
		open.timer.Reset(batchWindow)
	}
	return open
}

func (b *batcher) begin() *batch {
	ctx, cancel := context.WithCancelCause(context.Background())
	shared := &batch{ctx: ctx, cancel: cancel, groups: map[string]bool{}, begun: time.Now(), done: make(chan struct{})}
	shared.timer = time.AfterFunc(batchWindow, func() { b.send(shared) })
	return shared
}

// leave ends the call when nobody waits for it any more, for the reason that the
// last one had: the deadlines of the callers are the call's.
func (b *batcher) leave(shared *batch, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shared.waiting--
	if shared.waiting == 0 && shared != b.mu.open {
		shared.cancel(why)
	}
}

func (b *batcher) send(shared *batch) {
	b.mu.Lock()
	if b.mu.open == shared {
		b.mu.open = nil
	}
	deserted := shared.waiting == 0
	b.mu.Unlock()
	if deserted {
		shared.cancel(nil)
	}
	b.carryOut(shared)
}

// carryOut makes the call and hands out the answer.
func (b *batcher) carryOut(shared *batch) {
	defer close(shared.done)
	defer shared.cancel(nil)
	ctx, cancel := withPatience(shared.ctx, b.plugin.timing.Read)
	defer cancel()
	groups := make([]string, 0, len(shared.groups))
	for g := range shared.groups {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	answers, err := b.plugin.reads.Status(ctx, groups)
	if err != nil {
		shared.err = err
		return
	}
	shared.statuses = make(map[string]pluginsdk.GroupStatus, len(answers))
	for _, s := range answers {
		shared.statuses[s.Group] = s
	}
}

// matches checks that each group asked for is answered, in that order.
func matches(groups []string, answers []pluginsdk.GroupStatus) error {
	if len(answers) != len(groups) {
		return refused(OpStatus, "%d groups, %d were asked", len(answers), len(groups))
	}
	for i, s := range answers {
		if s.Group != groups[i] {
			return refused(OpStatus, "entry %d is about group %.200q, %.200q was asked", i, s.Group, groups[i])
		}
	}
	return nil
}
