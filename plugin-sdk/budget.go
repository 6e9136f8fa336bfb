package pluginsdk

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// slowestPace is the part of the full pace that throttling leaves: a budget
	// that falls to nothing can't find out that the cloud has room again.
	slowestPace = 1.0 / 8
	// recoverTime is how long the pace takes from nothing to the full one. Half as
	// long, and it is back before the cloud's own bucket is.
	recoverTime = 2 * time.Minute
	// halvingSpace is the least time between two halvings: the calls that were on
	// their way together are all refused, and that is one thing to learn, not many.
	halvingSpace = time.Second
	// maxPause bounds what a cloud can ask for with Retry-After.
	maxPause = 5 * time.Minute
	// maxWaiting bounds the calls that wait for their turn.
	maxWaiting = 10_000
)

// Budget is how many calls a plugin may make to its cloud: a bucket of burst calls
// that fills with perSecond. A plugin takes one from it before each call, reads and
// writes alike, so that all its groups together stay below the account's limit and
// no group can starve another: who came first goes first.
//
// A nil *Budget has no limit. That is what a simulation uses, whose clock is not
// this process's. All methods may be called concurrently.
type Budget struct {
	full  float64 // calls per second, as long as the cloud doesn't complain
	burst float64 // calls
	mu    struct {
		sync.Mutex
		pace   float64       // calls per second, now
		tokens float64       // calls that may be made at once
		at     time.Time     // when that was so; in the future: no call before
		halved time.Time     // the last time that the pace was
		line   []chan<- bool // who waits, in order of arrival; the first was sent true
	}
}

// NewBudget returns a full budget. A perSecond that is not a positive number makes a
// nil one, without a limit; a burst below 1 is 1, or no call could ever be made.
func NewBudget(perSecond float64, burst int) *Budget {
	if math.IsNaN(perSecond) || math.IsInf(perSecond, 1) || perSecond <= 0 {
		return nil
	}
	b := &Budget{full: perSecond, burst: float64(max(burst, 1))}
	b.mu.pace, b.mu.tokens, b.mu.at = b.full, b.burst, time.Now()
	return b
}

// Take waits for its turn to make one call. When the turn would come after ctx's
// deadline it doesn't wait at all but fails with ErrThrottled and the wait as
// RetryAfter. Whatever error it returns, nothing was sent and nothing was taken.
func (b *Budget) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notMyTurn(err)
	}
	if b == nil {
		return nil
	}
	turn, taken, err := b.enter(ctx)
	if err != nil || taken {
		return err
	}
	select {
	case <-turn:
	case <-ctx.Done():
		return b.leave(ctx, turn)
	}
	for { // first in line
		wait, taken := b.serve()
		switch {
		case taken:
			return nil
		case !sleep(ctx, wait):
			return b.leave(ctx, turn)
		}
	}
}

// Throttled tells the budget that the cloud refused a call because there were too
// many. The pace is halved, but not below an eighth, and recovers within two
// minutes; there is no call at all for retryAfter, at most 5 minutes.
func (b *Budget) Throttled(retryAfter time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	if now.Sub(b.mu.halved) >= halvingSpace {
		b.mu.halved = now
		b.mu.pace = max(b.mu.pace/2, b.full*slowestPace)
	}
	b.mu.tokens = 0
	if until := now.Add(min(max(retryAfter, 0), maxPause)); until.After(b.mu.at) {
		b.mu.at = until
	}
}

// enter takes one if there is one, and otherwise a place in the line if the turn
// comes early enough: a value is sent to turn when that is the first place.
func (b *Budget) enter(ctx context.Context) (turn chan bool, taken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	if len(b.mu.line) == 0 && b.mu.tokens >= 1 {
		b.mu.tokens--
		return nil, true, nil
	}
	wait := b.until(now, len(b.mu.line)+1)
	deadline, limited := ctx.Deadline()
	if limited && now.Add(wait).After(deadline) || len(b.mu.line) >= maxWaiting {
		return nil, false, overBudget(wait, nil)
	}
	turn = make(chan bool, 1)
	b.mu.line = append(b.mu.line, turn)
	if len(b.mu.line) == 1 {
		turn <- true
	}
	return turn, false, nil
}

// serve gives one to the first in line, or says how long until there is one.
func (b *Budget) serve() (wait time.Duration, taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	if b.mu.tokens < 1 {
		return b.until(now, 1), false
	}
	b.mu.tokens--
	b.drop(0)
	return 0, true
}

// leave gives up a place in the line because ctx has ended.
func (b *Budget) leave(ctx context.Context, turn chan<- bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	place := slices.Index(b.mu.line, turn)
	b.drop(place)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the pace fell while it waited
		return overBudget(b.until(now, place+1), ctx.Err())
	}
	return notMyTurn(ctx.Err())
}

// drop takes the place-th out of the line and tells who is the first then. It needs
// b.mu.
func (b *Budget) drop(place int) {
	b.mu.line = slices.Delete(b.mu.line, place, place+1)
	if place == 0 && len(b.mu.line) > 0 {
		b.mu.line[0] <- true
	}
}

// refill brings tokens and pace up to now. It needs b.mu.
func (b *Budget) refill(now time.Time) {
	passed := now.Sub(b.mu.at).Seconds()
	if passed <= 0 {
		return
	}
	b.mu.at = now
	b.mu.tokens = min(b.burst, b.mu.tokens+b.mu.pace*passed)
	b.mu.pace = min(b.full, b.mu.pace+b.full*passed/recoverTime.Seconds())
}

// until is how long it takes from now to n calls, the present pace given. It needs
// b.mu.
func (b *Budget) until(now time.Time, n int) time.Duration {
	missing := max(float64(n)-b.mu.tokens, 0) / b.mu.pace // seconds
	wait := time.Duration(min(math.Ceil(missing*1e9), math.MaxInt64/2))
	return wait + max(b.mu.at.Sub(now), 0)
}

// overBudget is the answer to a call whose turn comes too late.
func overBudget(wait time.Duration, cause error) error {
	return &Error{
		Kind: KindThrottled, RetryAfter: wait, Cause: cause,
		Message: "the plugin's own call budget is used up: not sent, the next turn is in " + wait.Round(time.Millisecond).String(),
	}
}

func notMyTurn(cause error) error {
	return &Error{Kind: KindTransient, Message: "not sent: " + cause.Error(), Cause: cause}
}

// sleep waits d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
