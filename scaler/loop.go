package scaler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// Loop drives the fleet and its pools by the clock and by pokes. One goroutine
// looks at the fleet, one goroutine owns each pool; a pool whose provider hangs
// delays nobody else's tick.
type Loop struct {
	fleet    *Fleet
	pools    []*Pool
	tick     time.Duration
	debounce time.Duration

	poke    chan struct{}
	picture atomic.Pointer[Picture]
	drivers []*driver
}

// driver is what others may touch of one pool's goroutine.
type driver struct {
	pool     *Pool
	poke     chan struct{}
	notices  notices
	reconfig chan PoolConfig
}

// NewLoop returns a loop over pools. debounce is how long a poke waits for more
// of its kind: a push of a thousand jobs is one look, not a thousand.
func NewLoop(f *Fleet, pools []*Pool, tick, debounce time.Duration) *Loop {
	l := &Loop{fleet: f, pools: pools, tick: tick, debounce: debounce, poke: make(chan struct{}, 1)}
	for _, p := range pools {
		l.drivers = append(l.drivers, &driver{
			pool: p, poke: make(chan struct{}, 1), reconfig: make(chan PoolConfig, 1),
		})
	}
	return l
}

// Poke asks for a look soon. It never blocks.
func (l *Loop) Poke() { trigger(l.poke) }

// Picture is the last look, nil before the first.
func (l *Loop) Picture() *Picture { return l.picture.Load() }

// Pools are the pools of the loop.
func (l *Loop) Pools() []*Pool { return l.pools }

// Interrupted hands a provider's notice to the pool it concerns.
func (l *Loop) Interrupted(pool string, n pluginsdk.Interruption) {
	for _, d := range l.drivers {
		if d.pool.Name() == pool && d.notices.add(n) {
			trigger(d.poke)
		}
	}
}

// Run looks, ticks and waits until ctx ends, and returns when every pool's
// goroutine has.
func (l *Loop) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, d := range l.drivers {
		wg.Go(func() { l.drive(ctx, d) })
	}
	l.watch(ctx)
	wg.Wait()
}

// watch owns the looks at the fleet.
func (l *Loop) watch(ctx context.Context) {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		before := l.picture.Load()
		pic := l.fleet.Observe(ctx, time.Now(), l.pools)
		l.picture.Store(pic)
		for _, d := range l.drivers {
			if pic.Concerns(before, d.pool.Name()) {
				trigger(d.poke)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.poke:
			if !sleep(ctx, l.debounce) {
				return
			}
		}
	}
}

// drive owns one pool.
func (l *Loop) drive(ctx context.Context, d *driver) {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		for _, n := range d.notices.take() {
			d.pool.Interrupted(n)
		}
		if pic := l.picture.Load(); pic != nil {
			if at := l.tickPool(ctx, d, pic); !at.IsZero() {
				wake.Reset(time.Until(at))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake.C:
		case <-d.poke:
		case cfg := <-d.reconfig:
			d.pool.Reconfigure(cfg)
		}
	}
}

// tickPool returns when the pool wants its next turn; zero = with the next tick.
func (l *Loop) tickPool(ctx context.Context, d *driver, pic *Picture) (wake time.Time) {
	res := d.pool.Tick(ctx, time.Now(), pic)
	if res.Again {
		offers := res.Offers
		res = d.pool.Tick(ctx, time.Now(), pic)
		res.Offers = res.Offers || offers
	}
	if res.Respill || res.Offers {
		l.Poke()
	}
	return res.Wake
}

// trigger fills a one-slot channel: any number of pokes while the owner is busy
// are one.
func trigger(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
