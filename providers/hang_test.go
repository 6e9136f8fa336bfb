package providers_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// hangers call a group that hangs until its plugin was restarted three times.
type hangers struct {
	running sync.WaitGroup
	changes atomic.Int64 // calls that began or ended
	out     atomic.Int64 // calls that hang
}

func (h *hangers) hang(t *testing.T, p *providers.Plugin, call func() error) {
	for p.State().Restarts < 3 {
		h.out.Add(1)
		h.changes.Add(1)
		if call() == nil {
			t.Error("it answered")
		}
		h.out.Add(-1)
		h.changes.Add(1)
	}
}

// TestC43_AHungPluginDelaysNoOther: every call of one plugin hangs, again after each
// restart. Another plugin's calls begin and end while they do, and nothing is left of
// those that hung.
func TestC43_AHungPluginDelaysNoOther(t *testing.T) {
	goroutines := runtime.NumGoroutine() + 1 // Eventually asks from one of its own
	f := newHost(t, providers.Timing{Read: time.Second, Write: time.Second, Settle: time.Nanosecond})
	s := spec(t, "good")
	hung := open(t, f, s)
	s.Config = []byte(`{"do":"well"}`)
	other := open(t, f, s)
	g := other.Group("b", "g")

	var h hangers
	a := hung.Group("a", "hang")
	for range 2 {
		h.running.Go(func() {
			h.hang(t, hung, func() error { _, err := a.ListInstances(context.Background()); return err })
		})
		h.running.Go(func() {
			h.hang(t, hung, func() error { _, err := a.SetDesired(context.Background(), 1, 0); return err })
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.running.Wait()
	}()
	calls, slowest := callDuring(t, &h, g, ended)
	require.Greater(t, calls, 3, "they waited for those that hung")
	require.Zero(t, other.State().Restarts)
	require.NoError(t, hung.Ready(within(t, patience)))
	require.NoError(t, hung.Close(context.Background()))
	require.NoError(t, other.Close(context.Background()))
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, patience, 10*time.Millisecond, "goroutines leak")
	t.Logf("%d calls while others hung, the slowest took %v", calls, slowest.Round(time.Microsecond))
}

// callDuring calls g until the hangers have ended and counts the answers to calls that
// began and ended while the same calls hung.
func callDuring(t *testing.T, h *hangers, g *providers.Group, ended <-chan struct{}) (calls int, slowest time.Duration) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return calls, slowest
		case <-tick.C:
		}
		began, changes, out := time.Now(), h.changes.Load(), h.out.Load()
		_, err := g.SetDesired(context.Background(), 1, 1)
		slowest = max(slowest, time.Since(began))
		switch {
		case errors.Is(err, context.DeadlineExceeded): // all of the machine stood still
		case err != nil:
			t.Error(err)
		case out > 0 && h.changes.Load() == changes:
			calls++
		}
	}
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
