package scaler

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
)

// The numbers of a lease (reliability: defaults of the most trusted systems).
const (
	LeaseTTL   = 15 * time.Second
	LeaseRenew = 5 * time.Second
)

// LeaseStore is where leases live.
type LeaseStore interface {
	// HoldLeases acquires or renews many leases at once and returns those held.
	// With an error, it returns those that the store has answered for.
	HoldLeases(ctx context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error)
	ReleaseLease(ctx context.Context, l spillway.Lease) error
}

// Leases is the Tenure of a replica: one lease for each pool, renewed together.
// Whether a lease is still held is judged by the local monotonic clock alone, so
// that a store that can't be reached ends a tenure in time.
type Leases struct {
	store  LeaseStore
	holder string
	names  []string
	events *Events

	mu struct {
		sync.Mutex
		held map[string]spillway.Lease
	}
}

// NewLeases returns the tenure of holder over pools. Run keeps it up.
func NewLeases(s LeaseStore, holder string, pools []string, events *Events) *Leases {
	l := &Leases{store: s, holder: holder, events: events}
	for _, p := range pools {
		l.names = append(l.names, leaseName(p))
	}
	l.mu.held = map[string]spillway.Lease{}
	return l
}

func leaseName(pool string) string { return "pool/" + pool }

// Hold implements Tenure.
func (l *Leases) Hold(pool string, now time.Time) (epoch uint64, until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.mu.held[leaseName(pool)]
	if !ok || lease.Rest(now) <= 0 {
		return 0, time.Time{}, false
	}
	return lease.Epoch, lease.Until, true
}

// Renew acquires what nobody holds and renews what is ours. Of a lease that the store
// did not answer for, what was known holds until it ends.
func (l *Leases) Renew(ctx context.Context, now time.Time) {
	held, err := l.store.HoldLeases(ctx, l.names, l.holder, LeaseTTL)
	l.mu.Lock()
	if err == nil {
		l.mu.held = held
	} else {
		maps.Copy(l.mu.held, held)
	}
	l.mu.Unlock()
	if err != nil {
		l.events.trouble(TroubleInfo{At: now, Doing: "renewing leases", Err: err})
	}
}

// Run does work under the leases: it renews them until work has returned, which it does
// when ctx ends, and then gives them back, so that another replica need not wait for
// them to expire. Not before: what work has sent may still be under way.
func (l *Leases) Run(ctx context.Context, work func(context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	ticker := time.NewTicker(LeaseRenew)
	defer ticker.Stop()
	for {
		l.Renew(context.WithoutCancel(ctx), time.Now())
		select {
		case <-done:
			l.release()
			return
		case <-ticker.C:
		}
	}
}

// releaseTimeout bounds the good manners at the end.
const releaseTimeout = 2 * time.Second

func (l *Leases) release() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lease := range l.mu.held {
		if err := l.store.ReleaseLease(ctx, lease); err != nil {
			l.events.trouble(TroubleInfo{At: time.Now(), Doing: "giving a lease back", Err: err})
			return
		}
	}
	clear(l.mu.held)
}
