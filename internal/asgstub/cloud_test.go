package asgstub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// nasty is a group that does everything it can wrong.
func nasty() Faults {
	return Faults{
		Boot: Boot{P50: 40 * time.Second, P95: 2 * time.Minute}, Pending: 20 * time.Second, Terminating: 15 * time.Second,
		NeverRegister: NeverRegister{Every: 7}, Launch: []LaunchFault{{Code: "InsufficientInstanceCapacity", Ratio: 0.2}},
		Partial: 0.8, LateFill: time.Minute, VisibleAfter: 3 * time.Second, DesiredStale: 2 * time.Second,
		Victim: RandomVictim, ReplaceRace: true, AZRebalance: true, HealthCheck: 10 * time.Second, ThrottlePct: 3,
	}
}

// step is one random deed on a world; it reports whether it changed a protection.
func (w *world) step(t *rapid.T) (protects bool) {
	all := w.ids("ci")
	one := func() string {
		if len(all) == 0 {
			return "i-00000000000000000"
		}
		return rapid.SampledFrom(all).Draw(t, "id")
	}
	switch rapid.IntRange(0, 9).Draw(t, "deed") {
	case 0, 1:
		_ = w.set("ci", rapid.IntRange(0, 13).Draw(t, "n"))
	case 2:
		_ = w.kill(one(), rapid.Bool().Draw(t, "decrement"))
	case 3:
		_ = w.protect("ci", rapid.Bool().Draw(t, "on"), one())
		return true
	case 4:
		w.TerminateExternally(one())
	case 5:
		w.Interrupt(one(), DefaultNotice)
	case 6:
		w.SetDesiredExternally("ci", rapid.IntRange(0, 12).Draw(t, "n"))
	case 7:
		w.AZRebalance("ci")
	case 8:
		w.StartInstanceRefresh("ci")
	case 9:
		w.pass(time.Duration(rapid.IntRange(1, 300).Draw(t, "seconds")) * time.Second)
	}
	return false
}

// calm waits until nothing happens any more, or a day.
func (w *world) calm(t require.TestingT) {
	end := w.now.Add(24 * time.Hour)
	for range 100_000 {
		at, ok := w.NextEvent(w.now)
		if !ok || at.After(end) {
			return
		}
		require.False(t, at.Before(w.now), "time goes backwards")
		w.now = at
		w.Advance(at)
	}
	require.Fail(t, "it never comes to rest")
}

func TestWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := nasty()
		w := newWorld(t, Options{Seed: rapid.Uint64().Draw(rt, "seed")}, GroupConfig{Name: "ci", Max: 12, Desired: 3, NewInstancesProtected: true, Faults: &f})
		initial := w.ids("ci")
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			safe := map[string]bool{} // in service and protected
			for _, in := range w.Existing("ci") {
				safe[in.ID] = in.State == InService && in.Protected
			}
			seen := len(w.changes)
			protects := w.step(rt)
			for _, ch := range w.changes[seen:] {
				if ch.Kind == Ended && safe[ch.ID] && !protects {
					require.NotContains(rt, []Cause{ByScaleIn, Replaced, AZRebalanced}, ch.Cause, "the group chose a protected one")
				}
			}
			g, _ := w.Group("ci")
			require.LessOrEqual(rt, g.Desired, g.Max)
			require.GreaterOrEqual(rt, g.Desired, g.Min)
		}
		w.calm(rt)
		g, _ := w.Group("ci")
		require.Zero(rt, g.Outstanding)
		free := slices.ContainsFunc(g.Instances, func(in InstanceView) bool { return !in.Protected })
		if free || len(g.Instances) < g.Desired {
			require.Len(rt, g.Instances, g.Desired, "it comes to what desired says")
		}
		w.checkChanges(rt, initial)
	})
}

// checkChanges holds what the observer was told against what there is.
func (w *world) checkChanges(t require.TestingT, initial []string) {
	last := map[string]ChangeKind{}
	for _, id := range initial {
		last[id] = Ready
	}
	at := epoch
	for _, ch := range w.changes {
		require.False(t, ch.At.Before(at), "told out of order")
		at = ch.At
		require.Greater(t, ch.Kind, last[ch.ID], "%+v", ch)
		last[ch.ID] = ch.Kind
	}
	for _, in := range w.Instances("ci") {
		require.Equal(t, in.EndedAt.IsZero(), last[in.ID] != Ended, in.ID)
		delete(last, in.ID)
	}
	require.Empty(t, last, "told of an instance that there never was")
}

func TestEqualSeedsGiveEqualStories(t *testing.T) {
	t.Parallel()
	story := func(seed uint64) string {
		f := nasty()
		w := newWorld(t, Options{Seed: seed}, GroupConfig{Name: "ci", Max: 12, Desired: 3, Faults: &f})
		w.AddQueue("q")
		for i := range 60 {
			_ = w.set("ci", (i*7)%13)
			if ids := w.ids("ci"); len(ids) > 0 {
				_ = w.kill(ids[i%len(ids)], i%3 == 0)
			}
			w.pass(17 * time.Second)
		}
		activities, err := json.Marshal(w.activities("ci"))
		require.NoError(t, err)
		return fmt.Sprintf("%+v %s %d", w.changes, activities, w.Messages("q"))
	}
	first, again, other := story(1), story(1), story(2)
	require.True(t, first == again, "the same story twice")
	require.False(t, first == other, "another seed, another story")
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := Faults{Boot: Boot{P50: 5 * time.Millisecond}, Pending: time.Millisecond, Terminating: time.Millisecond}
	c := New(Options{Faults: f})
	var mu sync.Mutex
	told := map[string]ChangeKind{}
	c.Observe = func(ch Change) {
		mu.Lock()
		defer mu.Unlock()
		if told[ch.ID] >= ch.Kind {
			t.Errorf("%+v after %d", ch, told[ch.ID])
		}
		told[ch.ID] = ch.Kind
	}
	c.AddGroup(GroupConfig{Name: "ci", Max: 50})
	srv := httptest.NewServer(c)
	defer srv.Close()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			api := newClient(srv.Client(), srv.URL)
			for n := range 20 {
				_, err := api.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("ci"), DesiredCapacity: aws.Int32(int32(i * n % 40))})
				if err != nil {
					t.Error(err)
				}
				_, err = api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	_, ok := c.SetDesiredExternally("ci", 7)
	require.True(t, ok)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		ready := 0
		for _, kind := range told {
			if kind == Ready {
				ready++
			}
		}
		return ready == 7
	}, time.Minute, 5*time.Millisecond, "Run makes them ready without a call")
	stop()
	wg.Wait()
}

func TestCallLogIsBounded(t *testing.T) {
	t.Parallel()
	l := callLog{counts: map[string]int{}}
	for range MaxCalls + 1 {
		l.add(Call{Operation: "x"})
	}
	require.Len(t, l.calls, MaxCalls/2+1)
	require.Equal(t, MaxCalls+1, l.counts["x"])
}

func BenchmarkDescribe100Of1000Groups(b *testing.B) {
	c := New(Options{})
	for i := range 1000 {
		c.AddGroup(GroupConfig{Name: fmt.Sprintf("pool-%04d", i), Max: 100, Desired: 10})
	}
	form := "Action=DescribeAutoScalingGroups&Version=2011-01-01&MaxRecords=100"
	for i := range 100 {
		form += fmt.Sprintf("&AutoScalingGroupNames.member.%d=pool-%04d", i+1, i*10)
	}
	benchmarkForm(b, c, form)
}

func BenchmarkSetDesiredCapacity(b *testing.B) {
	c := New(Options{})
	c.AddGroup(GroupConfig{Name: "ci", Max: 100})
	benchmarkForm(b, c, "Action=SetDesiredCapacity&Version=2011-01-01&AutoScalingGroupName=ci&DesiredCapacity=10")
}
