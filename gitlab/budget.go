package gitlab

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBudgetWait is how long a call waits for its turn [time]. A list of a thousand
// pages has to be paced; a call that would wait for longer is told so instead.
const maxBudgetWait = 2 * time.Minute

// burstShare is the part of a minute's budget that may go at once, one in burstShare.
// Burst and refill together stay within the budget in any minute.
const burstShare = 4

// budget paces the calls of the API token: our own limit, and what GitLab told us.
type budget struct {
	limiter *rate.Limiter // nil = no limit

	mu struct {
		sync.Mutex
		until time.Time // GitLab said not to call before
	}
}

func newBudget(perMinute int) *budget {
	if perMinute == 0 {
		return &budget{}
	}
	burst := max(1, perMinute/burstShare)
	refill := rate.Limit(float64(max(1, perMinute-burst)) / time.Minute.Seconds())
	return &budget{limiter: rate.NewLimiter(refill, burst)}
}

// turn says how long a call made now must wait, and books it. Where that is longer
// than patience, nothing is booked and the answer is a Limited.
func (b *budget) turn(now time.Time, patience time.Duration) (time.Duration, error) {
	b.mu.Lock()
	told := b.mu.until.Sub(now)
	b.mu.Unlock()
	if told > 0 {
		return 0, &Limited{RetryAfter: clampRetry(told), Own: true}
	}
	if b.limiter == nil {
		return 0, nil
	}
	r := b.limiter.ReserveN(now, 1)
	d := r.DelayFrom(now)
	if d > patience {
		r.CancelAt(now)
		return 0, &Limited{RetryAfter: clampRetry(d), Own: true}
	}
	return d, nil
}

// told books that GitLab wants no call for d.
func (b *budget) told(now time.Time, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := now.Add(d); until.After(b.mu.until) {
		b.mu.until = until
	}
}

func clampRetry(d time.Duration) time.Duration { return min(max(d, minRetryAfter), MaxRetryAfter) }

// retryAfter reads when to try again from the headers of a 429 or 503: those that
// lib/gitlab/rack_attack.rb sends, each of which a proxy may have dropped.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if v := h.Get("Retry-After"); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return seconds(s), true
		}
		if at, err := http.ParseTime(v); err == nil {
			return clampRetry(at.Sub(now)), true
		}
	}
	if unix, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64); err == nil {
		return clampRetry(time.Unix(unix, 0).Sub(now)), true
	}
	if at, err := http.ParseTime(h.Get("RateLimit-ResetTime")); err == nil {
		return clampRetry(at.Sub(now)), true
	}
	return defaultRetryAfter, false
}

// seconds clamps before it converts, so that no number overflows a Duration; NaN is
// the least.
func seconds(s float64) time.Duration {
	if !(s > minRetryAfter.Seconds()) {
		return minRetryAfter
	}
	return time.Duration(min(s, MaxRetryAfter.Seconds()) * float64(time.Second))
}

func (b *budget) String() string {
	if b.limiter == nil {
		return "no limit"
	}
	return fmt.Sprintf("%.1f calls a second, %d at once", float64(b.limiter.Limit()), b.limiter.Burst())
}
