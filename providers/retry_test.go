package providers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// lists is a plugin's reads of which only ListInstances is asked.
type lists struct {
	reads
	calls int
	list  func(ctx context.Context) error
}

func (l *lists) ListInstances(ctx context.Context, _ string) ([]pluginsdk.Instance, error) {
	l.calls++
	if err := l.list(ctx); err != nil {
		return nil, err
	}
	return []pluginsdk.Instance{{ID: "i"}}, nil
}

func listing(list func(ctx context.Context) error) (*retry, *lists) {
	l := &lists{list: list}
	return newRetry(l, func(Op, error) {}), l
}

func failing(err error) (*retry, *lists) {
	return listing(func(context.Context) error { return err })
}

func throttled(after time.Duration) error {
	return &pluginsdk.Error{Kind: pluginsdk.KindThrottled, RetryAfter: after}
}

func TestAReadIsRepeatedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for failures := range 4 {
			n := 0
			r, l := listing(func(context.Context) error {
				if n++; n <= failures {
					return kindErr(pluginsdk.KindTransient)
				}
				return nil
			})
			var limits []time.Duration
			r.jitter = func(limit time.Duration) time.Duration { limits = append(limits, limit); return limit / 2 }
			told := 0
			r.told = func(op Op, err error) {
				require.Equal(t, OpListInstances, op)
				require.ErrorIs(t, err, pluginsdk.ErrTransient)
				told++
			}
			began := time.Now()
			all, err := r.ListInstances(t.Context(), "g")
			repeated := min(failures, 2)
			require.Equal(t, 1+repeated, l.calls)
			require.Equal(t, repeated, told)
			require.Equal(t, []time.Duration{time.Second, 2 * time.Second}[:repeated], append([]time.Duration{}, limits...))
			require.Equal(t, []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}[repeated], time.Since(began))
			if failures < maxAttempts {
				require.NoError(t, err)
				require.Len(t, all, 1)
			} else {
				require.ErrorIs(t, err, pluginsdk.ErrTransient)
				require.Nil(t, all)
			}
		}
	})
}

// TestWhatIsNotRepeated: what would be the same again, and what got no answer.
func TestWhatIsNotRepeated(t *testing.T) {
	lost := status.Error(codes.Unavailable, "EOF")
	for name, err := range map[string]error{
		"capacity":    kindErr(pluginsdk.KindCapacity),
		"quota":       kindErr(pluginsdk.KindQuota),
		"auth":        kindErr(pluginsdk.KindAuth),
		"invalid":     kindErr(pluginsdk.KindInvalid),
		"conflict":    kindErr(pluginsdk.KindConflict),
		"unsupported": kindErr(pluginsdk.KindUnsupported),
		"not found":   kindErr(pluginsdk.KindNotFound),
		"no process":  pluginsdk.Errorf(pluginsdk.KindTransient, "%w", &downError{ErrClosed}),
		"it died":     pluginsdk.Errorf(pluginsdk.KindTransient, "%w", lost),
		"it hung":     pluginsdk.Errorf(pluginsdk.KindTransient, "%w", context.DeadlineExceeded),
		"given up":    pluginsdk.Errorf(pluginsdk.KindTransient, "%w", context.Canceled),
	} {
		r, l := failing(err)
		_, got := r.ListInstances(t.Context(), "g")
		require.Equal(t, err, got, name)
		require.Equal(t, 1, l.calls, name)
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := failing(throttled(10 * time.Second))
		took := func(patience time.Duration) time.Duration {
			ctx, cancel := withPatience(t.Context(), patience)
			defer cancel()
			l.calls = 0
			began := time.Now()
			_, err := r.ListInstances(ctx, "g")
			require.ErrorIs(t, err, pluginsdk.ErrThrottled, "not a deadline")
			require.Equal(t, 10*time.Second, retryAfter(err))
			return time.Since(began)
		}
		require.InDelta(t, 20*time.Second, took(time.Minute), float64(3*time.Second))
		require.Equal(t, 3, l.calls)
		require.InDelta(t, 10*time.Second, took(15*time.Second), float64(time.Second))
		require.Equal(t, 2, l.calls, "the third would come too late: the caller has the answer now")
		require.Zero(t, took(10*time.Second))
		require.Equal(t, 1, l.calls)
	})
}

// TestALongRetryAfterIsCut: of every call, and wherever an error can be.
func TestALongRetryAfterIsCut(t *testing.T) {
	long := func() error { return fmt.Errorf("aws: %w", throttled(1_000*time.Hour)) }
	p, err := InProcess(t.Context(), Spec{Name: "aws"}, &refusing{err: long}, Options{})
	require.NoError(t, err)
	g := p.Group("pool", "g")
	_, listErr := g.ListInstances(t.Context())
	_, statusErr := g.Status(t.Context())
	_, setErr := g.SetDesired(t.Context(), 1, 0)
	removed, err := g.Remove(t.Context(), []string{"i"})
	require.NoError(t, err)
	for _, err := range []error{listErr, statusErr, setErr, removed[0].Err, p.Protect(t.Context(), "g", []string{"i"}, true)} {
		require.ErrorIs(t, err, pluginsdk.ErrThrottled)
		require.Equal(t, 5*time.Minute, retryAfter(err))
	}
	require.Zero(t, retryAfter(patient(throttled(-time.Second))))
	require.NoError(t, patient(nil))
}

// refusing is a cloud that refuses everything, and counts the writes.
type refusing struct {
	cloud
	err    func() error
	writes int
}

func (r *refusing) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	answers := make([]pluginsdk.GroupStatus, len(groups))
	for i, g := range groups {
		answers[i] = pluginsdk.GroupStatus{Group: g, Err: r.err()}
	}
	return answers, nil
}

func (r *refusing) ListInstances(context.Context, string) ([]pluginsdk.Instance, error) {
	return nil, r.err()
}

func (r *refusing) SetDesired(context.Context, pluginsdk.SetDesired) (int, error) {
	r.writes++
	return 0, r.err()
}

func (r *refusing) Remove(_ context.Context, _ string, ids []string, _ string) ([]pluginsdk.RemoveResult, error) {
	r.writes++
	return []pluginsdk.RemoveResult{{ID: ids[0], Outcome: pluginsdk.NotRemoved, Err: r.err()}}, nil
}

func (r *refusing) Withdraw(context.Context, string, int, string) (pluginsdk.WithdrawResult, error) {
	r.writes++
	return pluginsdk.WithdrawResult{}, r.err()
}

func (r *refusing) Protect(context.Context, string, []string, bool) error {
	r.writes++
	return r.err()
}

func (r *refusing) CompleteHook(context.Context, string, []string) error {
	r.writes++
	return r.err()
}

func (r *refusing) ReportUnhealthy(context.Context, string, []string) error {
	r.writes++
	return r.err()
}

// TestWritesAreNeverRepeated: their outcome may be unknown, also of one that was
// refused.
func TestWritesAreNeverRepeated(t *testing.T) {
	for _, kind := range []pluginsdk.Kind{pluginsdk.KindThrottled, pluginsdk.KindTransient} {
		c := &refusing{err: func() error { return kindErr(kind) }}
		p, err := InProcess(t.Context(), Spec{Name: "aws"}, c, Options{})
		require.NoError(t, err)
		g := p.Group("pool", "g")
		_, _ = g.SetDesired(t.Context(), 1, 0)
		_, _ = g.Remove(t.Context(), []string{"i"})
		_, _ = g.Withdraw(t.Context(), 1)
		_ = p.Protect(t.Context(), "g", []string{"i"}, true)
		_ = g.CompleteHook(t.Context(), []string{"i"})
		_ = g.ReportUnhealthy(t.Context(), []string{"i"})
		require.Equal(t, 6, c.writes)
	}
}

// TestOnlyTheGroupsThatFailedAreAskedAgain.
func TestOnlyTheGroupsThatFailedAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		failures := map[string]int{"b": 1, "c": 9, "d": 9}
		c.status = func(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
			answers := make([]pluginsdk.GroupStatus, len(groups))
			for i, g := range groups {
				answers[i] = pluginsdk.GroupStatus{Group: g, Max: 10}
				if failures[g]--; failures[g] >= 0 {
					answers[i].Err = kindErr(map[bool]pluginsdk.Kind{true: pluginsdk.KindAuth, false: pluginsdk.KindThrottled}[g == "d"])
				}
			}
			return answers, nil
		}
		p := inProcess(t, c)
		groups := groupsOf(p, "a", "b", "c", "d")
		errs := make([]error, len(groups))
		var all sync.WaitGroup
		for i, g := range groups {
			all.Go(func() { _, errs[i] = g.Status(t.Context()) })
		}
		all.Wait()
		require.Equal(t, [][]string{{"a", "b", "c", "d"}, {"b", "c"}, {"c"}}, c.mu.calls)
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], pluginsdk.ErrThrottled)
		require.ErrorIs(t, errs[3], pluginsdk.ErrAuth)
	})
}

// TestRepetitionsAreBounded: whatever the cloud does, there are at most three calls
// for each that was asked for, and no more repetitions than what successes have earned
// and the plugin had in hand.
func TestRepetitionsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		asked, bad := rapid.IntRange(1, 500).Draw(rt, "asked"), rapid.Float64Range(0, 1).Draw(rt, "part that fails")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		successes := 0
		r, l := listing(func(context.Context) error {
			if random.Float64() < bad {
				return throttled(0)
			}
			successes++
			return nil
		})
		r.jitter = func(time.Duration) time.Duration { return 0 }
		for range asked {
			_, _ = r.ListInstances(context.Background(), "g")
		}
		if limit := min(3*asked, asked+int(retryTokens+retryEarned*float64(successes))); l.calls > limit {
			rt.Fatalf("%d calls for %d with %d successes, the limit is %d", l.calls, asked, successes, limit)
		}
	})
}

// account is a cloud that refuses a part of the calls until a time.
type account struct {
	cloud
	refuse float64
	until  time.Time
	random *rand.Rand
	mu     struct {
		sync.Mutex
		calls, refused int
	}
}

func (a *account) call() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.calls++
	if time.Now().Before(a.until) && a.random.Float64() < a.refuse {
		a.mu.refused++
		return throttled(0)
	}
	return nil
}

func (a *account) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if err := a.call(); err != nil {
		return nil, err
	}
	answers := make([]pluginsdk.GroupStatus, len(groups))
	for i, g := range groups {
		answers[i] = pluginsdk.GroupStatus{Group: g, Desired: 7, Max: 10}
	}
	return answers, nil
}

func (a *account) ListInstances(context.Context, string) ([]pluginsdk.Instance, error) {
	return nil, a.call()
}

// TestC35_ThrottledForTenMinutes: 120 pools on two accounts, one of which refuses half
// of the calls (and then all) for 10 minutes. It gets at most 3 times the calls that it
// gets otherwise, and a part of the answers; it is well again within one interval; the
// other account notices nothing.
func TestC35_ThrottledForTenMinutes(t *testing.T) {
	const pools, interval, span = 60, 5 * time.Second, 10 * time.Minute
	for _, part := range []float64{0.5, 1} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			bad := &account{refuse: part, until: began.Add(span), random: rand.New(rand.NewPCG(35, 1))}
			good := &account{}
			var wait sync.WaitGroup
			var mu sync.Mutex
			failed, answered := map[*account]int{}, map[*account]int{}
			tick := func(c *account, g *Group) {
				asked := time.Now()
				s, err := g.Status(t.Context())
				if err == nil {
					_, err = g.ListInstances(t.Context())
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && s.Desired == 7:
					answered[c]++
				case errors.Is(err, pluginsdk.ErrThrottled) && asked.Before(c.until):
					failed[c]++
				default:
					t.Errorf("%v after %v: %+v, %v", c.refuse, asked.Sub(began), s, err)
				}
				if c == good && time.Since(asked) > batchWindow {
					t.Errorf("the other account waited %v", time.Since(asked))
				}
			}
			for _, c := range []*account{bad, good} {
				p, err := InProcess(t.Context(), Spec{Name: "aws"}, c, Options{})
				require.NoError(t, err)
				for i := range pools {
					g := p.Group("pool-"+itoa(i), itoa(i))
					wait.Go(func() {
						for next := began; next.Sub(began) < span+interval; next = next.Add(interval) {
							time.Sleep(time.Until(next))
							tick(c, g)
						}
					})
				}
			}
			wait.Wait()
			normal := good.mu.calls
			require.LessOrEqual(t, bad.mu.calls, 3*normal)
			require.Zero(t, failed[good])
			require.Equal(t, failed[bad]+answered[bad], answered[good])
			if part == 1 {
				require.Equal(t, pools, answered[bad], "well again within one interval")
				require.LessOrEqual(t, bad.mu.calls, normal, "what is refused altogether is hardly asked")
			} else {
				require.Greater(t, answered[bad], answered[good]/3, "without repetitions it is a quarter")
			}
			t.Logf("%.0f %% refused: %d calls, %d of them refused, normal are %d; %d of %d ticks saw their group",
				100*part, bad.mu.calls, bad.mu.refused, normal, answered[bad], answered[good])
		})
	}
}
