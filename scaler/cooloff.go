package scaler

import (
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// The numbers of a cool-off (semantics: the provider contract).
const (
	coolOffFirst  = 30 * time.Second
	coolOffMax    = 30 * time.Minute
	maxRetryAfter = 5 * time.Minute // a provider's Retry-After is believed up to this
	// maxShortWait is the longest Retry-After that is simply waited for. It is no
	// longer than the shortest cool-off, which is for providers that don't say.
	maxShortWait = 30 * time.Second
	// lateFailure is how long a cloud may take to tell that what it accepted has
	// failed. A failure within this after a cool-off is one in a row with it.
	lateFailure = 5 * time.Minute
)

// shortWait is how long a throttled provider wants to be left alone, if it says so
// and it is soon; else 0.
func shortWait(e *pluginsdk.Error) time.Duration {
	if e.Kind != pluginsdk.KindThrottled || e.RetryAfter > maxShortWait {
		return 0
	}
	return max(0, e.RetryAfter)
}

// throttle waits for as long as a throttled provider said, and reports whether that
// is all that there is to do. Nothing was carried out, so that there is nothing to
// look up; and it is over so soon that no job is better off elsewhere.
func (p *Pool) throttle(now time.Time, e *pluginsdk.Error) bool {
	wait := shortWait(e)
	if wait == 0 {
		return false
	}
	p.state.WaitTill = now.Add(wait)
	return true
}

// throttled reports whether nothing may be asked of the provider yet.
func (p *Pool) throttled(now time.Time) bool { return now.Before(p.state.WaitTill) }

// CoolOff keeps a pool from being asked again right after its provider refused. It
// is a value: persisted, and decided on with time as an argument.
//
//	closed ── failure ──▶ active ── length over ──▶ half open: one instance to try
//	   ▲                    ▲                          │            │
//	   └── the one exists, or twice the length is over ┘            │
//	                        └──────────── failure, length × 2 ──────┘
//
// That a request was accepted closes nothing: a cloud without capacity accepts
// too, and fails later.
type CoolOff struct {
	Until    time.Time      `json:"until,omitzero"` // zero = closed
	Length   time.Duration  `json:"length,omitempty"`
	FailedAt time.Time      `json:"failed_at,omitzero"`
	Probed   bool           `json:"probed,omitempty"` // half open, and the one was asked for
	Kind     pluginsdk.Kind `json:"kind,omitempty"`
	Message  string         `json:"message,omitempty"`
	Late     bool           `json:"late,omitempty"` // what failed had been accepted
}

// Failed starts the cool-off, twice as long as the last if that was lately.
func (c *CoolOff) Failed(now time.Time, err *pluginsdk.Error) {
	if c.Active(now) {
		return // of the same wave
	}
	if now.Sub(c.FailedAt) > 2*c.Length+lateFailure {
		c.Length = 0
	}
	c.Length = min(max(2*c.Length, coolOffFirst), coolOffMax)
	wait := max(c.Length, min(err.RetryAfter, maxRetryAfter))
	c.FailedAt, c.Until, c.Probed, c.Kind, c.Message = now, now.Add(wait), false, err.Kind, err.Message
	c.Late = false
}

// FailedLate is Failed, for what had been accepted.
func (c *CoolOff) FailedLate(now time.Time, err *pluginsdk.Error) {
	c.Failed(now, err)
	c.Late = true
}

// Lost reports whether what was accepted isn't on its way any more. A call that is
// refused says nothing of those before it.
func (c *CoolOff) Lost(now time.Time) bool { return c.Late && c.Active(now) }

// Asked says that a request was accepted.
func (c *CoolOff) Asked(now time.Time) { c.Probed = c.halfOpen(now) }

// Filled says that everything asked for exists now.
func (c *CoolOff) Filled() {
	if c.Probed {
		c.Until, c.Probed = time.Time{}, false
	}
}

// Active reports whether no launch may be asked for at now.
func (c *CoolOff) Active(now time.Time) bool { return now.Before(c.Until) }

func (c *CoolOff) halfOpen(now time.Time) bool {
	return !c.Until.IsZero() && !c.Active(now) && now.Sub(c.FailedAt) < 2*c.Length
}

// Probing reports whether the one that is launched to try was asked for and isn't
// there yet.
func (c *CoolOff) Probing(now time.Time) bool { return c.halfOpen(now) && c.Probed }

// Clamp is how many instances may be launched now: −1 = no limit.
func (c *CoolOff) Clamp(now time.Time) int {
	switch {
	case c.Active(now), c.Probing(now):
		return 0
	case c.halfOpen(now):
		return 1
	default:
		return -1
	}
}
