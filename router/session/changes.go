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

// changes shares one subscription among all watchers. It exists only while somebody
// watches: reading every change of every job is not free.
type changes struct {
	feed Feed

	mu struct {
		sync.Mutex
		byID     map[spillway.JobID]map[*watcher]struct{}
		everyJob map[*watcher]struct{}
		watchers int
		cancel   context.CancelFunc // of the subscription; nil = none
	}
}

// watcher is one caller of Watch.
type watcher struct {
	ids     []spillway.JobID // empty: every job
	changes chan change
	slow    func() // ends a caller that is too slow; it may be called more than once
}

// change is a job's new state; nil when some may have been missed.
type change struct{ record *spillway.JobRecord }

func newChanges(feed Feed) *changes {
	c := &changes{feed: feed}
	c.mu.byID = make(map[spillway.JobID]map[*watcher]struct{})
	c.mu.everyJob = make(map[*watcher]struct{})
	return c
}

// join makes w hear of all changes from now on.
func (c *changes) join(w *watcher) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.watchers >= maxWatchers {
		return status.Errorf(codes.ResourceExhausted, "%d watchers are connected: try again later", c.mu.watchers)
	}
	if c.mu.cancel == nil {
		// Not the caller's context: the subscription outlives it if others join.
		ctx, cancel := context.WithCancel(context.Background())
		batches, err := c.feed.Subscribe(ctx)
		if err != nil {
			cancel()
			return storeStatus(err)
		}
		c.mu.cancel = cancel
		go c.follow(ctx, batches)
	}
	c.mu.watchers++
	c.list(w)
	return nil
}

func (c *changes) list(w *watcher) {
	if len(w.ids) == 0 {
		c.mu.everyJob[w] = struct{}{}
	}
	for _, id := range w.ids {
		if c.mu.byID[id] == nil {
			c.mu.byID[id] = make(map[*watcher]struct{})
		}
		c.mu.byID[id][w] = struct{}{}
	}
}

// leave ends what join began; the subscription ends with its last watcher.
func (c *changes) leave(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlist(w)
	if c.mu.watchers--; c.mu.watchers == 0 && c.mu.cancel != nil {
		c.mu.cancel()
		c.mu.cancel = nil
	}
}

func (c *changes) unlist(w *watcher) {
	delete(c.mu.everyJob, w)
	for _, id := range w.ids {
		delete(c.mu.byID[id], w)
		if len(c.mu.byID[id]) == 0 {
			delete(c.mu.byID, id)
		}
	}
}

// follow hands on what the subscription brings until it ends. When the store has
// ended it, and not we, those who watch are told that they have missed something;
// the next to come subscribes anew.
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
		for w := range c.mu.everyJob {
			c.offer(w, ch)
		}
		for w := range c.mu.byID[ch.record.Job.ID] {
			c.offer(w, ch)
		}
	}
}

func (c *changes) tellEverybody(ch change) {
	told := make(map[*watcher]bool)
	for w := range c.mu.everyJob {
		c.offer(w, ch)
	}
	for _, watchers := range c.mu.byID {
		for w := range watchers {
			if !told[w] {
				told[w] = true
				c.offer(w, ch)
			}
		}
	}
}

// offer never waits: a watcher that does not keep up is ended, and hears no more.
func (c *changes) offer(w *watcher, ch change) {
	select {
	case w.changes <- ch:
	default:
		c.unlist(w)
		w.slow()
	}
}
