package fleeting

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

const (
	// maxWriteAge is how old the list may be that a write goes by.
	maxWriteAge = 2 * time.Second
	// heartbeatsAtOnce bounds the calls of one round.
	heartbeatsAtOnce = 8
)

// maxAge is how old a list may be that is shown.
func (g *group) maxAge() time.Duration {
	if g.members.changing() {
		return min(g.config.ChangingInterval, g.config.UpdateInterval)
	}
	return g.config.UpdateInterval
}

// refresh has the plugin list its instances, if the last list is older than age. An
// error changes nothing of what is known.
func (g *group) refresh(ctx context.Context, age time.Duration) error {
	if !g.stale && !g.listedAt.IsZero() && time.Since(g.listedAt) < age {
		return nil
	}
	var began time.Time
	list, err := call(ctx, g, wire.Update, g.config.Deadlines.Update, func(ctx context.Context, c *wire.Client) ([]wire.Instance, error) {
		began = time.Now()
		return c.Update(ctx)
	})
	if err != nil {
		g.stale = true // what is known is old from now on, also for writes
		return err
	}
	g.members.take(time.Now(), list, g.config.rules())
	g.listedAt, g.stale = began, false
	g.heartbeats(ctx)
	return nil
}

// heartbeats asks for the health of all instances, if it is time to. What isn't
// answered tells nothing.
func (g *group) heartbeats(ctx context.Context) {
	every := g.config.HeartbeatInterval
	if every == 0 || g.noHeartbeat || !g.client.Has(wire.Heartbeat) || time.Since(g.beatAt) < every {
		return
	}
	g.beatAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, g.config.Deadlines.Heartbeat)
	defer cancel()
	ids := g.members.running()
	outcomes := make([]error, len(ids))
	var all errgroup.Group
	all.SetLimit(heartbeatsAtOnce)
	var once sync.Once
	for i, id := range ids {
		all.Go(func() error {
			err := g.client.Heartbeat(ctx, id)
			if status.Code(err) == codes.Unimplemented {
				once.Do(func() { g.noHeartbeat = true })
			}
			outcomes[i] = err
			return nil
		})
	}
	_ = all.Wait() // none returns one
	if g.noHeartbeat {
		return
	}
	for i, id := range ids {
		if err := outcomes[i]; err == nil || refusal(err) {
			g.members.beat(id, err == nil)
		}
	}
}
