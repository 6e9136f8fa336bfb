package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// debugStand is two replicas, of which "far" has the machines and "near" is asked.
type debugStand struct {
	t          *testing.T
	near, far  *replica
	dir        string // tokens, audits
	web        string // near's listen.debug
	farRunners string
	redis      string
}

func (s *debugStand) farConfig() string { return s.config("far", s.redis, s.farRunners, "") }

func newDebugStand(t *testing.T) *debugStand {
	t.Helper()
	s := &debugStand{t: t, dir: t.TempDir(), web: peertest.FreeAddress(t), farRunners: peertest.FreeAddress(t)}
	for name, token := range map[string]string{"runner": "a-token-of-linux", "debugger": "a-token-of-debugger", "pusher": "a-token-of-pusher"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(token), 0o600))
	}
	s.redis = storetest.StartServer(t).Addr
	s.far = startReplica(t, s.farConfig())
	s.near = startReplica(t, s.config("near", s.redis, "127.0.0.1:0", fmt.Sprintf(", debug: %q", s.web)))
	return s
}

func (s *debugStand) config(name, redis, runners, listen string) string {
	return fmt.Sprintf(`replica: %s
listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"%s}
store: {redis: {addrs: [%q]}}
timeouts: {heartbeat_every: 500ms}
access:
  - {name: ann, token: {file: %s/debugger}, roles: [debug]}
  - {name: ci, token: {file: %s/pusher}, roles: [push, read]}
audit: {file: %s/audit-%s.jsonl}
debug: {}
plugin_dir: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {linux: {max: 1}}}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: cloud, capacity_per_instance: 4, runner_token: {file: %s/runner}, policy: {max: 1, paused: true}}
`, name, runners, listen, redis, s.dir, s.dir, s.dir, name, filepath.Join(bin, "plugins"), s.dir)
}

// limited starts one more replica that is asked, with limits of its own for sessions.
func (s *debugStand) limited(name, limits string) *replica {
	s.t.Helper()
	return startReplica(s.t, strings.Replace(s.config(name, s.redis, "127.0.0.1:0", ""), "debug: {}", "debug: {"+limits+"}", 1))
}

// agent is a real machine of "far".
func (s *debugStand) agent(args ...string) *agentProcess {
	s.t.Helper()
	args = append([]string{"--router", s.farRunners, "--token-file", s.dir + "/runner", "--plaintext", "--capacity", "4", "--stop-grace", "1s", "--work-dir", s.t.TempDir()}, args...)
	a := runAgent(s.t, args...)
	require.Eventually(s.t, func() bool { return a.registered() > 0 }, within, poll, "%v", a.log)
	return a
}

// job submits one and waits until it is in a state.
func (s *debugStand) job(id, script, state string) {
	s.t.Helper()
	s.near.must("--token-file", s.dir+"/pusher", "jobs", "submit", "--id", id, "--tag", "linux", "--script", script)
	s.await(id, state)
}

func (s *debugStand) await(id, state string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		out, err := s.near.ctl("--token-file", s.dir+"/pusher", "jobs", "show", id)
		return err == nil && regexp.MustCompile(`state +`+state).MatchString(out)
	}, within, poll, "job %s: %v", id, s.far.err)
}

// by is the command of somebody at a replica.
func (s *debugStand) by(who string, at *replica, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(bin, "spillwayctl"), append([]string{"--addr", at.api, "--timeout", within.String(), "--token-file", s.dir + "/" + who}, args...)...)
}

// exec runs a command in a job and returns what it prints and its exit code.
func (s *debugStand) exec(at *replica, input string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	cmd := s.by("debugger", at, append([]string{"job", "exec"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(s.t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// audit is what a replica has kept.
func (s *debugStand) audit(replica string) (entries []access.Entry) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "audit-"+replica+".jsonl"))
	require.NoError(s.t, err)
	return auditEntries(s.t, text)
}

// awaitAudit waits for an entry with an action about an object, whose detail has words.
func (s *debugStand) awaitAudit(replica, action, object string, words ...string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, e := range s.audit(replica) {
			found := e.Action == action && e.Object == object
			for _, w := range words {
				found = found && strings.Contains(e.Detail, w)
			}
			if found {
				return true
			}
		}
		return false
	}, within, poll, "%s %s %v: not in %v", action, object, words, lazily(func() string { return fmt.Sprint(s.audit(replica)) }))
}

// serving is a job that serves HTTP and gRPC, and its port.
func (s *debugStand) serving(id string) (port string) {
	s.t.Helper()
	_, port, err := net.SplitHostPort(peertest.FreeAddress(s.t))
	require.NoError(s.t, err)
	self, err := os.Executable()
	require.NoError(s.t, err)
	s.job(id, fmt.Sprintf("echo made >file; %s=%s exec %s", jobPort, port, self), "running")
	require.Eventually(s.t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, within, poll)
	return port
}

func (s *debugStand) get(path, token string) (code int, body string) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+s.web+path, nil)
	require.NoError(s.t, err)
	if token != "" {
		text, err := os.ReadFile(filepath.Join(s.dir, token))
		require.NoError(s.t, err)
		req.Header.Set("Authorization", "Bearer "+string(text))
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(text)
}

// background runs a command that goes on, until a word is printed, which is returned.
func background(t *testing.T, cmd *exec.Cmd, word *regexp.Regexp) string {
	t.Helper()
	out := newOutput(t, "stdout")
	cmd.Stdout, cmd.Stderr = out.file, out.file
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var found []string
	require.Eventually(t, func() bool {
		found = word.FindStringSubmatch(out.String())
		return found != nil
	}, within, poll, "%v", out)
	return found[len(found)-1]
}

// listens are the listening TCP sockets of a process.
func listens(t *testing.T, pid int) (found []string) {
	t.Helper()
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, link := range links {
		to, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listening && inodes[f[9]] {
				found = append(found, f[1])
			}
		}
	}
	return found
}
