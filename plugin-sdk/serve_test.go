package pluginsdk_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// roleEnv makes the test binary a plugin, or a host that starts one.
const roleEnv = "SPILLWAY_SDK_TEST_ROLE"

const patience = time.Minute // for what takes milliseconds on a free machine

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case "host":
		hostUntilKilled()
	default:
		servePlugin(role)
	}
}

// servePlugin is the main of the test plugins.
func servePlugin(role string) {
	p := &stub{closed: func() { fmt.Fprintln(os.Stderr, "provider closed") }}
	if role == "noisy" {
		// Printed between Serve and the handshake, by Go, by a child, and without
		// an end of line; and later, in a call.
		go func() {
			for !stdoutGuarded() {
				runtime.Gosched()
			}
			for range 1_000 {
				fmt.Print("noise|")
			}
		}()
		p.configure = func([]byte) error {
			fmt.Println("noise in a call")
			child := exec.Command("echo", "noise of a child")
			child.Stdout = os.NewFile(1, "descriptor 1")
			return child.Run()
		}
	}
	if role == "slow" {
		p.list = func(context.Context) ([]pluginsdk.Instance, error) {
			fmt.Fprintln(os.Stderr, "listing")
			<-time.After(300 * time.Millisecond)
			return []pluginsdk.Instance{{ID: "late"}}, nil
		}
	}
	pluginsdk.Serve(p)
	fmt.Fprintln(os.Stderr, "main returned")
}

// stdoutGuarded reports whether descriptor 1 is standard error already: what is
// printed before Serve can't be caught.
func stdoutGuarded() bool {
	one, _ := os.Readlink("/proc/self/fd/1")
	two, _ := os.Readlink("/proc/self/fd/2")
	return one == two
}

// started is a plugin process as a plain go-plugin host sees it.
type started struct {
	pluginsdk.Provider
	client *plugin.Client
	cmd    *exec.Cmd
	stderr *safeBuffer
}

func start(t *testing.T, role string) *started {
	t.Helper()
	s, err := startPlugin(role, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(s.client.Kill)
	return s
}

func startPlugin(role, dir string) (*started, error) {
	return startPluginFor(role, dir, pluginsdk.Versions(nil))
}

// startPluginFor starts it for a host that speaks versions.
func startPluginFor(role, dir string, versions map[int]plugin.PluginSet) (*started, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=" + role, "PLUGIN_UNIX_SOCKET_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	stderr := &safeBuffer{}
	c := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  pluginsdk.Handshake(),
		VersionedPlugins: versions,
		Cmd:              cmd,
		SkipHostEnv:      true,
		AutoMTLS:         true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     patience,
		Stderr:           stderr,
		SyncStdout:       stderr,
		Logger:           hclog.NewNullLogger(),
	})
	rpc, err := c.Client()
	if err != nil {
		return nil, err
	}
	raw, err := rpc.Dispense(pluginsdk.PluginName)
	if err != nil {
		return nil, err
	}
	return &started{Provider: raw.(pluginsdk.Provider), client: c, cmd: cmd, stderr: stderr}, nil
}

// hostUntilKilled is a host that starts a plugin, says its pid and waits.
func hostUntilKilled() {
	s, err := startPlugin("plain", os.Getenv("SPILLWAY_SDK_TEST_DIR"))
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println(s.cmd.Process.Pid)
	select {}
}

func TestServeThroughGoPlugin(t *testing.T) {
	s := start(t, "plain")
	d, err := s.Describe(context.Background())
	require.NoError(t, err)
	require.Equal(t, "stub", d.Name)

	rpc, err := s.client.Client()
	require.NoError(t, err)
	require.NoError(t, rpc.Close()) // what Kill begins with; two seconds later it kills
	require.Eventually(t, s.client.Exited, patience, 5*time.Millisecond)
	require.Contains(t, s.stderr.String(), "provider closed")
	require.Contains(t, s.stderr.String(), "main returned")
	requireNoSocket(t, s)
}

// TestAHostOfTheVersionBefore: it is spoken to as it speaks.
func TestAHostOfTheVersionBefore(t *testing.T) {
	only := func(versions ...int) map[int]plugin.PluginSet {
		all := pluginsdk.Versions(nil)
		some := map[int]plugin.PluginSet{}
		for _, v := range versions {
			some[v] = all[v]
		}
		return some
	}
	for spoken, versions := range map[int]map[int]plugin.PluginSet{1: only(1), 2: only(1, 2)} {
		s, err := startPluginFor("plain", t.TempDir(), versions)
		require.NoError(t, err)
		t.Cleanup(s.client.Kill)
		require.Equal(t, spoken, s.client.NegotiatedVersion())
		conn, err := s.client.Client()
		require.NoError(t, err)
		d, err := providerv1.NewProviderServiceClient(conn.(*plugin.GRPCClient).Conn).Describe(t.Context(), &providerv1.DescribeRequest{})
		require.NoError(t, err)
		require.EqualValues(t, spoken, d.GetContractVersion(), "a host of version 1 refuses any other")
	}
	_, err := startPluginFor("plain", t.TempDir(), map[int]plugin.PluginSet{3: {pluginsdk.PluginName: &pluginsdk.Plugin{}}})
	require.ErrorContains(t, err, "incompatible")
}

func TestC44_APluginThatPrintsStillStarts(t *testing.T) {
	s := start(t, "noisy")
	require.NoError(t, s.Configure(context.Background(), nil))
	for _, noise := range []string{"noise|", "noise in a call", "noise of a child"} {
		require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), noise) }, patience, 5*time.Millisecond, noise)
	}
}

func TestC44_ARequestOverFourMiBArrives(t *testing.T) {
	s := start(t, "plain")
	require.NoError(t, s.Configure(context.Background(), make([]byte, 6<<20)))
}

func TestThePluginEndsItselfAfterClose(t *testing.T) {
	s := start(t, "plain")
	require.NoError(t, s.Close(context.Background()))
	require.Eventually(t, s.client.Exited, patience, 5*time.Millisecond)
	require.Equal(t, 1, strings.Count(s.stderr.String(), "provider closed"))
	requireNoSocket(t, s)
}

func TestSIGTERMLetsTheCallInFlightFinish(t *testing.T) {
	s := start(t, "slow")
	listed := make(chan error, 1)
	go func() {
		_, err := s.ListInstances(context.Background(), "g")
		listed <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), "listing") }, patience, 5*time.Millisecond)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-listed)
	require.Eventually(t, s.client.Exited, patience, 5*time.Millisecond)
	require.Contains(t, s.stderr.String(), "provider closed")
}

func TestSIGINTIsTheHosts(t *testing.T) {
	s := start(t, "plain")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	for range 20 {
		_, err := s.Describe(context.Background())
		require.NoError(t, err)
	}
}

// TestC41_AnOrphanEnds: neither a process group nor Pdeathsig is used here, so it is
// the plugin itself that notices.
func TestC41_AnOrphanEnds(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	host := exec.Command(self)
	host.Env = append(os.Environ(), roleEnv+"=host", "SPILLWAY_SDK_TEST_DIR="+t.TempDir())
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	require.NoError(t, err)

	killed := time.Now()
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	require.Eventually(t, func() bool { return !alive(pid) }, patience, 10*time.Millisecond, "the plugin outlived its host")
	t.Logf("ended %v after its host", time.Since(killed).Round(time.Millisecond))
}

func TestC41_TheEndOfStandardInputIsTheEndOfTheHost(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = []string{
		roleEnv + "=plain", pluginsdk.CookieKey + "=" + pluginsdk.CookieValue, pluginsdk.StdinEnv + "=1",
		"PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir(),
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 1)
	_, err = io.ReadFull(stdout, line) // it has begun to serve
	require.NoError(t, err)

	require.NoError(t, stdin.Close())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Fatal("the plugin goes on after the end of its standard input")
	}
}

func TestStartedByHandItSaysSo(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=plain"}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "spillwayctl plugin check")
}

func requireNoSocket(t *testing.T, s *started) {
	t.Helper()
	for _, v := range s.cmd.Env {
		if dir, ok := strings.CutPrefix(v, "PLUGIN_UNIX_SOCKET_DIR="); ok {
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

// alive reads the state: the first process of a container may not reap, and a
// zombie answers signal 0.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(after, "Z")
}

// safeBuffer is a buffer that the host writes while the test reads.
type safeBuffer struct {
	mu struct {
		sync.Mutex
		text strings.Builder
	}
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}
