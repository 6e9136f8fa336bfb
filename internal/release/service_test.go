package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within bounds every wait [time]; poll is how often a test looks again.
const (
	within = time.Minute
	poll   = 100 * time.Millisecond
)

// Both packages in one system, each service started as its unit says, with the unit's
// user, folder, environment and umask: the agent takes a job from the control plane. There
// is no systemd to start them: what it would take from them besides (its file systems,
// capabilities, system calls) is not tried here.
func TestServicesRunAsInstalled(t *testing.T) {
	if *distFlag == "" {
		t.Skip("SKIPPED, without -dist: the programs are stand-ins")
	}
	s := newSystem(t)
	folder, _ := dist(t)
	for _, p := range packages {
		s.dpkg("-i", one(t, folder, p.name+"_*_"+runtime.GOARCH+".deb"))
	}
	s.withShell()
	ports := freePorts(t, 3)
	s.configure(ports)

	control := s.start("spillway")
	require.Eventually(t, func() bool { return strings.Contains(control.String(), "msg=serving") }, within, poll, "%s", control)
	agent := s.start("spillway-agent")
	require.Eventually(t, func() bool { return strings.Contains(agent.String(), "msg=registered") }, within, poll, "%s\n%s", agent, control)

	ctl := exec.Command(s.path("usr/bin/spillwayctl"), "--addr", fmt.Sprint("127.0.0.1:", ports[1]), "jobs", "submit", "--tag", "linux", "--wait", "--script", "id -u >/var/lib/spillway-agent/who; umask >>/var/lib/spillway-agent/who; env >/var/lib/spillway-agent/environment")
	out, err := ctl.CombinedOutput()
	require.NoError(t, err, "%s\n%s\n%s", out, agent, control)
	who, err := os.ReadFile(s.path("var/lib/spillway-agent/who"))
	require.NoError(t, err)
	require.Equal(t, s.user("spillway-agent")+"\n0022\n", string(who))
	environment, err := os.ReadFile(s.path("var/lib/spillway-agent/environment"))
	require.NoError(t, err)
	require.NotContains(t, string(environment), "a-token-of-a-test", "a job sees the token of its machine")

	agent.stop(0, 75)
	require.NoError(t, control.cmd.Process.Signal(syscall.SIGHUP), "systemctl reload")
	require.Eventually(t, func() bool { return strings.Contains(control.String(), "configuration read again") }, within, poll, "%s", control)
	control.stop(0)
	audit, err := os.Stat(s.path("var/log/spillway/audit.jsonl"))
	require.NoError(t, err)
	require.Zero(t, audit.Mode().Perm()&0o077, "readable by others")
}

// withShell gives the system what jobs need of the machine's: a shell and its libraries.
func (s system) withShell() {
	s.t.Helper()
	for _, dir := range []string{"bin", "lib", "lib64", "tmp", "proc", "dev"} {
		require.NoError(s.t, os.MkdirAll(s.path(dir), 0o755))
	}
	require.NoError(s.t, os.Chmod(s.path("tmp"), 0o777|os.ModeSticky))
}

// configure makes the least of the installed configuration that is valid: its example, with
// another provider.
func (s system) configure(ports []int) {
	s.t.Helper()
	text, err := os.ReadFile(s.path("etc/spillway/spillway.yaml"))
	require.NoError(s.t, err)
	config := string(text)
	for i, port := range ports {
		config = strings.Replace(config, fmt.Sprint("127.0.0.1:", 7700+i), fmt.Sprint("127.0.0.1:", port), 1)
	}
	config += `
providers: {local: {plugin: spillway-provider-local, config: {agent: /usr/bin/spillway-agent, router: "127.0.0.1:1", plaintext: true, token_file: /etc/spillway/tokens/linux, groups: [{name: linux, max: 1}]}}}
pools: [{name: linux, capability: {tags: [linux]}, provider: local, runner_token: {file: /etc/spillway/tokens/linux}, policy: {max: 1, paused: true}}]
`
	require.NoError(s.t, os.WriteFile(s.path("etc/spillway/spillway.yaml"), []byte(config), 0o644))
	s.give("etc/spillway/tokens/linux", "a-token-of-a-test\n", 0o640)
	agent, err := os.ReadFile(s.path("etc/spillway-agent/agent.env"))
	require.NoError(s.t, err)
	env := strings.Replace(string(agent), "127.0.0.1:7700", fmt.Sprint("127.0.0.1:", ports[0]), 1)
	env = strings.Replace(env, "\nSPILLWAY_RUNNER_TOKEN=\n", "\nSPILLWAY_RUNNER_TOKEN=a-token-of-a-test\n", 1)
	require.NoError(s.t, os.WriteFile(s.path("etc/spillway-agent/agent.env"), []byte(env), 0o600))
}

// give writes a file as its owner would: with the group of its folder.
func (s system) give(name, text string, mode os.FileMode) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), mode))
	info, err := os.Stat(filepath.Dir(s.path(name)))
	require.NoError(s.t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(s.t, ok)
	require.NoError(s.t, os.Chown(s.path(name), 0, int(stat.Gid)))
}

// service is a unit's main process.
type service struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	mu    struct {
		sync.Mutex
		log bytes.Buffer
	}
}

// isolated runs "$@" in the system: the machine's programs and libraries are below it for
// this process alone.
const isolated = `set -e
root=$1 user=$2 dir=$3 mask=$4
shift 4
mount --bind /bin "$root/bin"
mount --bind /lib "$root/lib"
[ ! -d /lib64 ] || mount --bind /lib64 "$root/lib64"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
umask "$mask"
exec chroot --userspec="$user" --groups= "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$dir" "$@"`

// start starts a unit's ExecStart. The settings that it understands are those that the two
// units have.
func (s system) start(name string) *service {
	s.t.Helper()
	unit := s.readUnit(name)
	env := append(s.environment(strings.TrimPrefix(unit["EnvironmentFile"], "-")), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin", "HOME="+unit["WorkingDirectory"], "USER="+unit["User"])
	user := s.user(unit["User"])
	args := []string{"--mount", "--propagation", "private", "--", "/bin/sh", "-c", isolated, "sh", s.root, user + ":" + user, unit["WorkingDirectory"], unit["UMask"]}
	v := &service{t: s.t, cmd: exec.Command("unshare", append(args, words(unit["ExecStart"], env)...)...), ended: make(chan struct{})}
	v.cmd.Env, v.cmd.Stdout, v.cmd.Stderr = env, v, v
	require.NoError(s.t, v.cmd.Start())
	go func() {
		defer close(v.ended)
		_ = v.cmd.Wait() // its code is looked at
	}()
	s.t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		<-v.ended
	})
	return v
}

func (s system) readUnit(name string) map[string]string {
	s.t.Helper()
	text, err := os.ReadFile(s.path("usr/lib/systemd/system/" + name + ".service"))
	require.NoError(s.t, err)
	unit := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	return unit
}

// environment reads a unit's EnvironmentFile.
func (s system) environment(file string) (env []string) {
	s.t.Helper()
	text, err := os.ReadFile(s.path(file))
	require.NoError(s.t, err)
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			env = append(env, key+"="+strings.Trim(value, `"`))
		}
	}
	return env
}

// words are those of a command: a variable that is a word by itself is all the words in it
// (systemd.service(5), command lines).
func words(command string, env []string) (all []string) {
	for _, word := range strings.Fields(command) {
		name, isVariable := strings.CutPrefix(word, "$")
		if !isVariable {
			all = append(all, word)
			continue
		}
		for _, e := range env {
			if value, found := strings.CutPrefix(e, name+"="); found {
				all = append(all, strings.Fields(value)...)
			}
		}
	}
	return all
}

// stop does what systemctl stop does first, and wants one of these exit codes.
func (v *service) stop(codes ...int) {
	v.t.Helper()
	require.NoError(v.t, v.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-v.ended:
		require.Contains(v.t, codes, v.cmd.ProcessState.ExitCode(), "%s", v)
	case <-time.After(within):
		require.Fail(v.t, "does not end", "%s", v)
	}
}

// Write implements io.Writer.
func (v *service) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.log.Write(p)
}

// String implements fmt.Stringer: it is the log.
func (v *service) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.log.String()
}

// freePorts are loopback ports below those that outgoing connections get, so that nobody
// has them before the service listens. (The packages of the module beside this one, which
// has a search for them, are none of this one's.)
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	const from, to = 10_000, 32_768
	for tries := 0; len(ports) < n; tries++ {
		require.Less(t, tries, 1_000, "no free port")
		port := from + rand.IntN(to-from)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer func() { require.NoError(t, l.Close()) }()
			ports = append(ports, port)
		}
	}
	return ports
}
