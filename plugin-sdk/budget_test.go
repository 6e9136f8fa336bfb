package pluginsdk_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func retryAfter(t *testing.T, err error) time.Duration {
	t.Helper()
	require.ErrorIs(t, err, pluginsdk.ErrThrottled)
	var e *pluginsdk.Error
	require.ErrorAs(t, err, &e)
	return e.RetryAfter
}

// take takes n and returns how long that took.
func take(t *testing.T, b *pluginsdk.Budget, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for range n {
		require.NoError(t, b.Take(context.Background()))
	}
	return time.Since(began)
}

func TestABudgetHasABurstAndThenAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(10, 5)
		require.Zero(t, take(t, b, 5))
		require.InDelta(t, time.Second, take(t, b, 10), float64(time.Microsecond))
		time.Sleep(time.Hour)
		require.Zero(t, take(t, b, 5), "it fills again")
		require.InDelta(t, 100*time.Millisecond, take(t, b, 1), float64(time.Microsecond), "and not beyond the burst")
	})
}

func TestWhatIsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perSecond := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			b := pluginsdk.NewBudget(perSecond, 1)
			require.Nil(t, b)
			b.Throttled(time.Hour)
			require.Zero(t, take(t, b, 100))
		}
		require.Zero(t, take(t, pluginsdk.NewBudget(1, 0), 1), "a burst of none would be for ever")
	})
}

// TestABudgetIsFair: who came first goes first, also when others give up.
func TestABudgetIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(1, 1)
		take(t, b, 1)
		var mu sync.Mutex
		var served []int
		for i := range 20 {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				if b.Take(ctx) == nil {
					mu.Lock()
					served = append(served, i)
					mu.Unlock()
				}
				cancel()
			}()
			synctest.Wait()
			if i%4 == 0 { // the first in line is one of them
				time.AfterFunc(time.Millisecond, cancel)
			}
		}
		time.Sleep(15*time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19}, served, "who gives up takes no turn with it")
	})
}

// TestATurnThatComesTooLate: nobody waits in vain, and nothing is taken.
func TestATurnThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(0.5, 1)
		take(t, b, 1)
		within := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return b.Take(ctx)
		}
		began := time.Now()
		for range 3 {
			require.Equal(t, 2*time.Second, retryAfter(t, within(1999*time.Millisecond)))
		}
		require.Zero(t, time.Since(began), "it waited")
		require.NoError(t, within(2*time.Second+1), "the last moment is early enough")
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestACallerThatHasEndedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(1, 1)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for _, b := range []*pluginsdk.Budget{b, nil} {
			err := b.Take(ended)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, pluginsdk.ErrTransient)
		}
		require.Zero(t, take(t, b, 1))

		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		require.ErrorIs(t, b.Take(ctx), context.Canceled)
		require.Equal(t, 900*time.Millisecond, take(t, b, 1))
	})
}

func TestAThrottledBudgetSlowsDownAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(8, 8)
		for range 10 { // they were on their way together: one lesson
			b.Throttled(0)
		}
		require.InDelta(t, 250*time.Millisecond, take(t, b, 1), float64(10*time.Millisecond), "the burst is gone, the pace is half")
		for range 10 {
			time.Sleep(time.Second)
			b.Throttled(0)
		}
		require.InDelta(t, time.Second, take(t, b, 1), float64(100*time.Millisecond), "an eighth is left")
		slow := take(t, b, 8)
		time.Sleep(2 * time.Minute)
		take(t, b, 8)
		require.Less(t, 3*take(t, b, 8), slow)
		require.InDelta(t, time.Second, take(t, b, 8), float64(time.Millisecond))
	})
}

func TestRetryAfterStopsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(100, 100)
		b.Throttled(20 * time.Second)
		b.Throttled(time.Second) // doesn't shorten the first
		short, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		require.InDelta(t, 20*time.Second, retryAfter(t, b.Take(short)), float64(100*time.Millisecond))
		require.InDelta(t, 20*time.Second, take(t, b, 1), float64(100*time.Millisecond))
		b.Throttled(time.Hour)
		require.InDelta(t, 5*time.Minute, take(t, b, 1), float64(100*time.Millisecond), "a cloud's mistake")
	})
}

// TestAPauseBeginsWhileOthersWait: their turn moves beyond their deadline.
func TestAPauseBeginsWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(1, 1)
		take(t, b, 1)
		time.AfterFunc(500*time.Millisecond, func() { b.Throttled(time.Minute) })
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := b.Take(ctx)
		require.InDelta(t, 57500*time.Millisecond, retryAfter(t, err), float64(50*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestTheLineIsBounded(t *testing.T) {
	const limit = 10_000
	synctest.Test(t, func(t *testing.T) {
		b := pluginsdk.NewBudget(1, 1)
		take(t, b, 1)
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range limit {
			all.Go(func() { _ = b.Take(ctx) })
		}
		synctest.Wait()
		require.InDelta(t, (limit+1)*time.Second, retryAfter(t, b.Take(context.Background())), float64(time.Millisecond))
		cancel()
		all.Wait()
		require.InDelta(t, time.Second, take(t, b, 1), float64(time.Millisecond), "nobody is left in it")
	})
}

// TestABudgetIsKept: in no span of time more than burst + pace × span are let
// through, whoever comes when and gives up when.
func TestABudgetIsKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		perSecond := rapid.Float64Range(0.1, 50).Draw(rt, "per second")
		burst := rapid.IntRange(1, 20).Draw(rt, "burst")
		type caller struct{ arrives, patience int } // ms
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{rapid.IntRange(0, 3_000).Draw(rt, "arrives"), rapid.IntRange(0, 5_000).Draw(rt, "patience")}
		}), 1, 60).Draw(rt, "callers")
		var sent []time.Duration
		synctest.Test(t, func(t *testing.T) {
			b, began := pluginsdk.NewBudget(perSecond, burst), time.Now()
			var mu sync.Mutex
			var all sync.WaitGroup
			for _, c := range callers {
				all.Go(func() {
					time.Sleep(time.Duration(c.arrives) * time.Millisecond)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.patience)*time.Millisecond+time.Nanosecond)
					defer cancel()
					err := b.Take(ctx)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						sent = append(sent, time.Since(began))
					} else if !errors.Is(err, pluginsdk.ErrThrottled) {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
		})
		for i := range sent {
			for j := i; j < len(sent); j++ {
				allowed := float64(burst) + perSecond*(sent[j]-sent[i]).Seconds() + 1e-6
				if n := j - i + 1; float64(n) > allowed {
					rt.Fatalf("%d calls within %v, %f are allowed", n, sent[j]-sent[i], allowed)
				}
			}
		}
	})
}

func BenchmarkBudget(b *testing.B) {
	budget := pluginsdk.NewBudget(1e12, 1<<30)
	for b.Loop() {
		if err := budget.Take(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
