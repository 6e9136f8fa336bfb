package jobrouter

import (
	"time"
)

// outcome is what became of one question to GitLab.
type outcome int

const (
	found     outcome = iota // a job
	nothing                  // no job now
	contended                // others took what there was: ask again soon
	limited                  // too many questions; GitLab may say until when
	refused                  // GitLab doesn't take the token
	failed                   // anything else: GitLab is ill, or the way to it
)

// String names the outcome, for metrics.
func (o outcome) String() string {
	switch o {
	case found:
		return "job"
	case nothing:
		return "none"
	case contended:
		return "conflict"
	case limited:
		return "limited"
	case refused:
		return "refused"
	default:
		return "failed"
	}
}

// ill reports whether it isn't known after it whether GitLab has a job. After a conflict it
// is: others took what there was.
func (o outcome) ill() bool { return o == limited || o == refused || o == failed }

// Bounds of the pace.
const (
	// askBurst is how many questions may follow each other without a pause [questions]. A
	// minute of the rate and the burst must stay below GitLab's 2000 for each token.
	askBurst = 10
	// contendedFirst and failedFirst are what the back-off doubles from. A conflict means
	// that there are jobs, so it is short.
	contendedFirst = 100 * time.Millisecond
	failedFirst    = time.Second
	// backOffMost is the longest back-off that GitLab did not ask for.
	backOffMost = 30 * time.Second
	// retryAfterMost bounds what GitLab may ask for.
	retryAfterMost = 5 * time.Minute
	// refusedFirst: a token that GitLab refuses won't be taken a second later.
	refusedFirst = 10 * time.Second
)

// pace says when a token may be asked for next. It has no clock and no dice: both are
// arguments.
type pace struct {
	rate  float64       // [questions/s]
	every time.Duration // between the beginnings of two questions that found nothing

	notBefore time.Time
	failures  int // in a row, conflicts among them
	ill       int // in a row: outcome.ill

	tokens float64 // of the bucket, as of countedAt
	// countedAt is zero until the first question: the bucket is full then.
	countedAt time.Time
}

// next is the earliest time for a question, at or after now.
func (p *pace) next(now time.Time) time.Time {
	at := now
	if p.notBefore.After(at) {
		at = p.notBefore
	}
	if missing := 1 - p.level(at); missing > 0 {
		at = at.Add(time.Duration(missing/p.rate*float64(time.Second)) + 1)
	}
	return at
}

// asked takes one question out of the budget.
func (p *pace) asked(now time.Time) {
	p.tokens, p.countedAt = p.level(now)-1, now
}

func (p *pace) level(at time.Time) float64 {
	if p.countedAt.IsZero() {
		return askBurst
	}
	return min(askBurst, p.tokens+max(0, at.Sub(p.countedAt).Seconds())*p.rate)
}

// answered notes what the question that began at began came to. dice is in [0, 1).
func (p *pace) answered(o outcome, began, now time.Time, retryAfter time.Duration, dice float64) {
	p.ill++
	if !o.ill() {
		p.ill = 0
	}
	switch o {
	case found:
		p.failures, p.notBefore = 0, now
	case nothing:
		// Where GitLab holds the question until its queue changes, every has long passed.
		p.failures, p.notBefore = 0, began.Add(p.every)
	default:
		first := map[outcome]time.Duration{contended: contendedFirst, refused: refusedFirst}[o]
		if first == 0 {
			first = failedFirst
		}
		wait := time.Duration(dice * float64(backOff(first, p.failures)))
		if retryAfter > 0 {
			// Nobody may be early; a little later is what keeps all from coming at once.
			wait = min(retryAfter, retryAfterMost) + time.Duration(dice*float64(failedFirst))
		}
		p.failures++
		p.notBefore = now.Add(max(wait, contendedFirst))
	}
}

// hasten ends the wait after an answer without a job, and no other one.
func (p *pace) hasten(now time.Time) {
	if p.failures == 0 && p.notBefore.After(now) {
		p.notBefore = now
	}
}

// backOff doubles first with each failure up to backOffMost.
func backOff(first time.Duration, failures int) time.Duration {
	return min(backOffMost, first<<min(failures, 16))
}

// need is what decides whether GitLab is asked for a token at all.
type need struct {
	rest    time.Duration // of our lease; none = ≤ 0
	waiting int           // machines that could be given a job
	inHand  int           // jobs without a machine
	hold    int           // as many jobs may be kept for a pool at zero
}

// leaseMargin is how much must be left of the lease when GitLab is asked: the question
// has to be on its way before another replica can have the lease.
const leaseMargin = 2 * time.Second

// wanted reports whether GitLab is to be asked, and whether that is for nobody yet: to
// learn that a pool at zero is needed.
func (n need) wanted() (ask, fromZero bool) {
	switch {
	case n.rest <= leaseMargin:
		return false, false
	case n.waiting > 0:
		return true, false
	default:
		return n.inHand < n.hold, true
	}
}
