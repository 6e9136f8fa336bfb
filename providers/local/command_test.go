package local_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/local"
)

// running is a provider whose only group, "linux", runs a command.
func running(t *testing.T, change map[string]any, command ...string) (*local.Provider, map[string]any) {
	t.Helper()
	group := map[string]any{"name": "linux", "max": 5, "command": command}
	config := map[string]any{"groups": []any{group}, "work_dir": t.TempDir(), "stop_grace": "1m"}
	for k, v := range change {
		if k == "stop_signal" {
			group[k] = v
			continue
		}
		config[k] = v
	}
	return configured(t, config), config
}

func TestACommandIsAnInstance(t *testing.T) {
	dir := t.TempDir()
	script := `printf '%s\n' "$@" "$PWD" >` + dir + `/.$1; mv ` + dir + `/.$1 ` + dir + `/$1; exec sleep 1000`
	p, c := running(t, nil, "sh", "-c", script, "sh", "{instance}", "127.0.0.1:{metrics_port}", "{work_dir}", "{group}", "{{x}}")
	set(t, p, 2, 0)
	addresses := map[string]bool{}
	for _, in := range awaitRunning(t, p, 2) {
		addresses[in.Address] = true
		var said []byte
		require.Eventually(t, func() (ok bool) {
			var err error
			said, err = os.ReadFile(filepath.Join(dir, in.ID))
			return err == nil
		}, within, poll)
		work := filepath.Join(c["work_dir"].(string), in.ID)
		require.Equal(t, []string{in.ID, in.Address, work, "linux", "{x}", work}, strings.Split(strings.TrimSpace(string(said)), "\n"))
		host, port, err := net.SplitHostPort(in.Address)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host)
		require.NotEqual(t, "0", port)
	}
	require.Len(t, addresses, 2)
}

func TestACommandWithoutAPortHasNoAddress(t *testing.T) {
	p, _ := running(t, nil, "sleep", "1000")
	set(t, p, 1, 0)
	require.Empty(t, awaitRunning(t, p, 1)[0].Address)
}

// quitting is a command that tells which signal it got, and ends; child is a process
// that it has started, in its own group.
const quitting = `dir=%s; sleep 1000 & child=$!
for s in TERM QUIT HUP; do trap "echo $s >$dir/got; kill -0 $child && echo spared >$dir/child; exit 0" $s; done
echo $child >$dir/.pid; mv $dir/.pid $dir/pid; while :; do sleep 0.02; done`

func TestStopSignals(t *testing.T) {
	for signal, want := range map[string]string{"": "TERM", "SIGTERM": "TERM", "SIGQUIT": "QUIT"} {
		t.Run("signal "+signal, func(t *testing.T) {
			dir := t.TempDir()
			change := map[string]any{}
			if signal != "" {
				change["stop_signal"] = signal
			}
			p, _ := running(t, change, "sh", "-c", fmt.Sprintf(quitting, dir))
			set(t, p, 1, 0)
			child := stubs{dir}.pid(t, "pid")
			_, err := p.Remove(t.Context(), "linux", []string{awaitRunning(t, p, 1)[0].ID}, "r")
			require.NoError(t, err)
			awaitRunning(t, p, 0)
			got, err := os.ReadFile(filepath.Join(dir, "got"))
			require.NoError(t, err)
			require.Equal(t, want+"\n", string(got))
			require.FileExists(t, filepath.Join(dir, "child"), "what it has started is its to end")
			requireGone(t, child)
		})
	}
}

func TestACommandThatDoesNotEnd(t *testing.T) {
	dir := t.TempDir()
	p, _ := running(t, map[string]any{"stop_grace": "100ms"}, "sh", "-c", `trap '' TERM QUIT; setsid sleep 1000 & echo $! >`+dir+`/.p; mv `+dir+`/.p `+dir+`/pid; while :; do sleep 0.02; done`)
	set(t, p, 1, 0)
	stray := stubs{dir}.pid(t, "pid")
	_, err := p.Remove(t.Context(), "linux", []string{awaitRunning(t, p, 1)[0].ID}, "r")
	require.NoError(t, err)
	awaitRunning(t, p, 0)
	requireGone(t, stray)
}

func TestACommandThatCrashes(t *testing.T) {
	p, _ := running(t, nil, "sh", "-c", "exit 3", "{metrics_port}")
	set(t, p, 1, 0)
	require.Eventually(t, func() bool { return len(status(t, p).Failures) > 0 }, within, poll)
	require.Equal(t, "the instance ended right after its start: exit status 3", status(t, p).Failures[0].Message)
}

func TestCommandsDieWithThePlugin(t *testing.T) {
	dir := t.TempDir()
	config := map[string]any{"work_dir": t.TempDir(), "groups": []any{map[string]any{
		"name": "linux", "min": 1, "max": 1, "command": []any{"sh", "-c", fmt.Sprintf(quitting, dir)},
	}}}
	plugin, err := os.StartProcess(os.Args[0], os.Args[:1], &os.ProcAttr{
		Env: []string{asPlugin + "=" + string(object(t, config)), "PATH=" + os.Getenv("PATH")},
	})
	require.NoError(t, err)
	defer plugin.Wait()                  //nolint:errcheck // it was killed
	defer plugin.Signal(syscall.SIGKILL) //nolint:errcheck // it may be dead
	child := stubs{dir}.pid(t, "pid")
	require.NoError(t, plugin.Kill())
	require.Eventually(t, func() bool {
		got, err := os.ReadFile(filepath.Join(dir, "got"))
		return err == nil && string(got) == "TERM\n"
	}, within, poll, "SIGHUP would be no end for everybody")
	require.NoError(t, syscall.Kill(child, syscall.SIGKILL)) // it leaves that to the command
}

func TestContractOfCommands(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Subject {
		config := map[string]any{"work_dir": t.TempDir(), "groups": []any{map[string]any{
			"name": "linux", "max": 4, "command": []any{"sh", "-c", "exec sleep 1000", "sh", "{metrics_port}"}, "stop_signal": "SIGQUIT",
		}}}
		return providertest.Subject{Provider: local.New(), Config: object(t, config), Group: "linux", MaxInstances: 4, Settle: within}
	})
}

// beside is a provider of the built agent beside a stand-in for a runner.
func beside(t *testing.T, router string, r *sidecartest.Runner) *local.Provider {
	t.Helper()
	c := settings(t, build(t, "spillway-agent", "github.com/spillway-ci/spillway/cmd/agent"))
	c["router"], c["stop_grace"] = router, "1m"
	c["groups"] = []any{map[string]any{"name": "linux", "max": 1, "command": r.CommandAt("127.0.0.1:{metrics_port}"), "sidecar": true}}
	return configured(t, c)
}

// An instance of two processes: the agent speaks for the runner that it starts, and both
// are gone when the instance is.
func TestASidecarBesideACommand(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the agent")
	}
	router, address := startRouter(t, "exit 0")
	r := sidecartest.New(t)
	p := beside(t, address, r)
	set(t, p, 1, 0)
	in := awaitRunning(t, p, 1)[0]
	require.NotEmpty(t, in.Address)
	register := router.register(t)
	require.Equal(t, in.ID, register.GetInstanceId())
	require.EqualValues(t, 3, register.GetCapacity(), "the runner's own")
	require.NotZero(t, r.PID())
	require.NotContains(t, r.Environment(), "a-token")
	require.Contains(t, r.Environment(), "SPILLWAY_INSTANCE_ID="+in.ID)

	_, err := p.Remove(t.Context(), "linux", []string{in.ID}, "r")
	require.NoError(t, err)
	awaitRunning(t, p, 0)
	require.Zero(t, r.PID())
	require.Equal(t, []string{"start", "QUIT", "end"}, r.Story())
}

func TestASidecarAndItsCommandEndWithTheProvider(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the agent")
	}
	router, address := startRouter(t, "exit 0")
	r := sidecartest.New(t)
	r.Jobs(t, 1)
	p := beside(t, address, r)
	set(t, p, 1, 0)
	router.register(t)
	require.NoError(t, p.Close(context.Background()))
	require.Zero(t, r.PID())
	_, err := p.ListInstances(t.Context(), "linux")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}
