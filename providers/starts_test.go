package providers_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// TestC44_SixBadPluginsHoldUpNoGoodOne: all start at the same time. Each bad one has
// its sentence within its time, and while the slowest of them are still starting the
// good ones answer.
func TestC44_SixBadPluginsHoldUpNoGoodOne(t *testing.T) {
	const start = 3 * time.Second
	f := newHost(t, providers.Timing{Start: start})
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	_, err := f.Start(providers.Spec{Name: "not executable", Path: plain})
	require.ErrorIs(t, err, program.ErrBinary)
	require.ErrorContains(t, err, "is not executable (mode 0644): chmod 0755")

	bad := map[string]string{
		"noisy":   "on standard output before the handshake",
		"cookie":  "is a plugin of another program",
		"version": "speaks version 9 of the contract, this control plane speaks 1 and 2",
		"late":    "said nothing for 3s after its start; its last words: reading a large file",
		"silent":  "said nothing for 3s after its start; its last words: loading for ever",
	}
	plugins := map[string]*providers.Plugin{}
	for _, role := range []string{"late", "silent", "noisy", "cookie", "version", "good", "filecloud"} {
		plugins[role], err = f.Start(providers.Spec{Name: role, Path: script(t, role)})
		require.NoError(t, err)
	}
	for _, role := range []string{"good", "filecloud"} {
		require.NoError(t, plugins[role].Ready(within(t, patience)))
		_, err := plugins[role].Group("pool", "g").Status(within(t, patience))
		require.NoError(t, err)
	}
	for _, role := range []string{"late", "silent"} {
		require.Equal(t, providers.Starting, plugins[role].State().Phase, "the good ones waited for %s", role)
	}
	var failed sync.WaitGroup
	for role, want := range bad {
		failed.Go(func() {
			err := plugins[role].Ready(within(t, start+patience))
			if err == nil {
				t.Errorf("%s is ready", role)
				return
			}
			if ctx := within(t, patience); plugins[role].Close(ctx) != nil {
				t.Errorf("%s can't be closed", role)
			}
			for _, sentence := range []string{want, `provider "` + role + `", plugin /`} {
				if !containsError(err, sentence) {
					t.Errorf("%s: %v", role, err)
				}
			}
		})
	}
	failed.Wait()
	for role := range bad {
		requireNoProcess(t, role)
	}
}

// TestC44_20000IdsInOneCall: through the wire, and in the other direction.
func TestC44_20000IdsInOneCall(t *testing.T) {
	const count = 20_000
	f := newHost(t, providers.Timing{})
	g := open(t, f, spec(t, "good")).Group("pool", "many-"+itoa(count))
	all, err := g.ListInstances(within(t, patience))
	require.NoError(t, err)
	require.Len(t, all, count)
	names := make([]string, count)
	for i, instance := range all {
		names[i] = instance.ID
	}
	removed, err := g.Remove(within(t, patience), names)
	require.NoError(t, err)
	require.Len(t, removed, count)
	for i, r := range removed {
		require.Equal(t, pluginsdk.RemoveResult{ID: names[i], Outcome: pluginsdk.Removed}, r)
	}
}

// TestC42_ACrashLoopEndsWithItsCause (X23): five deaths in a row and calls fail at
// once, those of every pool of the process; nobody gives up, and once the cause is gone
// it comes up by itself.
func TestC42_ACrashLoopEndsWithItsCause(t *testing.T) {
	f := newHost(t, providers.Timing{Restart: time.Millisecond, Settle: 2 * time.Second})
	s := spec(t, "good")
	repaired := filepath.Join(t.TempDir(), "repaired")
	s.Config = []byte(`{"do":"die until ` + repaired + `"}`)
	p, err := f.Start(s)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.State().Phase == providers.Broken }, patience, time.Millisecond)
	require.Contains(t, p.State().LastError, "its last words: dying")
	require.Error(t, p.Ready(within(t, patience)))
	for _, pool := range []string{"a", "b"} {
		_, err := p.Group(pool, pool).Status(within(t, patience))
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.ErrorContains(t, err, "is broken")
		_, err = p.Group(pool, pool).SetDesired(within(t, patience), 1, 0)
		require.ErrorContains(t, err, "is broken", "the breaker is the process's")
	}

	require.NoError(t, os.WriteFile(repaired, nil, 0o600))
	require.Eventually(t, func() bool { return p.State().Phase == providers.Ready }, patience, 10*time.Millisecond)
	for _, pool := range []string{"a", "b"} {
		_, err := p.Group(pool, pool).Status(within(t, patience))
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, p.State().Restarts, 5)
	require.NoError(t, p.Close(context.Background()))
	requireNoProcess(t, "good")
}
