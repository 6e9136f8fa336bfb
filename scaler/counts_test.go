package scaler

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// said is a count that a test sets.
type said struct {
	jobs float64
	none bool
	err  error

	drives bool
}

func (s *said) Count(string, time.Time) (float64, bool, error) { return s.jobs, !s.none, s.err }

func (s *said) Drives(string) bool { return s.drives }

func TestACountHoldsScaleInAndAnUnknownOneToo(t *testing.T) {
	r := busy(t, 4)
	for i := range r.machines {
		r.machines[i].Busy = 0 // as far as heartbeats know
	}
	source := &said{jobs: 2.5}
	r.fleet.SetCounts(source)
	r.pass(10 * time.Minute)
	require.Equal(t, []string{"drainmi-0=true"}, r.next(0), "three instances for 2.5 jobs")
	require.Equal(t, policy.ReasonFloor, r.pool.Status().Decision.LimitedBy)
	r.machines[0].Draining, r.machines[0].DrainAckedAt = true, r.now
	require.Equal(t, []string{"remove[i-0]"}, r.next(5*time.Second))

	for _, wrong := range []said{{err: errors.New("no data")}, {jobs: math.NaN()}, {jobs: -1}} {
		*source = wrong
		require.Empty(t, r.next(5*time.Second), "unknown is not zero")
		require.Equal(t, policy.ReasonHoldStale, r.pool.Status().Hold)
	}
	*source = said{jobs: math.Inf(1)}
	require.Empty(t, r.next(5*time.Second), "it launches nothing")
	require.Equal(t, 3, r.pool.Status().Desired)
	*source = said{jobs: 1}
	require.Equal(t, []string{"drainmi-1=true", "drainmi-2=true"}, r.next(5*time.Second))
	*source = said{none: true}
	require.Equal(t, []string{"drainmi-3=true"}, r.next(5*time.Second), "a pool without a source is not held")
}

func TestPollsRememberAndForgetInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		var troubles atomic.Int64
		sources := map[string]CountSource{
			"good": {Every: time.Minute, Read: func(context.Context) (pluginsdk.Count, error) {
				if fail.Load() {
					return pluginsdk.Count{}, errors.New("no data")
				}
				return pluginsdk.Count{Jobs: 3, At: time.Now()}, nil
			}},
			"hangs": {Every: time.Minute, Read: func(ctx context.Context) (pluginsdk.Count, error) {
				<-ctx.Done()
				return pluginsdk.Count{}, ctx.Err()
			}},
		}
		polls := NewPolls(sources, &Events{Trouble: func(TroubleInfo) { troubles.Add(1) }})
		_, ok, err := polls.Count("good", time.Now())
		require.True(t, ok)
		require.Error(t, err, "nothing is known yet, which is not 0")
		_, ok, err = polls.Count("none", time.Now())
		require.NoError(t, err)
		require.False(t, ok)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); polls.Run(ctx) }()
		synctest.Wait()
		jobs, ok, err := polls.Count("good", time.Now())
		require.NoError(t, err)
		require.True(t, ok)
		require.InDelta(t, 3, jobs, 0)
		_, _, err = polls.Count("hangs", time.Now())
		require.Error(t, err)

		fail.Store(true)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		_, _, err = polls.Count("good", time.Now())
		require.NoError(t, err, "three intervals old")
		time.Sleep(time.Second)
		_, _, err = polls.Count("good", time.Now())
		require.ErrorContains(t, err, "count/good: no value of after ")
		require.ErrorContains(t, err, " UTC, 3m1s ago, and one may be 3m0s old: no data")
		require.Positive(t, troubles.Load())
		status := polls.Status()
		require.Len(t, status, 2)
		require.Equal(t, CountStatus{Pool: "good", Every: time.Minute, At: time.Now().Add(-181 * time.Second), Err: status[0].Err, Reads: 4}, status[0])
		require.EqualError(t, status[0].Err, "no data")
		require.Zero(t, status[1].At)
		require.ErrorIs(t, status[1].Err, context.DeadlineExceeded)
		fail.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, _, err = polls.Count("good", time.Now())
		require.NoError(t, err, "I7")
		require.NoError(t, polls.Status()[0].Err)
		cancel()
		<-done
	})
}

// forever is a group whose provider never answers anything, not even when it is
// told to stop: a plugin that stands still behind a host that has given up on
// deadlines.
type forever struct {
	*world
	released chan struct{}
}

func (f forever) Status(context.Context) (pluginsdk.GroupStatus, error) {
	<-f.released
	return pluginsdk.GroupStatus{}, errors.New("released by the test")
}

func TestC43_APluginThatHangsForEverDelaysNoOtherPoolByASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = 5 * time.Second
		a, b := newWorld(), newWorld()
		var last atomic.Int64
		var longest atomic.Int64
		var ticks atomic.Int64
		began := time.Now()
		last.Store(0)
		events := &Events{Ticked: func(s Status) {
			if s.Pool != "b" {
				return
			}
			at := int64(time.Since(began))
			longest.Store(max(longest.Load(), at-last.Swap(at)))
			ticks.Add(1)
		}}
		hangs := forever{a, make(chan struct{})}
		pools := []*Pool{poolFor(a, hangs, "a", events), poolFor(b, b, "b", events)}
		fleet := NewFleet(waiting{job("a", began), job("b", began)}, idle{}, tick, spillway.SilentAfter, events)
		loop := NewLoop(fleet, pools, tick, 5*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); loop.Run(ctx) }()
		time.Sleep(10 * time.Minute) // of the bubble's clock
		synctest.Wait()
		require.GreaterOrEqual(t, ticks.Load(), int64(10*time.Minute/tick))
		require.LessOrEqual(t, time.Duration(longest.Load()), tick+time.Second)
		cancel()
		close(hangs.released)
		<-done
	})
}

// asked is a group that is told each write.
type asked struct {
	*world
	at chan time.Duration
	t0 time.Time
}

func (a asked) SetDesired(context.Context, int, int) (int, error) {
	a.at <- time.Since(a.t0)
	return 0, throttled(7 * time.Second)
}

func TestX16_TheLoopAsksAgainExactlyWhenItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		g := asked{w, make(chan time.Duration, 100), time.Now()}
		events := &Events{}
		fleet := NewFleet(waiting{job("a", time.Now())}, idle{}, 5*time.Second, spillway.SilentAfter, events)
		loop := NewLoop(fleet, []*Pool{poolFor(w, g, "a", events)}, 5*time.Second, 5*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); loop.Run(ctx) }()
		first := <-g.at
		for i := range 5 {
			require.Equal(t, first+time.Duration(i+1)*7*time.Second, <-g.at)
		}
		cancel()
		<-done
	})
}

func TestX20_TheEndOfTheLoopAsksNobodyForAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busy(t, 2)
		r.machines[0].Busy, r.machines[1].Busy = 0, 0
		events := &Events{}
		fleet := NewFleet(r.world, r.world, 5*time.Second, spillway.SilentAfter, events)
		loop := NewLoop(fleet, []*Pool{NewPool(config(r.world), r.world, r.world, r.world, r.world, events)}, 5*time.Second, 5*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // SIGTERM
		loop.Run(ctx)
		require.Empty(t, r.taken(), "instances are left to the next owner, and jobs to their machines")
	})
}

// A pool that a count drives says in its decision which source is too old, since when,
// and how old it may be.
func TestACountThatIsTooOldIsNamedInTheDecision(t *testing.T) {
	r := busy(t, 2)
	polls := NewPolls(map[string]CountSource{"linux": {Every: time.Minute, Drives: true}}, &Events{})
	r.fleet.SetCounts(polls)
	r.next(0)
	s := r.pool.Status()
	require.Equal(t, policy.ReasonHoldStale, s.Hold)
	require.Equal(t, "nothing is known of the jobs: count/linux: no value yet, after 0 reads", why(s.Decision, "need"))

	said := r.now
	polls.mu.last["linux"] = lastCount{Count: pluginsdk.Count{Jobs: 2, At: said}, err: errors.New("connection refused"), reads: 7}
	r.next(5 * time.Second)
	require.Empty(t, r.pool.Status().Hold)
	r.pass(3*time.Minute - 5*time.Second)
	r.next(0)
	require.Empty(t, r.pool.Status().Hold)
	r.next(time.Second)
	s = r.pool.Status()
	require.Equal(t, policy.ReasonHoldStale, s.Hold)
	require.Equal(t, "nothing is known of the jobs: count/linux: no value of after "+said.Format(time.DateTime)+
		" UTC, 3m1s ago, and one may be 3m0s old: connection refused", why(s.Decision, "need"))
}
