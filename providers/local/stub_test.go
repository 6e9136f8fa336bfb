package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/local"
)

const (
	within = time.Minute // of what happens at once on an idle machine
	poll   = 5 * time.Millisecond
)

// stubs is where the processes of a stub agent leave their ids, each in a file
// with the name of its instance.
type stubs struct{ dir string }

// stub writes an agent that notes that it runs and then does what body says.
func stub(t *testing.T, body string) (agent string, s stubs) {
	t.Helper()
	s.dir = t.TempDir()
	agent = filepath.Join(t.TempDir(), "agent")
	text := "#!/bin/sh\nnote() { echo $1 >" + s.dir + "/.new$$; mv " + s.dir + "/.new$$ " + s.dir + "/$2$SPILLWAY_INSTANCE_ID; }\n" + body
	require.NoError(t, os.WriteFile(agent, []byte(text), 0o700))
	return agent, s
}

const sleeps = "note $$; exec sleep 1000"

// pid waits until the instance has noted the process.
func (s stubs) pid(t *testing.T, name string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	}, within, poll, "%s was not started", name)
	return pid
}

func (s stubs) started(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "linux-*"))
	require.NoError(t, err)
	return len(files)
}

func runs(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(line, []byte(") Z "))
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return !runs(pid) }, within, poll, "process %d is still there", pid)
}

// settings are a valid configuration with one group, "linux", of 0 to 5.
func settings(t *testing.T, agent string) map[string]any {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a-token\n"), 0o600))
	return map[string]any{
		"agent": agent, "router": "127.0.0.1:1", "plaintext": true, "token_file": token, "work_dir": t.TempDir(),
		"groups": []any{map[string]any{"name": "linux", "max": 5, "capacity": 3}},
	}
}

func configured(t *testing.T, settings map[string]any) *local.Provider {
	t.Helper()
	p := local.New()
	require.NoError(t, p.Configure(t.Context(), object(t, settings)))
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

func object(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// set asks for a number of instances.
func set(t *testing.T, p pluginsdk.Provider, target, expected int) {
	t.Helper()
	got, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: target, Expected: expected, Token: fmt.Sprint(target, expected, time.Now())})
	require.NoError(t, err)
	require.Equal(t, target, got)
}

// awaitRunning waits until exactly n instances exist and all run.
func awaitRunning(t *testing.T, p pluginsdk.Provider, n int) []pluginsdk.Instance {
	t.Helper()
	var list []pluginsdk.Instance
	require.Eventually(t, func() bool {
		var err error
		list, err = p.ListInstances(t.Context(), "linux")
		require.NoError(t, err)
		for _, in := range list {
			if in.State != pluginsdk.StateRunning {
				return false
			}
		}
		return len(list) == n
	}, within, poll)
	return list
}

func status(t *testing.T, p pluginsdk.Provider) pluginsdk.GroupStatus {
	t.Helper()
	all, err := p.Status(t.Context(), []string{"linux"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, all[0].Err)
	return all[0]
}
