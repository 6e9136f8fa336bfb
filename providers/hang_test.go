package providers_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

func containsError(err error, text string) bool { return strings.Contains(err.Error(), text) }

// TestC43_AHungPluginDelaysNoOther: every call of one plugin hangs, again after each
// restart. Another plugin's calls take their time and no more, and nothing is left of
// those that hung.
func TestC43_AHungPluginDelaysNoOther(t *testing.T) {
	goroutines := runtime.NumGoroutine() + 1 // Eventually asks from one of its own
	f := newHost(t, providers.Timing{Read: 150 * time.Millisecond, Write: 150 * time.Millisecond, Settle: time.Nanosecond})
	s := spec(t, "good")
	hung := open(t, f, s)
	s.Config = []byte(`{"do":"well"}`)
	other := open(t, f, s)
	g := other.Group("b", "g")
	_, err := g.Status(context.Background())
	require.NoError(t, err)

	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer close(ended)
		a := hung.Group("a", "hang")
		for hung.State().Restarts < 3 {
			_, listErr := a.ListInstances(context.Background())
			_, setErr := a.SetDesired(context.Background(), 1, 0)
			if listErr == nil || setErr == nil {
				t.Error("it answered")
			}
		}
	})
	var slowest time.Duration
	calls := 0
	running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			began := time.Now()
			if _, err := g.SetDesired(context.Background(), 1, 1); err != nil {
				t.Error(err)
			}
			slowest = max(slowest, time.Since(began))
			calls++
		}
	})
	running.Wait()
	require.Less(t, slowest, time.Second)
	require.Zero(t, other.State().Restarts)
	require.NoError(t, hung.Ready(within(t, patience)))
	require.NoError(t, hung.Close(context.Background()))
	require.NoError(t, other.Close(context.Background()))
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, patience, 10*time.Millisecond, "goroutines leak")
	t.Logf("the slowest of %d calls took %v", calls, slowest.Round(time.Microsecond))
}

// TestX15_FailedCallsCostNoDescriptor: ten thousand of them.
func TestX15_FailedCallsCostNoDescriptor(t *testing.T) {
	calls := 10_000
	if testing.Short() {
		calls = 500
	}
	f := newHost(t, providers.Timing{})
	g := open(t, f, spec(t, "good")).Group("pool", "denied")
	fail := func() {
		_, err := g.ListInstances(context.Background())
		require.ErrorIs(t, err, pluginsdk.ErrAuth)
	}
	fail()
	files := openFiles(t)
	for range calls {
		fail()
	}
	require.LessOrEqual(t, openFiles(t), files)
}
