package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	// maxForwards bounds the notices that wait to be told to other replicas
	// [notices]; more are dropped, and the provider's next list tells of them anyway.
	maxForwards = 256
	// forwardAttempts is how often one is told while the store is away, and
	// forwardPause the wait before the second time, doubling.
	forwardAttempts = 5
	forwardPause    = 500 * time.Millisecond
)

// notices spreads what providers say of instances. A provider tells one replica, and
// each pool is scaled by one, which may be another: so each notice is handed to this
// replica's loop, and through the store to everybody else's. Who does not own the
// pool does nothing with it. A replica hears its own again, and two may be told the
// same: a notice that says nothing new changes nothing.
type notices struct {
	store interface {
		PublishNotice(ctx context.Context, n store.Notice) error
		Notices(ctx context.Context) (<-chan store.Notice, error)
	}
	hear   func(pool string, n pluginsdk.Interruption) // of this replica's loop
	gone   func([]spillway.MachineID)                  // of this replica's router
	groups map[string]string                           // of each pool
	log    *slog.Logger
	queue  chan store.Notice // 1 reader: forward
}

func (c *ControlPlane) newNotices() *notices {
	groups := make(map[string]string, len(c.pools))
	for i := range c.pools {
		groups[c.pools[i].Name] = c.pools[i].Group
	}
	return &notices{store: c.store, hear: c.loop.Interrupted, gone: c.dispatcher.MachinesEnded, groups: groups, log: c.log, queue: make(chan store.Notice, maxForwards)}
}

// run forwards and follows until ctx ends.
func (s *notices) run(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { s.forward(ctx) })
	wg.Go(func() { s.follow(ctx) })
}

// told takes a provider's notice. It never waits: a store that is away holds up
// neither the provider nor the pool's own loop.
func (s *notices) told(pool string, n pluginsdk.Interruption) {
	n.Deadline = router.BelievableDeadline(time.Now(), n.Deadline)
	s.hear(pool, n)
	s.tell(store.Notice{Pool: pool, Instance: n.InstanceID, Kind: string(n.Kind), Deadline: n.Deadline})
}

// ended tells every router that machines are gone with their instances.
func (s *notices) ended(pool string, ids []spillway.MachineID) {
	s.gone(ids)
	for _, id := range ids {
		s.tell(store.Notice{Pool: pool, Instance: string(id), Kind: store.NoticeEnded})
	}
}

func (s *notices) tell(n store.Notice) {
	select {
	case s.queue <- n:
	default:
		s.log.Warn("a notice was not told to other replicas", "pool", n.Pool, "instance", n.Instance, "kind", n.Kind, "waiting", maxForwards)
	}
}

func (s *notices) forward(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-s.queue:
			if err := s.publish(ctx, n); err != nil && ctx.Err() == nil {
				s.log.Warn("a notice was not told to other replicas", "pool", n.Pool, "instance", n.Instance, "kind", n.Kind, "error", err)
			}
		}
	}
}

// publish tries for a while: said twice does no harm.
func (s *notices) publish(ctx context.Context, n store.Notice) error {
	pause := forwardPause
	for attempt := 1; ; attempt++ {
		err := s.store.PublishNotice(ctx, n)
		if err == nil || attempt == forwardAttempts || errors.Is(err, spillway.ErrInvalid) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// follow hands on what any replica was told.
func (s *notices) follow(ctx context.Context) {
	for ctx.Err() == nil {
		published, err := s.store.Notices(ctx)
		if err != nil {
			s.log.Warn("not told of other replicas' interruptions for now", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(forwardPause):
			}
			continue
		}
		for n := range published {
			s.heard(n)
		}
	}
}

// heard takes in what another replica published, as advice: for a pool that we have,
// with a deadline that can be right.
func (s *notices) heard(n store.Notice) {
	group, ours := s.groups[n.Pool]
	if !ours {
		return
	}
	if n.Kind == store.NoticeEnded {
		s.gone([]spillway.MachineID{spillway.MachineID(n.Instance)})
		return
	}
	s.hear(n.Pool, pluginsdk.Interruption{
		Group: group, InstanceID: n.Instance, Kind: pluginsdk.InterruptionKind(n.Kind),
		Deadline: router.BelievableDeadline(time.Now(), n.Deadline),
	})
}
