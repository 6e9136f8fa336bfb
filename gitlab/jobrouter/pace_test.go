package jobrouter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// However answers fall, no minute sees more questions than GitLab allows for a token.
func TestThePaceNeverExceedsGitLabsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pace{rate: float64(rapid.IntRange(1, MaxRatePerToken).Draw(t, "rate")), every: 10 * time.Millisecond}
		now := epoch
		var at []time.Time
		for range rapid.IntRange(10, 3000).Draw(t, "questions") {
			next := p.next(now)
			require.False(t, next.Before(now))
			require.False(t, next.Before(p.notBefore))
			p.asked(next)
			at = append(at, next)
			o := rapid.SampledFrom([]outcome{found, found, found, nothing, contended}).Draw(t, "outcome")
			now = next.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "took")) * time.Millisecond)
			p.answered(o, next, now, 0, rapid.Float64Range(0, 0.999).Draw(t, "dice"))
		}
		first := 0
		for last := range at {
			for at[last].Sub(at[first]) >= time.Minute {
				first++
			}
			require.LessOrEqual(t, last-first+1, 2000)
		}
	})
}

func TestBackOff(t *testing.T) {
	tests := []struct {
		name        string
		o           outcome
		failures    int
		retryAfter  time.Duration
		least, most time.Duration // of the wait, with the dice at 0 and nearly 1
	}{
		{"found: at once", found, 3, 0, 0, 0},
		{"contended: soon", contended, 0, 0, 100 * time.Millisecond, 100 * time.Millisecond},
		{"contended again", contended, 5, 0, 100 * time.Millisecond, 3200 * time.Millisecond},
		{"failed", failed, 0, 0, 100 * time.Millisecond, time.Second},
		{"failed twice", failed, 1, 0, 100 * time.Millisecond, 2 * time.Second},
		{"failed for long", failed, 500, 0, 100 * time.Millisecond, backOffMost},
		{"refused", refused, 0, 0, 100 * time.Millisecond, 10 * time.Second},
		{"limited, GitLab says until when", limited, 0, 20 * time.Second, 20 * time.Second, 21 * time.Second},
		{"limited, GitLab says a day", limited, 0, 24 * time.Hour, retryAfterMost, retryAfterMost + time.Second},
		{"limited, GitLab says nothing", limited, 2, 0, 100 * time.Millisecond, 4 * time.Second},
		{"unavailable, GitLab says until when", failed, 0, 3 * time.Second, 3 * time.Second, 4 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wait := func(dice float64) time.Duration {
				p := pace{rate: 33, every: time.Second, failures: tt.failures}
				p.answered(tt.o, epoch.Add(-time.Hour), epoch, tt.retryAfter, dice)
				return p.next(epoch).Sub(epoch)
			}
			require.Equal(t, tt.least, wait(0))
			require.InDelta(t, float64(tt.most), float64(wait(0.9999999)), float64(time.Millisecond))
		})
	}
}

func TestAnEmptyAnswerIsPacedFromItsBeginning(t *testing.T) {
	p := pace{rate: 33, every: time.Second}
	p.asked(epoch)
	quick := epoch.Add(10 * time.Millisecond)
	p.answered(nothing, epoch, quick, 0, 0.5)
	require.Equal(t, epoch.Add(time.Second), p.next(quick))
	held := epoch.Add(50 * time.Second)
	p.answered(nothing, epoch, held, 0, 0.5)
	require.Equal(t, held, p.next(held), "GitLab has held it: there is nothing to wait for")
}

func TestAFailureIsForgottenByAnAnswer(t *testing.T) {
	p := pace{rate: 33, every: time.Second, failures: 7}
	p.answered(nothing, epoch, epoch, 0, 0.5)
	require.Zero(t, p.failures)
}

func TestWhenGitLabIsAsked(t *testing.T) {
	const safe = leaseMargin + 1
	tests := []struct {
		name          string
		n             need
		ask, fromZero bool
	}{
		{"somebody waits", need{rest: safe, waiting: 1}, true, false},
		{"nobody waits", need{rest: safe}, false, true},
		{"nobody waits, one may be held", need{rest: safe, hold: 1}, true, true},
		{"one is held already", need{rest: safe, hold: 1, inHand: 1}, false, true},
		{"somebody waits who can't have what is held", need{rest: safe, waiting: 1, hold: 1, inHand: 1}, true, false},
		{"no lease", need{waiting: 1, hold: 1}, false, false},
		{"the lease is about to end", need{rest: leaseMargin, waiting: 1}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ask, fromZero := tt.n.wanted()
			require.Equal(t, tt.ask, ask)
			require.Equal(t, tt.fromZero, fromZero)
		})
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	names := map[string]bool{}
	for o := found; o <= failed; o++ {
		names[o.String()] = true
	}
	require.Len(t, names, 6)
}
