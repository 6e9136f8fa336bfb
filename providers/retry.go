package providers

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// maxAttempts bounds one read. Two repetitions get past what is gone in seconds;
	// for what lasts longer there is the pool's next tick.
	maxAttempts = 3
	// retryBase is the longest wait before the first repetition; it doubles with
	// each. The wait is anything from nothing to that: whoever was refused together
	// must not come back together.
	retryBase = time.Second
	// maxRetryAfter bounds what a plugin can have a caller wait for.
	maxRetryAfter = 5 * time.Minute
	// retryTokens are the repetitions that a plugin has in hand, and each success
	// earns retryEarned of another: where half of the calls fail, most are still
	// repeated, and where all fail, soon none is.
	retryTokens = 20.0
	retryEarned = 0.5
)

// reads are the calls of one plugin that change nothing, so that they may be
// repeated.
type reads interface {
	Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error)
	ListInstances(ctx context.Context, group string) ([]pluginsdk.Instance, error)
}

// retry repeats reads that the plugin answered with throttled or transient. It is the
// only layer that does: a plugin repeats nothing, and a write is never repeated, since
// its outcome may be unknown. Nor is a call whose process died, which might kill the
// next one as well, or one that hung.
type retry struct {
	next   reads
	told   func(Op, error) // of each repetition
	jitter func(limit time.Duration) time.Duration
	mu     struct {
		sync.Mutex
		tokens float64
	}
}

func newRetry(next reads, told func(Op, error)) *retry {
	r := &retry{next: next, told: told, jitter: rand.N[time.Duration]}
	r.mu.tokens = retryTokens
	return r
}

func (r *retry) ListInstances(ctx context.Context, group string) (all []pluginsdk.Instance, err error) {
	err = r.repeat(ctx, OpListInstances, func() error {
		all, err = r.next.ListInstances(ctx, group)
		return err
	})
	return all, err
}

// Status repeats the call for those groups only that could not be read.
func (r *retry) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	var answers []pluginsdk.GroupStatus
	var left []int // places of the groups to ask again
	err := r.repeat(ctx, OpStatus, func() error {
		asked := groups
		if answers != nil {
			asked = make([]string, len(left))
			for i, place := range left {
				asked[i] = groups[place]
			}
		}
		some, err := r.next.Status(ctx, asked)
		if err != nil {
			return err
		}
		if answers == nil {
			answers = some
		}
		for i, place := range left {
			answers[place] = some[i]
		}
		left, err = unread(answers)
		return err
	})
	if answers != nil {
		return answers, nil // what is left has its error in its place
	}
	return nil, err
}

// unread returns the places that are worth another attempt, and the error that asks
// for the longest wait.
func unread(answers []pluginsdk.GroupStatus) (places []int, worst error) {
	for place := range answers {
		err := answers[place].Err
		if err == nil || !repeatable(err) {
			continue
		}
		places = append(places, place)
		if worst == nil || retryAfter(err) > retryAfter(worst) {
			worst = err
		}
	}
	return places, worst
}

// repeat makes attempts until one succeeds or there shall be no other.
func (r *retry) repeat(ctx context.Context, op Op, attempt func() error) error {
	limit := retryBase
	for n := 1; ; n++ {
		err := attempt()
		if err == nil {
			r.earn()
			return nil
		}
		if n == maxAttempts || !repeatable(err) {
			return err
		}
		wait := retryAfter(err) + r.jitter(limit)
		if !fits(ctx, wait) || !r.pay() {
			return err
		}
		r.told(op, err)
		if !pause(ctx, wait) {
			return err // it says more than the end of ctx
		}
		limit *= 2
	}
}

// fits reports whether there is time for another attempt after wait. Otherwise the
// caller gets the error at once, with its RetryAfter.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, limited := ctx.Deadline()
	return !limited || time.Now().Add(wait).Before(deadline)
}

func (r *retry) earn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.tokens = min(r.mu.tokens+retryEarned, retryTokens)
}

func (r *retry) pay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.tokens < 1 {
		return false
	}
	r.mu.tokens--
	return true
}

// repeatable reports whether err is a plugin's answer that may be another one soon.
// A call that got no answer isn't repeated.
func repeatable(err error) bool {
	if k := pluginsdk.KindOf(err); k != pluginsdk.KindThrottled && k != pluginsdk.KindTransient {
		return false
	}
	var down *downError
	var wire interface{ GRPCStatus() *status.Status }
	return !errors.As(err, &down) && !errors.As(err, &wire) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// downError is why a call was not made: there is no process to make it to.
type downError struct{ error }

func (e *downError) Unwrap() error { return e.error }

// retryAfter is what err asks to wait; 0 for nothing.
func retryAfter(err error) time.Duration {
	var e *pluginsdk.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// patient bounds what err asks to wait: a plugin could put a pool to sleep for years.
func patient(err error) error {
	after := retryAfter(err)
	if after >= 0 && after <= maxRetryAfter {
		return err
	}
	var e *pluginsdk.Error
	_ = errors.As(err, &e) // retryAfter has found it
	bounded := *e
	bounded.RetryAfter = min(max(after, 0), maxRetryAfter)
	return &bounded
}
