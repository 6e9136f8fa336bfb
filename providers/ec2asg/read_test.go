package ec2asg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

const describes = "DescribeAutoScalingGroups"

// fleet is n groups with desired instances each.
func fleet(n, desired int) (groups []asgstub.GroupConfig, names []string) {
	for i := range n {
		g := linux(desired)
		g.Name = fmt.Sprintf("group-%04d", i)
		groups, names = append(groups, g), append(names, g.Name)
	}
	return groups, names
}

// 120 groups are 2 calls a look, all pages are read, and listing them all costs no
// more.
func TestC35_AHundredGroupsACall(t *testing.T) {
	groups, names := fleet(120, 1)
	w := start(t, asgstub.Options{}, nil, groups...)
	for look := 1; look <= 3; look++ {
		statuses, err := w.Status(t.Context(), names)
		require.NoError(t, err)
		for _, s := range statuses {
			require.NoError(t, s.Err)
			list, err := w.ListInstances(t.Context(), s.Group)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.False(t, list[0].LaunchedAt.IsZero())
			require.Regexp(t, `^10\.\d+\.\d+\.\d+$`, list[0].Address, "it comes with the launch time")
		}
		require.Equal(t, 2*look, w.cloud.CountOf(describes))
		require.Equal(t, 1, w.cloud.CountOf("DescribeInstances"), "200 instances a call, and launch times don't change")
		w.after(5 * time.Second)
	}
	require.Equal(t, map[string]int{describes: 6, "DescribeInstances": 1}, w.cloud.Counts())
}

// Pages that are smaller than was asked for are followed to the end.
func TestC35_SmallPages(t *testing.T) {
	groups, names := fleet(30, 1)
	w := start(t, asgstub.Options{Faults: asgstub.Faults{PageSize: 7}}, nil, groups...)
	statuses, err := w.Status(t.Context(), names)
	require.NoError(t, err)
	for i, s := range statuses {
		require.Equal(t, names[i], s.Group)
		require.Equal(t, 1, s.Desired)
		list, err := w.ListInstances(t.Context(), s.Group)
		require.NoError(t, err)
		require.False(t, list[0].LaunchedAt.IsZero(), "pages of EC2")
	}
}

// Half of all calls are throttled: nothing is made up, nothing is retried here, and
// what the other half says is used.
func TestC35_Throttled(t *testing.T) {
	groups, names := fleet(120, 1)
	w := start(t, asgstub.Options{Faults: asgstub.Faults{ThrottlePct: 50}, Seed: 5}, nil, groups...)
	answered := 0
	for range 120 {
		statuses, err := w.Status(t.Context(), names)
		if err != nil {
			require.ErrorIs(t, err, pluginsdk.ErrThrottled)
		}
		for _, s := range statuses {
			if s.Err != nil {
				require.ErrorIs(t, s.Err, pluginsdk.ErrThrottled)
				continue
			}
			answered++
			require.Equal(t, 1, s.Desired)
		}
		w.after(5 * time.Second)
	}
	require.Equal(t, 240, w.cloud.CountOf(describes))
	require.Greater(t, answered, 120*120/3)
	require.Empty(t, w.writes())
}

// AWS does not say when to come again. The longer it refuses, the later is suggested,
// and never so late that it would be taken for out of order.
func TestC35_ThrottledForLong(t *testing.T) {
	throttled := asgstub.CallFault{Window: asgstub.Window{To: 10 * time.Minute}, Operations: []string{"SetDesiredCapacity"}, Code: "Throttling"}
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{throttled}}}, nil, linux(0))
	var pauses []time.Duration
	for {
		_, err := w.set("linux", 1, 0)
		if err == nil {
			break
		}
		var e *pluginsdk.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, pluginsdk.KindThrottled, e.Kind)
		require.Zero(t, w.group("linux").Desired)
		pauses = append(pauses, e.RetryAfter/time.Second)
		w.after(e.RetryAfter)
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 30}, pauses[:6])
	require.Less(t, len(pauses), 30)
}

// A list is served from the last look for a second, unless we have written since.
func TestAListIsTheLastLooks(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	reads := func() int { return w.cloud.CountOf(describes) }
	ids := w.ids("linux")
	require.Equal(t, 1, reads())
	w.after(999 * time.Millisecond)
	_, err := w.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Equal(t, 1, reads())
	w.after(time.Millisecond)
	_, err = w.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Equal(t, 2, reads())
	w.remove("linux", ids[0])
	require.Equal(t, 2, reads())
	list, err := w.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, 3, reads())
}

// Who asks for lists at the same time shares the calls.
func TestConcurrentAskersShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, names := fleet(300, 0)
		w := onWallClock(t, asgstub.Options{}, nil, 20*time.Millisecond, groups...)
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				_, err := w.ListInstances(t.Context(), name)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		require.LessOrEqual(t, w.cloud.CountOf(describes), 1+3, "the first by itself, and hundreds")
	})
}

// One who gives up takes nobody along.
func TestAnAskerWhoGivesUpHurtsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, names := fleet(3, 0)
		w := onWallClock(t, asgstub.Options{}, nil, time.Second, groups...)
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := w.ListInstances(hasty, names[0])
			assert.ErrorIs(t, err, pluginsdk.ErrTransient)
		})
		synctest.Wait()
		for _, name := range names {
			all.Go(func() {
				_, err := w.ListInstances(t.Context(), name)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		require.LessOrEqual(t, w.cloud.CountOf(describes), 3)
	})
}

// A failure of a shared call is everybody's: they don't all try.
func TestASharedFailureIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, names := fleet(50, 0)
		w := onWallClock(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{
			{Operations: []string{describes}, Code: "InternalFailure"},
		}}}, nil, 20*time.Millisecond, groups...)
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				_, err := w.ListInstances(t.Context(), name)
				assert.ErrorIs(t, err, pluginsdk.ErrTransient)
			})
		}
		all.Wait()
		require.LessOrEqual(t, w.cloud.CountOf(describes), 2)
	})
}

// 300 groups want to grow at once, and the account allows 100 calls and 20 more each
// second. The writes take the 11 seconds that they must with the margin that is kept, and
// two reads a second: one for those who come next, one for the looks.
func TestC35_ManyWritesShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, names := fleet(300, 0)
		w := onWallClock(t, asgstub.Options{Rate: asgstub.RateLimit{Burst: 100, PerSecond: 20}},
			map[string]any{"api_rate": map[string]any{"per_second": 20, "burst": 100}}, 5*time.Millisecond, groups...)
		began := time.Now()
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					_, err := w.SetDesired(ctx, pluginsdk.SetDesired{Group: name, Target: 1, Expected: 0})
					assert.NoError(t, ctx.Err(), "who asks must hear that nothing was sent while they still listen")
					cancel()
					if err == nil {
						return
					}
					var e *pluginsdk.Error
					if !assert.ErrorAs(t, err, &e) || !assert.Equal(t, pluginsdk.KindThrottled, e.Kind, err) {
						return
					}
					time.Sleep(e.RetryAfter)
				}
			})
		}
		all.Wait()
		const ideal = (300 - 95) * time.Second / 19
		t.Logf("%s, %d reads", time.Since(began), w.cloud.CountOf(describes))
		require.LessOrEqual(t, time.Since(began), ideal*115/100)
		require.Equal(t, 300, w.cloud.CountOf("SetDesiredCapacity"), "none was throttled, none was sent twice")
		require.LessOrEqual(t, w.cloud.CountOf(describes), 25)
		for _, name := range names {
			require.Equal(t, 1, w.group(name).Desired)
		}
	})
}

// What a look does beside reading the groups may hang: the groups' numbers come.
func TestALookDoesNotWaitForWhatIsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := onWallClock(t, asgstub.Options{Faults: asgstub.Faults{
			Launch: []asgstub.LaunchFault{{Code: "InsufficientInstanceCapacity"}},
			Calls:  []asgstub.CallFault{{Operations: []string{"DescribeInstances", "DescribeScalingActivities"}, Hang: true}},
		}}, nil, time.Millisecond, linux(2))
		_, err := w.set("linux", 3, 2)
		require.NoError(t, err)
		began := time.Now()
		s, list := w.look("linux")
		require.Less(t, time.Since(began), 11*time.Second)
		require.Equal(t, 3, s.Desired)
		require.Len(t, list, 2)
		began = time.Now()
		w.look("linux")
		require.Less(t, time.Since(began), time.Second, "it is left alone for a while")
	})
}

// onWallClock is a world on the bubble's clock, whose calls take a while.
func onWallClock(t *testing.T, options asgstub.Options, settings map[string]any, latency time.Duration, groups ...asgstub.GroupConfig) *world {
	t.Helper()
	isolate(t)
	w := &world{t: t, cloud: asgstub.New(options)}
	config := map[string]any{"region": asgstub.DefaultRegion, "endpoint": "http://aws.test"}
	var names []string
	for _, g := range groups {
		w.cloud.AddGroup(g)
		names = append(names, g.Name)
	}
	config["groups"] = names
	for k, v := range settings {
		config[k] = v
	}
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	w.Provider = ec2asg.NewWith(ec2asg.Options{HTTP: slow{w.cloud.Client(), latency}, AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret-of-the-test"})
	require.NoError(t, w.Configure(t.Context(), raw))
	return w
}

// A look at a few groups reads others along, so that their looks cost nothing; but
// not after a write of ours, whatever came of it.
func TestALookReadsOthersAlong(t *testing.T) {
	groups, names := fleet(150, 0)
	lost := asgstub.CallFault{Operations: []string{"SetDesiredCapacity"}, Code: "InternalFailure", Applied: true, Times: 1}
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{lost}}}, nil, groups...)
	status := func(names ...string) []pluginsdk.GroupStatus {
		all, err := w.Status(t.Context(), names)
		require.NoError(t, err)
		return all
	}
	status(names[:10]...)
	status(names[10:100]...)
	require.Equal(t, 1, w.cloud.CountOf(describes))
	status(names[60:]...)
	require.Equal(t, 2, w.cloud.CountOf(describes))
	status(names...)
	require.Equal(t, 2, w.cloud.CountOf(describes))

	_, err := w.set(names[0], 1, 0)
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.Equal(t, 1, status(names[0])[0].Desired)
	require.Equal(t, 3, w.cloud.CountOf(describes))
	w.after(time.Second)
	status(names[0])
	require.Equal(t, 4, w.cloud.CountOf(describes))
}

// A look that comes to nothing before a write is no write with an unknown outcome.
func TestAFailedLookBeforeAWriteIsNotSent(t *testing.T) {
	for name, fault := range map[string]asgstub.CallFault{
		"it hangs": {Operations: []string{describes}, Hang: true},
		"it fails": {Operations: []string{describes}, Code: "InternalFailure"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := onWallClock(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{fault}}}, nil, time.Millisecond, linux(2))
				notSent := func(err error) {
					var e *pluginsdk.Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, pluginsdk.KindThrottled, e.Kind)
					require.Positive(t, e.RetryAfter)
					require.LessOrEqual(t, e.RetryAfter, 30*time.Second)
				}
				ctx := func() context.Context {
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					t.Cleanup(cancel)
					return ctx
				}
				_, err := w.SetDesired(ctx(), pluginsdk.SetDesired{Group: "linux", Target: 3, Expected: 2})
				notSent(err)
				_, err = w.Withdraw(ctx(), "linux", 2, "t")
				notSent(err)
				_, err = w.Remove(ctx(), "linux", []string{"i-1"}, "t")
				notSent(err)
				notSent(w.CompleteHook(ctx(), "linux", []string{"i-1"}))
				notSent(w.ReportUnhealthy(ctx(), "linux", []string{"i-1"}))
				require.Empty(t, w.writes())
			})
		})
	}
}

// While writes wait for the budget, what a look does beside reading waits too, but
// not for ever.
func TestLooksGiveWayToWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, names := fleet(400, 0)
		groups[0].Desired = 1
		w := onWallClock(t, asgstub.Options{}, map[string]any{"api_rate": map[string]any{"per_second": 5, "burst": 5}}, time.Millisecond, groups...)
		_, err := w.Status(t.Context(), names[1:2])
		require.NoError(t, err)
		var all sync.WaitGroup
		for _, name := range names[100:] {
			all.Go(func() {
				_, err := w.SetDesired(t.Context(), pluginsdk.SetDesired{Group: name, Target: 1, Expected: 0})
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Second)
		w.look(names[0])
		require.Zero(t, w.cloud.CountOf("DescribeInstances"))
		time.Sleep(30 * time.Second)
		require.Less(t, w.cloud.CountOf("SetDesiredCapacity"), 300, "they still wait")
		w.look(names[0])
		require.Equal(t, 1, w.cloud.CountOf("DescribeInstances"))
		all.Wait()
	})
}
