package providers_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/providers"
)

// What the test binary is told in the role of a host.
const (
	hostDirEnv    = "SPILLWAY_HOST_TEST_DIR"
	hostPluginEnv = "SPILLWAY_HOST_TEST_PLUGIN" // role
	hostConfigEnv = "SPILLWAY_HOST_TEST_CONFIG"
	hostGroupEnv  = "SPILLWAY_HOST_TEST_GROUP" // to raise, for ever
)

// runTestHost is the main of a host that opens a plugin, says its pid and waits.
func runTestHost() {
	p, err := openAsHost()
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println(p.State().PID)
	if group := os.Getenv(hostGroupEnv); group != "" {
		_, _ = p.Group("pool", group).SetDesired(context.Background(), 1, 0)
	}
	select {}
}

func openAsHost() (*providers.Plugin, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	host, err := providers.NewHost(providers.Options{Dir: os.Getenv(hostDirEnv), Timing: patiently(providers.Timing{})})
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(roleEnv, os.Getenv(hostPluginEnv)); err != nil {
		return nil, err
	}
	return host.Open(context.Background(), providers.Spec{
		Name: "cloud", Path: self, Env: []string{roleEnv}, Config: []byte(os.Getenv(hostConfigEnv)),
	})
}

// startHost starts a host in a process of its own and returns its plugin's pid.
func startHost(t *testing.T, env ...string) (host *exec.Cmd, plugin int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	host = exec.Command(self)
	host.Env = append(append(os.Environ(), roleEnv+"=host"), env...)
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	// What a shell's background jobs ignore, it would ignore as well. What is handled here isn't.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT, syscall.SIGTERM)
	err = host.Start()
	signal.Stop(handled)
	require.NoError(t, err)
	t.Cleanup(func() { _ = host.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &plugin)
	require.NoError(t, err, line)
	return host, plugin
}

// TestC41_NoPluginOutlivesItsHost (I9): not a kill, not a signal that nobody
// handles.
func TestC41_NoPluginOutlivesItsHost(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			host, pid := startHost(t, hostPluginEnv+"=good", hostDirEnv+"="+shortDir(t))
			require.NoError(t, host.Process.Signal(signal))
			_ = host.Wait()
			require.Eventually(t, func() bool { return !aliveProcess(pid) }, patience, time.Millisecond)
		})
	}
}

// TestC41_ManyHostsLeaveOnePlugin: each is killed and the next one starts at once, in
// the same directory; a hundred of them in the chaos run.
func TestC41_ManyHostsLeaveOnePlugin(t *testing.T) {
	restarts := min(*kills, 100)
	dir := shortDir(t)
	env := []string{hostPluginEnv + "=good", hostDirEnv + "=" + dir}
	host, pid := startHost(t, env...)
	for range restarts {
		require.NoError(t, host.Process.Kill())
		_ = host.Wait()
		host, pid = startHost(t, env...)
	}
	require.Eventually(t, func() bool {
		left := processes("good")
		return len(left) == 1 && left[0] == pid
	}, patience, 10*time.Millisecond, "exactly one process")
	hosts, err := filepath.Glob(filepath.Join(dir, "host-*"))
	require.NoError(t, err)
	require.Len(t, hosts, 1, "what the dead left is swept")
	require.Len(t, socketDirs(t, dir), 1)
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	require.Eventually(t, func() bool { return len(processes("good")) == 0 }, patience, time.Millisecond)
}

// TestC41_AnOrphanWritesNothing: its host dies while it writes once a millisecond.
func TestC41_AnOrphanWritesNothing(t *testing.T) {
	cloud := t.TempDir()
	host, pid := startHost(t, hostPluginEnv+"=filecloud", hostDirEnv+"="+shortDir(t),
		hostConfigEnv+"="+string(fileCloudConfig(t, cloud, 0)), hostGroupEnv+"=endless")
	file := filepath.Join(cloud, "endless")
	require.Eventually(t, func() bool {
		writes, _ := writesOf(file)
		return len(writes) >= 20
	}, patience, time.Millisecond)

	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	dead := time.Now()
	require.Eventually(t, func() bool { return !aliveProcess(pid) }, patience, time.Millisecond)
	writes, err := writesOf(file)
	require.NoError(t, err)
	for _, w := range writes {
		require.Equal(t, pid, w.pid)
		require.False(t, w.at.After(dead), "a write %v after the host's death", w.at.Sub(dead))
	}
}

// TestX20_TheEndOfAHostIsNotTheEndOfTheInstances: nor is a second request to end.
func TestX20_TheEndOfAHostIsNotTheEndOfTheInstances(t *testing.T) {
	s := spec(t, "filecloud")
	s.Config = fileCloudConfig(t, t.TempDir(), 0)
	first := newHost(t, providers.Timing{})
	_, err := open(t, first, s).Group("pool", "g").SetDesired(within(t, patience), 3, 0)
	require.NoError(t, err)
	require.NoError(t, first.Close(context.Background()))
	require.NoError(t, first.Close(context.Background()))
	requireNoProcess(t, "filecloud")

	all, err := open(t, newHost(t, providers.Timing{}), s).Group("pool", "g").ListInstances(within(t, patience))
	require.NoError(t, err)
	require.Len(t, all, 3)
}

// script is a plugin's file that makes the test binary play role, whatever role other
// plugins of the same host play.
func script(t *testing.T, role string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), strings.ReplaceAll(role, " ", "-"))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+roleEnv+"='"+role+"' exec "+self+"\n"), 0o755))
	return path
}
