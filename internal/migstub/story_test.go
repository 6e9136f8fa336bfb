package migstub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/internal/migstub"
)

// nasty is a group with all faults at once.
func nasty() migstub.GroupConfig {
	return migstub.GroupConfig{Name: "linux", Zone: zone, Size: 3, Faults: migstub.GroupFaults{
		Boot: migstub.Boot{P50: 30 * time.Second, P95: time.Minute}, Stop: 10 * time.Second, ListLag: 5 * time.Second,
		NeverRegister: migstub.NeverRegister{Every: 7}, Recreate: migstub.Recreate{Every: 9, After: time.Minute},
		Missing: 0.2, LateFill: time.Minute,
		Errors: []migstub.CreateError{{From: time.Minute, To: 5 * time.Minute, Code: migstub.QuotaExceeded, Ratio: 0.5}},
	}}
}

// step is one call or deed at random.
func step(w *world, rng *rand.Rand) {
	size := rng.IntN(12)
	pick := func() string {
		list := w.Existing("linux")
		if len(list) == 0 {
			return "linux-none"
		}
		return list[rng.IntN(len(list))].Name
	}
	switch rng.IntN(8) {
	case 0, 1:
		w.resize(fmt.Sprint(size))
	case 2, 3:
		w.post(linux+"/deleteInstances", object{"instances": []string{pick()}})
	case 4:
		w.Preempt(pick(), time.Duration(rng.IntN(40))*time.Second)
	case 5:
		w.DeleteInstanceExternally(pick())
	case 6:
		w.SetSizeExternally("linux", size)
	case 7:
		w.post(linux+"/recreateInstances", object{"instances": []string{pick()}})
	}
}

// What holds at every moment of every story: the group has as many managed
// instances as its target says besides those that it deletes, no machine changes
// but in the order launched, ready, ended, and what is next is never in the past.
func TestWhatAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		w := newWorld(t, migstub.Options{Seed: seed}, nasty())
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if rng.IntN(2) == 0 {
				step(w, rng)
			} else if next, ok := w.NextEvent(w.at); ok {
				require.True(t, next.After(w.at), "%s is not after %s", next, w.at)
				w.at = next
				w.Advance(w.at)
			}
			view, _ := w.Group("linux")
			require.Equal(t, view.Target, view.Members-view.Deleting)
			require.LessOrEqual(t, view.Live, view.Target)
		}
		lives := map[string]migstub.ChangeKind{}
		last := time.Time{}
		for _, ch := range w.told {
			require.False(t, ch.At.Before(last), "told in the order of time")
			last = ch.At
			if ch.Kind == migstub.Notice {
				continue
			}
			require.Greater(t, ch.Kind, lives[ch.ID], "%+v", ch)
			lives[ch.ID] = ch.Kind
		}
	})
}

// Equal seeds and calls give equal stories.
func TestStoriesAreRepeatable(t *testing.T) {
	run := func(seed uint64) ([]migstub.Change, object) {
		w := newWorld(t, migstub.Options{Seed: seed, Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: time.Second}}}, nasty())
		rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test
		for range 200 {
			step(w, rng)
			w.after(time.Duration(rng.IntN(20)) * time.Second)
		}
		return w.told, w.post(linux+"/listManagedInstances", nil)
	}
	told, list := run(1)
	again, listAgain := run(1)
	require.Equal(t, told, again)
	require.Equal(t, list, listAgain)
	other, _ := run(2)
	require.NotEqual(t, told, other)
}

// Stepping from event to event tells the same as one leap.
func TestALeapIsManySteps(t *testing.T) {
	run := func(leap bool) []migstub.Change {
		w := newWorld(t, migstub.Options{Seed: 3}, nasty())
		w.resize("30")
		end := w.at.Add(time.Hour)
		for !leap {
			next, ok := w.NextEvent(w.at)
			if !ok || next.After(end) {
				break
			}
			w.at = next
			w.Advance(next)
		}
		w.at = end
		w.Advance(end)
		return w.told
	}
	require.Equal(t, run(true), run(false))
}

// Observe may call the Cloud, and its deeds are told after.
func TestObserverActs(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(0, migstub.GroupFaults{}))
	var told []migstub.ChangeKind
	w.Observe = func(c migstub.Change) {
		told = append(told, c.Kind)
		if c.Kind == migstub.Ready && w.Live("linux") == 1 {
			w.SetSizeExternally("linux", 0)
		}
	}
	w.resize("1")
	require.Equal(t, []migstub.ChangeKind{migstub.Launched, migstub.Ready, migstub.Ended}, told)
}

// On the wall clock, Run tells things when they happen.
func TestRun(t *testing.T) {
	c := migstub.New(migstub.Options{})
	ready := make(chan migstub.Change, 10)
	c.Observe = func(ch migstub.Change) {
		if ch.Kind == migstub.Ready {
			ready <- ch
		}
	}
	c.AddGroup(linuxGroup(0, booting(20*time.Millisecond)))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	c.SetSizeExternally("linux", 2)
	for range 2 {
		select {
		case ch := <-ready:
			require.True(t, ch.Registers)
		case <-time.After(30 * time.Second):
			t.Fatal("nobody was told")
		}
	}
	cancel()
	wg.Wait()
}

// Many callers at once, on a socket.
func TestManyCallers(t *testing.T) {
	c := migstub.New(migstub.Options{Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: time.Millisecond}}})
	c.AddGroup(linuxGroup(5, migstub.GroupFaults{Boot: migstub.Boot{P50: time.Millisecond}}))
	launched := 0
	c.Observe = func(ch migstub.Change) { // one at a time: no lock is needed
		if ch.Kind == migstub.Launched {
			launched++
		}
	}
	url := serve(t, c)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				for _, call := range []struct{ verb, path string }{
					{http.MethodPost, fmt.Sprintf("%s/resize?size=%d", linux, (i+j)%10)},
					{http.MethodPost, linux + "/listManagedInstances"},
					{http.MethodGet, linux},
					{http.MethodGet, "operations"},
				} {
					r, err := http.NewRequestWithContext(t.Context(), call.verb, url+zonal+call.path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := http.DefaultClient.Do(r)
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Error(call, err)
						return
					}
					_ = resp.Body.Close()
				}
				c.Preempt("absent", 0)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 160, c.CountOf("resize"))
	require.Len(t, c.Calls(), 640)
	c.ResetCalls()
	require.Empty(t, c.Calls())
	require.Zero(t, c.CountOf("resize"))
	c.Advance(time.Now())
	require.Positive(t, launched)
}

// The costs of what a simulation does all the time.
func BenchmarkListManagedInstances(b *testing.B) {
	c := migstub.New(migstub.Options{Now: newClock().now})
	c.AddGroup(linuxGroup(1_000, migstub.GroupFaults{}))
	transport := c.Transport()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://stub"+zonal+linux+"/listManagedInstances", nil)
	require.NoError(b, err)
	for b.Loop() {
		resp, err := transport.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}
