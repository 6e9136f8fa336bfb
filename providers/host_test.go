package providers_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// fixture is a host and what it logged.
type fixture struct {
	*providers.Host
	log *logBuffer
	dir string
	mu  struct {
		sync.Mutex
		states []providers.State // all that were, of every plugin
	}
}

// states are those that the plugin called name has been in.
func (f *fixture) states(name string) (all []providers.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.mu.states {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

func (f *fixture) stateChanged(s providers.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.states = append(f.mu.states, s)
}

// patiently is timing with patience wherever it says nothing: a machine that is busy is
// not to look like a plugin that hangs.
func patiently(timing providers.Timing) providers.Timing {
	for _, d := range []*time.Duration{&timing.Start, &timing.Configure, &timing.Read, &timing.Write, &timing.PingAnswer} {
		if *d == 0 {
			*d = patience
		}
	}
	return timing
}

func newHost(t *testing.T, timing providers.Timing) *fixture {
	t.Helper()
	f := &fixture{log: &logBuffer{}, dir: shortDir(t)}
	host, err := providers.NewHost(providers.Options{
		Dir: f.dir, Timing: patiently(timing), Logger: slog.New(slog.NewTextHandler(f.log, nil)),
		Observer: providers.Observer{StateChanged: f.stateChanged},
		Redact:   func(s string) string { return strings.ReplaceAll(s, "hunter2", "[MASKED]") },
	})
	require.NoError(t, err)
	f.Host = host
	t.Cleanup(func() {
		require.NoError(t, host.Close(context.Background()))
		left, err := filepath.Glob(filepath.Join(f.dir, "host-*"))
		require.NoError(t, err)
		require.Empty(t, left, "sockets left behind")
	})
	return f
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sw")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// spec is the test binary in a role.
func spec(t *testing.T, role string) providers.Spec {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(roleEnv, role)
	return providers.Spec{Name: "cloud", Path: self, Env: []string{roleEnv}}
}

func open(t *testing.T, f *fixture, s providers.Spec) *providers.Plugin {
	t.Helper()
	p, err := f.Open(within(t, patience), s)
	require.NoError(t, err)
	return p
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func requireNoProcess(t *testing.T, role string) {
	t.Helper()
	require.Empty(t, processes(role), "processes left")
}

// TestC44_PluginsThatDoNotStart: each fault has its own sentence, and leaves nothing.
func TestC44_PluginsThatDoNotStart(t *testing.T) {
	for role, want := range map[string]string{
		"noisy":   `wrote "hello, I am a plugin" on standard output before the handshake`,
		"silent":  "said nothing for 700ms after its start; its last words: loading for ever",
		"exits":   "ended before the handshake (exit status 3); its last words: cannot find my library",
		"panics":  "ended before the handshake (exit status 2); its last words: panic: bad build",
		"cookie":  "is a plugin of another program",
		"version": "speaks version 9 of the contract, this control plane speaks 1",
		"endless": "on standard output before the handshake",
		"tcp":     "listens on tcp",
		"outside": "not on a socket in",
		"mute":    "answers nothing after its handshake",
		"netrpc":  "speaks netrpc, not grpc",
	} {
		t.Run(role, func(t *testing.T) {
			start := patience
			if role == "silent" || role == "mute" {
				start = shortStart
			}
			err := openInVain(t, role, start)
			for !cameFarEnough(role, err) { // the machine is too busy for so short a start
				start *= 2
				require.Less(t, start, patience, err)
				err = openInVain(t, role, start)
			}
			require.ErrorIs(t, err, providers.ErrLaunch)
			require.ErrorContains(t, err, strings.ReplaceAll(want, shortStart.String(), start.String()))
			require.ErrorContains(t, err, `provider "cloud", plugin /`)
		})
	}
}

// shortStart is for plugins that never come to their handshake.
const shortStart = 700 * time.Millisecond

func openInVain(t *testing.T, role string, start time.Duration) error {
	t.Helper()
	f := newHost(t, providers.Timing{Start: start})
	_, err := f.Open(within(t, 2*start+patience), spec(t, role))
	require.Error(t, err)
	requireNoProcess(t, role)
	require.Empty(t, f.States())
	return err
}

// cameFarEnough reports whether a plugin did what its role is before its start was over.
func cameFarEnough(role string, err error) bool {
	if role == "silent" || role == "late" {
		return strings.Contains(err.Error(), "last words")
	}
	return !strings.Contains(err.Error(), "said nothing")
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"do":"refuse"}`:             "invalid: no such region",
		`{"do":"die"}`:                "ended after the handshake (exit status 4); its last words: dying",
		`{"region":"x","do":1}`:       "/do: must be string, is number; /: unknown region",
		`{"token":"hunter2-hunter2"}`: `/token: breaks "maxLength"`,
		`[1]`:                         "not a JSON object",
		`{`:                           "not JSON",
	} {
		t.Run(config, func(t *testing.T) {
			f := newHost(t, providers.Timing{})
			s := spec(t, "good")
			s.Config = []byte(config)
			_, err := f.Open(within(t, patience), s)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "hunter2")
			requireNoProcess(t, "good")
		})
	}
}

func TestAFileThatIsNoProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(path, []byte("not a program"), 0o755))
	f := newHost(t, providers.Timing{})
	_, err := f.Open(within(t, patience), providers.Spec{Name: "cloud", Path: path})
	require.ErrorIs(t, err, providers.ErrLaunch)
	require.ErrorContains(t, err, "exec format error")
}

func TestAScriptMayStartThePlugin(t *testing.T) {
	s := spec(t, "good")
	script := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec "+s.Path+"\n"), 0o755))
	s.Path = script
	f := newHost(t, providers.Timing{})
	require.Equal(t, "test", open(t, f, s).State().Plugin)
}

func TestOneProcessForEqualSpecs(t *testing.T) {
	f := newHost(t, providers.Timing{})
	s := spec(t, "good")
	first := open(t, f, s)
	second := open(t, f, s)
	require.Same(t, first, second)

	other := s
	other.Config = []byte(`{"do":"something else"}`)
	third := open(t, f, other)
	require.NotSame(t, first, third)
	require.Len(t, processes("good"), 2)

	require.NoError(t, first.Close(context.Background()))
	_, err := second.Group("p", "g").Status(within(t, patience))
	require.NoError(t, err, "it has an owner still")
	require.NoError(t, second.Close(context.Background()))
	require.Len(t, processes("good"), 1)
	_, err = second.Group("p", "g").Status(within(t, patience))
	require.ErrorIs(t, err, providers.ErrClosed)
	require.Equal(t, providers.Closed, second.State().Phase)
}

func TestStateIsForPeople(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "good"))
	s := f.States()[0]
	require.Equal(t, processes("good"), []int{s.PID})
	require.Equal(t, 1, s.Owners)
	require.Equal(t, "provider cloud is ready (test 1.2.3, contract 2), pid "+itoa(s.PID), p.State().String())
	require.Len(t, s.SHA256, 64)
	require.Equal(t, []pluginsdk.Capability{pluginsdk.CanWatch}, s.Capabilities)
}

// TestT6_ThePluginSeesOnlyWhatItMay: not our variables, not our descriptors.
func TestT6_ThePluginSeesOnlyWhatItMay(t *testing.T) {
	t.Setenv("SPILLWAY_REDIS_PASSWORD", "canary")
	t.Setenv("ALLOWED", "yes")
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	require.NoError(t, err)
	defer secret.Close()

	f := newHost(t, providers.Timing{})
	s := spec(t, "good")
	s.Env = append(s.Env, "ALLOWED", "NOT_SET")
	p := open(t, f, s)

	names := map[string]bool{}
	for _, id := range ids(t, p, "env") {
		name, value, _ := strings.Cut(id, "=")
		names[name] = true
		require.NotContains(t, value, "canary")
	}
	require.Equal(t, map[string]bool{
		roleEnv: true, "ALLOWED": true, pluginsdk.CookieKey: true, pluginsdk.StdinEnv: true, "PLUGIN_MIN_PORT": true,
		"PLUGIN_MAX_PORT": true, "PLUGIN_PROTOCOL_VERSIONS": true, "PLUGIN_UNIX_SOCKET_DIR": true,
	}, names)
	for _, fd := range ids(t, p, "fds") {
		require.NotContains(t, fd, filepath.Base(secret.Name()))
	}
}

func ids(t *testing.T, p *providers.Plugin, group string) []string {
	t.Helper()
	all, err := p.Group("pool", group).ListInstances(within(t, patience))
	require.NoError(t, err)
	var ids []string
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	return ids
}

// TestT5_StderrSpamIsBounded: a gigabyte is read, little of it is logged, and none of
// it is kept.
func TestT5_StderrSpamIsBounded(t *testing.T) {
	const mostKiB = 64 << 10 // of growth; the garbage of a busy collector is among it
	mib := 1024
	if testing.Short() {
		mib = 128
	}
	f := newHost(t, providers.Timing{Read: 5 * patience})
	began := time.Now()
	p := open(t, f, spec(t, "good"))
	before := residentKiB(t)
	most := make(chan int, 1)
	done, end := context.WithCancel(t.Context())
	go func() { most <- peakKiB(done) }()
	_, err := p.Group("pool", "spam-"+itoa(mib)).Status(within(t, 5*patience))
	end()
	require.NoError(t, err)
	require.Less(t, <-most-before, mostKiB)
	logged := f.log.Len()
	lines := 200 + 20*time.Since(began).Seconds() // the burst, and so many a second
	require.Less(t, float64(logged), lines*(2<<10), "a line is 1 KiB, and what was dropped before it")
	require.Contains(t, f.log.String(), "ssss")
}

func TestSecretsInWhatAPluginPrintsAreMasked(t *testing.T) {
	f := newHost(t, providers.Timing{})
	script := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho token=hunter2 >&2\nexit 1\n"), 0o755))
	_, err := f.Open(within(t, patience), providers.Spec{Name: "cloud", Path: script})
	require.ErrorContains(t, err, "token=[MASKED]")
	require.Contains(t, f.log.String(), "token=[MASKED]")
	require.NotContains(t, f.log.String(), "hunter2")
}

func TestSocketDirectory(t *testing.T) {
	dir := shortDir(t)
	dead := filepath.Join(dir, "host-123")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "s1", "plugin-dir1"), 0o700))
	alive, err := providers.NewHost(providers.Options{Dir: dir})
	require.NoError(t, err)
	require.NoDirExists(t, dead, "what a dead host left is swept")
	mine, _ := filepath.Glob(filepath.Join(dir, "host-*"))
	require.Len(t, mine, 1)

	second, err := providers.NewHost(providers.Options{Dir: dir})
	require.NoError(t, err)
	require.DirExists(t, mine[0], "what belongs to a live host isn't")
	require.NoError(t, second.Close(context.Background()))
	require.NoError(t, alive.Close(context.Background()))
	require.NoDirExists(t, mine[0])

	require.NoError(t, os.Chmod(dir, 0o755))
	_, err = providers.NewHost(providers.Options{Dir: dir})
	require.ErrorContains(t, err, "can be entered by others")
	_, err = providers.NewHost(providers.Options{Dir: "/tmp/" + strings.Repeat("x", 60)})
	require.ErrorContains(t, err, "use a shorter one")
}

func TestAClosedHostStartsNothing(t *testing.T) {
	f := newHost(t, providers.Timing{})
	require.NoError(t, f.Close(context.Background()))
	_, err := f.Open(within(t, patience), spec(t, "good"))
	require.ErrorIs(t, err, providers.ErrClosed)
	requireNoProcess(t, "good")
}

// logBuffer is written by the host while the test reads.
type logBuffer struct {
	mu struct {
		sync.Mutex
		text bytes.Buffer
	}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}

func (b *logBuffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Len()
}
