package session

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

const (
	// watchBuffer bounds the changes that one watcher has not taken yet [records].
	watchBuffer = 1024
	// maxWatchers bounds the watchers of one replica [streams].
	maxWatchers = 1000
)

// Feed tells of every change of every job.
type Feed interface {
	Subscribe(ctx context.Context) (<-chan store.EventBatch, error)
}

// changes shares one subscription among all who listen. It exists only while somebody
// does: reading every change of every job is not free.
type changes struct {
	feed Feed

	mu struct {
		sync.Mutex
		byID      map[spillway.JobID]map[listener]struct{}
		everyJob  map[listener]struct{}
		listeners map[listener]struct{}
		cancel    context.CancelFunc // of the subscription; nil = none
	}
}

// listener is a caller that wants to know what becomes of jobs.
type listener interface {
	// offer hands a change over without waiting; false when the listener does not keep
	// up, and shall hear no more.
	offer(ch change) bool
}

// change is a job's new state; nil when some may have been missed.
type change struct{ record *spillway.JobRecord }

func newChanges(feed Feed) *changes {
	c := &changes{feed: feed}
	c.mu.byID = make(map[spillway.JobID]map[listener]struct{})
	c.mu.everyJob = make(map[listener]struct{})
	c.mu.listeners = make(map[listener]struct{})
	return c
}

// join makes l one of those who listen. It hears of nothing yet; leave ends it.
func (c *changes) join(l listener) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.listeners) >= maxWatchers {
		return status.Errorf(codes.ResourceExhausted, "%d watchers are connected: try again later", len(c.mu.listeners))
	}
	if c.mu.cancel == nil {
		if err := c.subscribe(); err != nil {
			return err
		}
	}
	c.mu.listeners[l] = struct{}{}
	return nil
}

// subscribe is called under the lock.
func (c *changes) subscribe() error {
	// Not the caller's context: the subscription outlives it if others join.
	ctx, cancel := context.WithCancel(context.Background())
	batches, err := c.feed.Subscribe(ctx)
	if err != nil {
		cancel()
		return storeStatus(err)
	}
	c.mu.cancel = cancel
	go c.follow(ctx, batches)
	return nil
}

// hearAll makes l, which has joined, hear of all changes from now on.
func (c *changes) hearAll(l listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.everyJob[l] = struct{}{}
}

// hear makes l, which has joined, hear of all changes of jobs from now on.
func (c *changes) hear(l listener, ids []spillway.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.mu.byID[id] == nil {
			c.mu.byID[id] = make(map[listener]struct{})
		}
		c.mu.byID[id][l] = struct{}{}
	}
}

// unhear ends hear for some jobs.
func (c *changes) unhear(l listener, ids ...spillway.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.mu.byID[id], l)
		if len(c.mu.byID[id]) == 0 {
			delete(c.mu.byID, id)
		}
	}
}

// leave ends what join began, for a listener that hears of these jobs at most; the
// subscription ends with the last one.
func (c *changes) leave(l listener, ids []spillway.JobID) {
	c.unhear(l, ids...)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.everyJob, l)
	delete(c.mu.listeners, l)
	if len(c.mu.listeners) == 0 && c.mu.cancel != nil {
		c.mu.cancel()
		c.mu.cancel = nil
	}
}

// follow hands on what the subscription brings until it ends. When the store has
// ended it, and not we, those who listen are told that they have missed something; the
// next to come subscribes anew.
func (c *changes) follow(ctx context.Context, batches <-chan store.EventBatch) {
	for batch := range batches {
		c.deal(batch)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	c.mu.cancel()
	c.mu.cancel = nil
	c.tellEverybody(change{})
}

func (c *changes) deal(batch store.EventBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch.Lost {
		c.tellEverybody(change{})
	}
	for i := range batch.Events {
		ch := change{&batch.Events[i].Record}
		for l := range c.mu.everyJob {
			c.offer(l, ch)
		}
		for l := range c.mu.byID[ch.record.Job.ID] {
			c.offer(l, ch)
		}
	}
}

func (c *changes) tellEverybody(ch change) {
	for l := range c.mu.listeners {
		c.offer(l, ch)
	}
}

// offer never waits: whoever does not keep up hears no more.
func (c *changes) offer(l listener, ch change) {
	if _, hears := c.mu.listeners[l]; hears && !l.offer(ch) {
		delete(c.mu.listeners, l)
	}
}
