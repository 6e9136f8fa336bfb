package local

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestCrashDelay(t *testing.T) {
	for crashes, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 1_000_000: time.Minute,
	} {
		require.Equal(t, want, crashDelay(crashes), "after %d crashes", crashes)
	}
}

// waiting is a provider whose instances wait for ever and are never started.
func waiting(t *testing.T, desired int) (*Provider, *group) {
	t.Helper()
	p := New()
	p.mu.config = &config{BootDelay: time.Hour}
	g := &group{groupConfig: groupConfig{Name: "g", Max: desired}, desired: desired, instances: map[string]*instance{}}
	p.mu.groups = map[string]*group{"g": g}
	p.mu.Lock()
	p.converge(g, 0)
	p.mu.Unlock()
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p, g
}

func TestEarlyEndsAreCrashesAndAReplacementThatLivesIsNone(t *testing.T) {
	p, g := waiting(t, 1)
	end := func(after time.Duration) {
		for _, in := range g.instances {
			_, ok, err := p.starts(g, in)
			require.NoError(t, err)
			require.True(t, ok)
			in.orders <- order{} // so that its goroutine ends
			p.ended(g, in, after, nil)
		}
		require.Len(t, g.instances, 1, "it was not replaced")
	}
	end(crashWithin - 1)
	end(0)
	require.Equal(t, 2, g.crashes)
	require.Len(t, g.failures, 2)
	end(crashWithin)
	require.Zero(t, g.crashes)
	require.Len(t, g.failures, 2, "an instance that lived and went is no failure")
}

func TestCloseHonoursItsDeadline(t *testing.T) {
	p, _ := waiting(t, 1)
	end := make(chan struct{})
	p.instances.Go(func() { <-end }) // an instance that doesn't end
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Close(ctx), pluginsdk.ErrTransient)
	close(end)
	require.NoError(t, p.Close(t.Context()))
}

func TestFailuresAreBounded(t *testing.T) {
	_, g := waiting(t, 0)
	for i := range maxFailures + 3 {
		g.fail(&instance{id: string(rune('A' + i))}, nil)
	}
	require.Len(t, g.failures, maxFailures)
	require.Equal(t, "D", g.failures[0].ID)
}
