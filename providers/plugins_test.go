package providers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// roleEnv makes the test binary something else: a plugin, a host that starts
// one, or what a plugin starts.
const roleEnv = "SPILLWAY_HOST_TEST_ROLE"

// roles are the plugins that the tests start; most of them are bad.
var roles = map[string]func(){
	"good":  func() { pluginsdk.Serve(newTestProvider()) },
	"noisy": func() { fmt.Println("hello, I am a plugin"); pluginsdk.Serve(newTestProvider()) },
	"silent": func() {
		fmt.Fprintln(os.Stderr, "loading for ever")
		select {}
	},
	"late": func() {
		fmt.Fprintln(os.Stderr, "reading a large file")
		time.Sleep(61 * time.Second)
		pluginsdk.Serve(newTestProvider())
	},
	"exits": func() {
		fmt.Fprintln(os.Stderr, "cannot find my library")
		os.Exit(3)
	},
	"panics": func() { panic("bad build") },
	"cookie": func() {
		serveRaw(plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "OTHER", MagicCookieValue: "x"})
	},
	"version":   func() { serveRaw(withVersion(9)) },
	"version 1": func() { serveVersion(1) },
	"version 3": func() { serveVersion(3) },
	"endless": func() {
		for {
			fmt.Print(strings.Repeat("x", 4096))
		}
	},
	"tcp":     func() { fmt.Println("1|1|tcp|127.0.0.1:1|grpc|"); select {} },
	"outside": func() { fmt.Println("1|1|unix|/run/other.sock|grpc|"); select {} },
	"netrpc":  func() { fmt.Println("1|1|unix|" + os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x|netrpc|"); select {} },
	"mute": func() {
		socket := os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x"
		if _, err := net.Listen("unix", socket); err != nil {
			panic(err)
		}
		fmt.Println("1|1|unix|" + socket + "|grpc|")
		select {}
	},
	"filecloud": func() { pluginsdk.Serve(&fileCloud{}) },
	"sleeper":   func() { select {} },
	"host":      runTestHost,
	"plain":     servePlainGRPC,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	roles[role]()
}

func withVersion(v uint) plugin.HandshakeConfig {
	h := pluginsdk.Handshake()
	h.ProtocolVersion = v
	return h
}

func serveRaw(h plugin.HandshakeConfig) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: h,
		Plugins:         plugin.PluginSet{pluginsdk.PluginName: &pluginsdk.Plugin{Provider: newTestProvider()}},
		GRPCServer:      plugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}

// rawStderr is the descriptor itself, kept: one that is forgotten is closed.
var rawStderr = os.NewFile(2, "stderr")

// testProvider obeys the contract, except for groups whose name says otherwise.
type testProvider struct {
	pluginsdk.Unsupported

	mu struct {
		sync.Mutex
		desired  map[string]int
		statuses int // Status calls
	}
	config string
}

func newTestProvider() *testProvider {
	p := &testProvider{}
	p.mu.desired = map[string]int{}
	return p
}

func (p *testProvider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{
		Name: "test", Version: "1.2.3", Capabilities: []pluginsdk.Capability{pluginsdk.CanWatch},
		ConfigSchema: `{"type":"object","additionalProperties":false,
			"properties":{"do":{"type":"string"},"token":{"type":"string","maxLength":8}}}`,
	}, nil
}

func (p *testProvider) Configure(_ context.Context, config []byte) error {
	p.config = string(config)
	switch {
	case strings.Contains(p.config, "refuse"):
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "no such region")
	case strings.Contains(p.config, "die"):
		_, path, _ := strings.Cut(strings.TrimSuffix(p.config, `"}`), "until ")
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		fmt.Fprintln(os.Stderr, "dying")
		os.Exit(4)
	case strings.Contains(p.config, "grandchild"):
		return startSleeper(strings.Contains(p.config, "own session"))
	}
	return nil
}

// startSleeper starts a process that holds our outputs for ever.
func startSleeper(ownSession bool) error {
	child := exec.Command("/proc/self/exe") // os.Executable names no file: we run from memory
	child.Env = []string{roleEnv + "=sleeper"}
	child.Stdout, child.Stderr = os.NewFile(1, "stdout"), rawStderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: ownSession}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "sleeper", child.Process.Pid)
	return nil
}

func (p *testProvider) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.statuses++
	answers := make([]pluginsdk.GroupStatus, len(groups))
	for i, g := range groups {
		p.misbehave(g)
		answers[i] = pluginsdk.GroupStatus{Group: g, Desired: p.mu.desired[g], Max: 100}
		if g == "calls" {
			answers[i].Desired = p.mu.statuses
		}
		if g == "bytes" {
			answers[i].Failures = []pluginsdk.GroupFailure{{ID: "f", Message: strings.Repeat("m", 4096)}}
		}
	}
	return answers, nil
}

func (p *testProvider) misbehave(group string) {
	switch group {
	case "exit":
		os.Exit(5)
	case "panic":
		panic("surprise")
	case "hang":
		select {}
	}
	if n, ok := strings.CutPrefix(group, "spam-"); ok {
		mib, _ := strconv.Atoi(n)
		for range mib {
			if _, err := rawStderr.WriteString(strings.Repeat(strings.Repeat("s", 1023)+"\n", 1024)); err != nil {
				panic(err)
			}
		}
	}
}

// ListInstances of group "env" is the environment, of "fds" the descriptors.
func (p *testProvider) ListInstances(ctx context.Context, group string) ([]pluginsdk.Instance, error) {
	var ids []string
	switch group {
	case "env":
		ids = os.Environ()
	case "fds":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			ids = append(ids, e.Name()+"="+to)
		}
	case "denied":
		return nil, pluginsdk.Errorf(pluginsdk.KindAuth, "not allowed")
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case "hang":
		select {}
	}
	if n, ok := strings.CutPrefix(group, "many-"); ok {
		count, _ := strconv.Atoi(n)
		for i := range count {
			ids = append(ids, fmt.Sprintf("i-%017d", i))
		}
	}
	var all []pluginsdk.Instance
	for _, id := range ids {
		if name, _, _ := strings.Cut(id, "\n"); !strings.HasPrefix(name, "PLUGIN_CLIENT_CERT") {
			all = append(all, pluginsdk.Instance{ID: name, State: pluginsdk.StateRunning})
		}
	}
	return all, nil
}

func (p *testProvider) SetDesired(_ context.Context, r pluginsdk.SetDesired) (int, error) {
	p.misbehave(r.Group)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.desired[r.Group] = r.Target
	return r.Target, nil
}

func (p *testProvider) Remove(_ context.Context, _ string, ids []string, _ string) ([]pluginsdk.RemoveResult, error) {
	results := make([]pluginsdk.RemoveResult, len(ids))
	for i, id := range ids {
		results[i] = pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed}
	}
	return results, nil
}

func (p *testProvider) Withdraw(context.Context, string, int, string) (pluginsdk.WithdrawResult, error) {
	return pluginsdk.WithdrawResult{}, pluginsdk.ErrUnsupported
}

func (p *testProvider) Protect(context.Context, string, []string, bool) error {
	return pluginsdk.ErrUnsupported
}

// Watch sends one notice with our pid and then one about a foreign group.
func (p *testProvider) Watch(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	notify(pluginsdk.Interruption{Group: "foreign", InstanceID: "i", Kind: pluginsdk.Terminating})
	notify(pluginsdk.Interruption{Group: groups[0], InstanceID: strconv.Itoa(os.Getpid()), Kind: pluginsdk.SpotInterruption})
	<-ctx.Done()
	return nil
}

func (p *testProvider) Close(context.Context) error { return nil }

// processes lists the live processes of role that descend from this test binary.
func processes(role string) []int {
	entries, _ := os.ReadDir("/proc")
	self, _ := os.Executable()
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !aliveProcess(pid) {
			continue
		}
		// Others may test the same on this machine, with a binary of their own.
		command, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if name, _, _ := strings.Cut(string(command), "\x00"); name != self {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if slices.Contains(strings.Split(string(env), "\x00"), roleEnv+"="+role) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// aliveProcess reads the state: the first process of a container may not reap,
// and a zombie answers signal 0.
func aliveProcess(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(after, "Z")
}

const patience = time.Minute // for what takes milliseconds on a free machine
