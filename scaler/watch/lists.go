package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

// Lists remembers the last list of each group.
type Lists struct {
	now  func() time.Time
	seen func(pool string, list []pluginsdk.Instance)

	mu struct {
		sync.Mutex
		last map[string]list
	}
}

// list is a group's list and when it was asked for.
type list struct {
	instances []pluginsdk.Instance
	at        time.Time
}

// NewLists returns an empty memory. seen is told each new list, for whoever reads the
// instances' metrics; nil = nobody is. now is time.Now but in a simulation.
func NewLists(now func() time.Time, seen func(pool string, list []pluginsdk.Instance)) *Lists {
	l := &Lists{now: now, seen: seen}
	l.mu.last = make(map[string]list)
	return l
}

// Of returns the group of a pool such that its lists are remembered.
func (l *Lists) Of(pool string, g scaler.Group) scaler.Group {
	return &listed{Group: g, pool: pool, lists: l}
}

// listed is a group whose lists are remembered.
type listed struct {
	scaler.Group
	pool  string
	lists *Lists
}

// ListInstances implements scaler.Group.
func (g *listed) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	at := g.lists.now()
	instances, err := g.Group.ListInstances(ctx)
	if err != nil {
		return nil, err
	}
	g.lists.remember(g.pool, list{instances: slices.Clone(instances), at: at})
	return instances, nil
}

func (l *Lists) remember(pool string, got list) {
	l.mu.Lock()
	l.mu.last[pool] = got
	l.mu.Unlock()
	if l.seen != nil {
		l.seen(pool, slices.Clone(got.instances))
	}
}

// of returns the last list of a pool's group; its time is zero if there was none.
func (l *Lists) of(pool string) list {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.last[pool]
}

// forget drops the lists of all pools but these.
func (l *Lists) forget(keep map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.mu.last, func(pool string, _ list) bool { return !keep[pool] })
}
