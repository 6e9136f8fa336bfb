package roster

import "time"

// The boot breaker's numbers (semantics: boot never registers).
const (
	bootFailuresToOpen = 3                // consecutive launches, in launch order
	bootQuiet          = 10 * time.Minute // and no registration for this long
	bootBackoffFirst   = 5 * time.Minute
	bootBackoffMax     = 30 * time.Minute
	bootBackoffReset   = 3 * time.Hour // without a failure: the next backoff is the first again
)

// Breaker stops launching into a pool whose instances never register. Open, it
// lets nothing launch until Until; then one instance at a time as a probe, until
// one registers.
type Breaker struct {
	Failures       int           `json:"failures,omitempty"` // consecutive, in launch order
	LastFailure    time.Time     `json:"last_failure,omitzero"`
	LastRegistered time.Time     `json:"last_registered,omitzero"`
	NewestGood     time.Time     `json:"newest_good,omitzero"` // launch time of the latest-launched instance that registered
	Until          time.Time     `json:"until,omitzero"`       // open; zero = closed
	Backoff        time.Duration `json:"backoff,omitempty"`
}

// failed records that an instance launched then never registered.
func (b *Breaker) failed(now, launched time.Time) {
	if launched.Before(b.NewestGood) {
		return // a later launch has registered: not the pool's fault
	}
	if now.Sub(b.LastFailure) > bootBackoffReset {
		b.Backoff = 0
	}
	b.Failures++
	b.LastFailure = now
	if b.Failures < bootFailuresToOpen || (!b.LastRegistered.IsZero() && now.Sub(b.LastRegistered) < bootQuiet) {
		return
	}
	if now.Before(b.Until) {
		return // the rest of a wave that has opened it already
	}
	b.Backoff = min(max(2*b.Backoff, bootBackoffFirst), bootBackoffMax)
	b.Until = now.Add(b.Backoff)
}

func (b *Breaker) registered(at, launched time.Time) {
	b.LastRegistered = later(at, b.LastRegistered)
	b.NewestGood = later(launched, b.NewestGood)
	b.Failures = 0
	b.Until = time.Time{}
}

// Clamp is how many instances may be booting: −1 = no limit, 0 = none, 1 = a probe.
func (b *Breaker) Clamp(now time.Time) int {
	switch {
	case b.Until.IsZero():
		return -1
	case now.Before(b.Until):
		return 0
	default:
		return 1
	}
}
