package providers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	f := newHost(t, providers.Timing{})
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	_, err := f.Start(providers.Spec{Name: "not executable", Path: plain})
	require.ErrorIs(t, err, program.ErrBinary)
	require.ErrorContains(t, err, "is not executable (mode 0644): chmod 0755")

	for start := 3 * time.Second; ; start *= 2 {
		var late error
		t.Run(start.String(), func(t *testing.T) { late = startTogether(t, start) })
		if late == nil || t.Failed() {
			return
		}
		require.Less(t, start, patience, late)
	}
}

// startTogether returns an error if start was too short on this machine: for somebody to
// come as far as its role goes, or for the good ones to answer before the slowest bad
// ones were over.
func startTogether(t *testing.T, start time.Duration) (late error) {
	t.Helper()
	f := newHost(t, providers.Timing{Start: start})
	bad := map[string]string{
		"noisy":   "on standard output before the handshake",
		"cookie":  "is a plugin of another program",
		"version": "speaks version 9 of the contract, this control plane speaks 1 and 2",
		"late":    "said nothing for " + start.String() + " after its start; its last words: reading a large file",
		"silent":  "said nothing for " + start.String() + " after its start; its last words: loading for ever",
	}
	plugins := map[string]*providers.Plugin{}
	for _, role := range []string{"late", "silent", "noisy", "cookie", "version", "good", "filecloud"} {
		var err error
		plugins[role], err = f.Start(providers.Spec{Name: role, Path: script(t, role)})
		require.NoError(t, err)
	}
	for _, role := range []string{"good", "filecloud"} {
		if err := plugins[role].Ready(within(t, 2*patience)); err != nil {
			return err
		}
		_, err := plugins[role].Group("pool", "g").Status(within(t, patience))
		require.NoError(t, err)
	}
	for _, role := range []string{"late", "silent"} {
		if phase := plugins[role].State().Phase; phase != providers.Starting {
			return fmt.Errorf("the good ones waited for %s, which is %s", role, phase)
		}
	}
	for role, want := range bad {
		err := plugins[role].Ready(within(t, 2*patience))
		require.Error(t, err, role)
		require.NoError(t, plugins[role].Close(within(t, patience)), role)
		if !cameFarEnough(role, err) {
			return err
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `provider "`+role+`", plugin /`)
		requireNoProcess(t, role)
	}
	return nil
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
	s := spec(t, "good")
	repaired := filepath.Join(t.TempDir(), "repaired")
	s.Config = []byte(`{"do":"die until ` + repaired + `"}`)
	settle := 2 * time.Second
	p := crashLoop(t, s, settle)
	for p.State().Phase != providers.Broken { // five starts take longer here
		require.NoError(t, p.Close(context.Background()))
		settle *= 2
		require.Less(t, settle, patience)
		p = crashLoop(t, s, settle)
	}
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

// crashLoop starts a plugin that dies, and returns when it is broken or has died twice
// as often as it takes.
func crashLoop(t *testing.T, s providers.Spec, settle time.Duration) *providers.Plugin {
	t.Helper()
	f := newHost(t, providers.Timing{Restart: time.Millisecond, Settle: settle})
	p, err := f.Start(s)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return p.State().Phase == providers.Broken || len(f.states(s.Name)) >= 10
	}, 2*patience, time.Millisecond)
	return p
}
