package agent

import (
	"fmt"
	"time"
)

// Jobs of another cell end when this machine has had no router for a while: their cell
// can't wait for a machine of which nobody hears, and has them run elsewhere.

// lostRouter notes that there is no router, as of now unless it has been so for longer.
func (a *agent) lostRouter(now time.Time) {
	if a.aloneSince.IsZero() {
		a.aloneSince = now
	}
	a.endAlone(now)
}

// foundRouter notes that there is one.
func (a *agent) foundRouter() {
	a.aloneSince = time.Time{}
	a.lonely.Stop()
}

// endAlone ends what may not go on any longer, and looks again when the next may not.
func (a *agent) endAlone(now time.Time) {
	if a.aloneSince.IsZero() {
		return
	}
	next := time.Duration(0)
	for ref, h := range a.held {
		if h.aloneFor <= 0 || h.result != nil || h.canceled || h.forget {
			continue
		}
		rest := a.aloneSince.Add(h.aloneFor).Sub(now)
		if rest <= 0 {
			h.canceled, h.why = true, fmt.Sprintf("no router heard this machine for %s", h.aloneFor)
			a.log.Warn("job ended, since there is no router", "job", ref.job, "attempt", ref.number, "alone_for", h.aloneFor)
			h.stop()
		} else if next == 0 || rest < next {
			next = rest
		}
	}
	if next > 0 {
		a.lonely.Reset(next)
	}
}
