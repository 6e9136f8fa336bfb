package fleeting_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/fleeting"
)

// Once the provider is killed, so is the fleeting plugin: nobody else would end it.
func TestChildDiesWithTheProvider(t *testing.T) {
	s := newStand(t, "")
	pid, stop := launch(t, s)
	defer stop()
	kids := children(t, pid)
	require.Len(t, kids, 1)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return gone(kids[0]) }, within, poll, "the fleeting plugin outlives its provider")
}

func gone(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(line), ") Z ")
}

// launch starts the built plugin as a host would, and configures it.
func launch(t *testing.T, s *stand) (pid int, stop func()) {
	t.Helper()
	before := plugins(t)
	p, stop, err := providertest.Launch(built.plugin, []string{"FLEETINGSTAND=", "SECRET_OF_THE_PROVIDER=hush", "TMPDIR=" + t.TempDir()}, os.Stderr)
	require.NoError(t, err)
	require.NoError(t, p.Configure(t.Context(), s.config()))
	after := plugins(t)
	for _, old := range before {
		delete(after, old)
	}
	require.Len(t, after, 1)
	for pid = range after {
	}
	return pid, stop
}

// plugins are the processes of the built plugin that this one has started.
func plugins(t *testing.T) map[int]int {
	t.Helper()
	found := map[int]int{}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		if args, _ := os.ReadFile(path); strings.HasPrefix(string(args), built.plugin) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			found[pid] = pid
		}
	}
	return found
}

// The fleeting plugin sees the variables that are named, go-plugin's own, and no
// others; and its socket is nobody else's to enter.
func TestChildSeesOnlyWhatItMay(t *testing.T) {
	s := newStand(t, "")
	pid, stop := launch(t, s)
	defer stop()
	kids := children(t, pid)
	require.Len(t, kids, 1)
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(kids[0]) + "/environ")
	require.NoError(t, err)
	var names []string
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(environ), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		names = append(names, name)
		if name == "PLUGIN_UNIX_SOCKET_DIR" {
			info, err := os.Stat(value)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		}
	}
	require.ElementsMatch(t, []string{
		"FLEETINGSTAND", "ORCHARD_GATE", "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_CLIENT_CERT", "PLUGIN_UNIX_SOCKET_DIR",
	}, names)
}

// Close ends the fleeting plugin also when a call of it hangs.
func TestCloseCutsOffAHungCall(t *testing.T) {
	s := newStand(t, "")
	t.Setenv("FLEETINGSTAND", "")
	p := fleeting.New()
	require.NoError(t, p.Configure(t.Context(), s.config()))
	require.NoError(t, status(t, p).Err)
	s.change(func(c *cloud) { c.Faults.HangIn = "Increase" })
	done := make(chan error, 1)
	go func() {
		_, err := p.SetDesired(context.Background(), pluginsdk.SetDesired{Group: group, Target: 1})
		done <- err
	}()
	require.Eventually(t, func() bool { return s.read().Hangs == 1 }, within, poll, "the call is in flight")
	require.NoError(t, p.Close(t.Context()))
	require.ErrorIs(t, <-done, pluginsdk.ErrTransient)
	require.Empty(t, children(t, os.Getpid()))
	_, err := set(t, p, 1, 0)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.NoError(t, p.Close(t.Context()), "closing twice is harmless")
}

// A plugin that can't be started again is not tried at every call.
func TestRestartsWait(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	require.NoError(t, status(t, p).Err)
	s.change(func(c *cloud) { c.Faults = faults{FailIn: "Init", FailWith: "no such region"} })
	pids := children(t, os.Getpid())
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	var said error
	require.Eventually(t, func() bool {
		said = status(t, p).Err
		return said != nil && strings.Contains(said.Error(), "is started again in")
	}, within, poll)
	var e *pluginsdk.Error
	require.ErrorAs(t, said, &e)
	require.Positive(t, e.RetryAfter)
	require.LessOrEqual(t, e.RetryAfter, time.Minute)
	require.Contains(t, e.Message, "no such region")
	require.Empty(t, children(t, os.Getpid()))
}

// A program that is no plugin leaves nothing running, and its words say why.
func TestNotAPlugin(t *testing.T) {
	s := newStand(t, "")
	script := filepath.Join(t.TempDir(), "fleeting-plugin-stand")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho it is a teapot >&2\nexit 3\n"), 0o700))
	s.conf["binary"] = script
	err := fleeting.New().Configure(t.Context(), s.config())
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "it is a teapot")
	require.Empty(t, children(t, os.Getpid()))
}
