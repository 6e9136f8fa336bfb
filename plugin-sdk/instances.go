package pluginsdk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// unseenFor is how long an instance that was created may be missing from the list
// before it is no longer counted. Clouds whose lists lag do so by seconds; one that
// is still missing then has failed.
const unseenFor = 5 * time.Minute

// Instances is a cloud that knows instances and no groups with a desired number, as
// most of the small ones do. [FromInstances] makes a provider of it.
//
// Calls may come concurrently; errors are those of a [Provider].
type Instances interface {
	Describe(ctx context.Context) (Description, error)
	Configure(ctx context.Context, config []byte) error
	// List returns the instances of a group in every state that bills, all of them or
	// an error, and how many it may have. ErrNotFound: no such group.
	List(ctx context.Context, group string) (all []Instance, most int, err error)
	// Create makes one instance and returns its id; it need not wait until it runs.
	Create(ctx context.Context, group string) (id string, err error)
	// Delete ends one instance; it need not wait until it is gone.
	Delete(ctx context.Context, group, id string) error
	Close(ctx context.Context) error
}

// FromInstances keeps the contract's promises about numbers over a cloud that has
// none: desired is the instances that are listed and not being deleted, and those
// that were created and are not listed yet. The number is not raised again for an
// instance that ends by itself: the host asks for a new one if it is needed.
func FromInstances(cloud Instances) Provider {
	p := &instanceProvider{cloud: cloud, turn: make(chan struct{}, 1)}
	p.mu.unseen = map[string]map[string]time.Time{}
	return p
}

type instanceProvider struct {
	Unsupported
	cloud Instances
	turn  chan struct{} // one write at a time: none sees half of another
	mu    struct {
		sync.Mutex
		unseen map[string]map[string]time.Time // group → id → when it was created
	}
}

func (p *instanceProvider) Describe(ctx context.Context) (Description, error) {
	return p.cloud.Describe(ctx)
}

func (p *instanceProvider) Configure(ctx context.Context, config []byte) error {
	return p.cloud.Configure(ctx, config)
}

func (p *instanceProvider) Close(ctx context.Context) error { return p.cloud.Close(ctx) }

func (p *instanceProvider) Status(ctx context.Context, groups []string) ([]GroupStatus, error) {
	if err := CheckGroups(groups); err != nil {
		return nil, err
	}
	answers := make([]GroupStatus, len(groups))
	for i, group := range groups {
		all, most, err := p.list(ctx, group)
		answers[i] = GroupStatus{Group: group, Desired: wanted(all), Max: most, Err: err}
	}
	return answers, nil
}

func (p *instanceProvider) ListInstances(ctx context.Context, group string) ([]Instance, error) {
	all, _, err := p.list(ctx, group)
	return all, err
}

// list is the cloud's list and what it doesn't show yet.
func (p *instanceProvider) list(ctx context.Context, group string) ([]Instance, int, error) {
	all, most, err := p.cloud.List(ctx, group)
	if err != nil {
		return nil, 0, err
	}
	all = slices.Clone(all) // it may be the cloud's own memory
	p.mu.Lock()
	defer p.mu.Unlock()
	unseen := p.mu.unseen[group]
	for _, in := range all {
		delete(unseen, in.ID)
	}
	maps.DeleteFunc(unseen, func(_ string, at time.Time) bool { return time.Since(at) > unseenFor })
	for _, id := range slices.Sorted(maps.Keys(unseen)) {
		all = append(all, Instance{ID: id, State: StateCreating, LaunchedAt: unseen[id]})
	}
	return all, most, nil
}

// wanted counts the instances that make up desired.
func wanted(all []Instance) (n int) {
	for _, in := range all {
		if in.State != StateDeleting {
			n++
		}
	}
	return n
}

// begin waits for the turn to write.
func (p *instanceProvider) begin(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return Errorf(KindTransient, "another write goes on: %w", context.Cause(ctx))
	}
}

func (p *instanceProvider) end() { <-p.turn }

func (p *instanceProvider) SetDesired(ctx context.Context, r SetDesired) (int, error) {
	if err := p.begin(ctx); err != nil {
		return 0, err
	}
	defer p.end()
	all, most, err := p.list(ctx, r.Group)
	if err != nil {
		return 0, err
	}
	n := wanted(all)
	switch {
	case r.Target == n:
		return n, nil
	case r.Expected != n:
		return n, Conflict(n)
	case r.Target < n || r.Target > most:
		return n, Errorf(KindInvalid, "group %s: desired can be set to %d to %d; fewer is a matter of Remove", r.Group, n, most)
	}
	for ; n < r.Target; n++ {
		id, err := p.cloud.Create(ctx, r.Group)
		if err != nil {
			return n, err // what was created shows in the list
		}
		p.created(r.Group, id)
	}
	return n, nil
}

func (p *instanceProvider) created(group, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.unseen[group] == nil {
		p.mu.unseen[group] = map[string]time.Time{}
	}
	p.mu.unseen[group][id] = time.Now()
}

func (p *instanceProvider) Remove(ctx context.Context, group string, ids []string, _ string) ([]RemoveResult, error) {
	if err := CheckInstances(ids); err != nil {
		return nil, err
	}
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	defer p.end()
	all, _, err := p.list(ctx, group)
	if err != nil {
		return nil, err
	}
	results := make([]RemoveResult, len(ids))
	for i, id := range ids {
		results[i] = p.remove(ctx, group, id, all)
	}
	return results, nil
}

func (p *instanceProvider) remove(ctx context.Context, group, id string, all []Instance) RemoveResult {
	at := slices.IndexFunc(all, func(in Instance) bool { return in.ID == id })
	switch {
	case at < 0 || all[at].State == StateDeleting:
		return RemoveResult{ID: id, Outcome: AlreadyGone}
	case all[at].Kept:
		return RemoveResult{ID: id, Outcome: NotRemoved, Err: Errorf(KindInvalid, "%s is marked as to be kept", id)}
	}
	err := p.cloud.Delete(ctx, group, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return RemoveResult{ID: id, Outcome: AlreadyGone}
	case err != nil:
		return RemoveResult{ID: id, Outcome: NotRemoved, Err: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.unseen[group], id)
	all[at].State = StateDeleting // the same id twice in one call is removed once
	return RemoveResult{ID: id, Outcome: Removed}
}
