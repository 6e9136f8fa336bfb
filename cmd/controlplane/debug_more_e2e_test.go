package main

import (
	"crypto/tls"
	"crypto/x509"
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

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// Without an access section nobody may, and is told what to do.
func TestA20_NeedsAnAccessSection(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	r := startReplica(t, serving("spillway-provider-fake", "127.0.0.1:0", ""))
	out, err := r.ctl("job", "exec", "1", "--", "true")
	require.Error(t, err)
	require.Contains(t, out, "which only an access section in the control plane's configuration gives")
}

func TestA20_LimitsOfSessions(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	s := newDebugStand(t)
	s.agent("--debug", "on")
	few := s.limited("few", "max_bytes: 100000, max_sessions: 3, max_sessions_per_job: 2")
	brief := s.limited("brief", "idle_timeout: 2s")
	old := s.limited("old", "idle_timeout: 10s, max_duration: 15s")
	s.job("runs", "sleep 1000", "running")
	s.job("too", "sleep 1000", "running")

	// Bytes: as many as may pass do, and not one more.
	out, errs, code := s.exec(few, "", "runs", "--", "head", "-c", "100000", "/dev/zero")
	require.Zero(t, code, errs)
	require.Len(t, out, 100_000)
	_, errs, code = s.exec(few, "", "runs", "--", "head", "-c", "100001", "/dev/zero")
	require.Equal(t, 4, code)
	require.Contains(t, errs, "the session has carried the 100000 bytes that it may (debug.max_bytes)")

	// Sessions: two of a job, three in all.
	ready := regexp.MustCompile("ready")
	hold := func(job string) *exec.Cmd {
		cmd := s.by("debugger", few, "job", "exec", job, "--", "sh", "-c", "echo ready; sleep 1000")
		background(t, cmd, ready)
		return cmd
	}
	open := []*exec.Cmd{hold("runs"), hold("runs")}
	_, errs, _ = s.exec(few, "", "runs", "--", "true")
	require.Contains(t, errs, "job runs has 2 sessions at this replica, and may have no more (debug.max_sessions_per_job)")
	open = append(open, hold("too"))
	_, errs, _ = s.exec(few, "", "too", "--", "true")
	require.Contains(t, errs, "this replica has 3 sessions, and takes no more (debug.max_sessions)")
	for _, cmd := range open {
		require.NoError(t, cmd.Process.Kill())
	}
	require.Eventually(t, func() bool { _, _, code := s.exec(few, "", "runs", "--", "true"); return code == 0 }, within, 10*poll, "all seats are free again")

	// They end when idle. One that is used goes on, until it is too old.
	_, errs, code = s.exec(brief, "", "runs", "--", "sleep", "1000")
	require.Equal(t, 4, code)
	require.Contains(t, errs, "nothing has passed for 2s (debug.idle_timeout)")
	_, errs, code = s.exec(old, "", "runs", "--", "sh", "-c", "while :; do echo; sleep 0.2; done")
	require.Equal(t, 4, code)
	require.Contains(t, errs, "the session was open for 15s, which is as long as it may (debug.max_duration)")
}

// What goes away under a session ends it with a sentence.
func TestA20_MachineAndReplicaGoAway(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	s := newDebugStand(t)
	a := s.agent("--debug", "on")
	s.job("runs", "sleep 1000", "running")
	begin := func() (*exec.Cmd, *output) {
		cmd := s.by("debugger", s.near, "job", "exec", "runs", "--", "sh", "-c", "echo ready; sleep 1000")
		log := newOutput(t, "held")
		cmd.Stdout, cmd.Stderr = log.file, log.file
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "ready") }, within, poll, "%v", log)
		return cmd, log
	}
	cmd, log := begin()
	require.NoError(t, s.far.Process.Kill())
	_ = s.far.code()
	_ = cmd.Wait()
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%v", log)
	require.Contains(t, log.String(), "job runs is on a machine of replica far, which replica near can't reach: call that one itself")
	_, errs, code := s.exec(s.near, "", "runs", "--", "true")
	require.Equal(t, 3, code)
	require.Contains(t, errs, "call that one itself")
	s.awaitAudit("near", "debug.close", "runs", "can't reach")

	// The replica is back, and so is the machine with its job.
	s.far = startReplica(t, s.farConfig())
	require.Eventually(t, func() bool { return a.registered() >= 2 }, within, 5*poll, "%v", a.log)
	require.Eventually(t, func() bool { _, _, code := s.exec(s.near, "", "runs", "--", "true"); return code == 0 }, within, 10*poll, "%v", s.near.err)
	cmd, log = begin()
	require.NoError(t, a.Process.Kill())
	_ = cmd.Wait()
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%v", log)
	require.Contains(t, log.String(), "the machine of the job has lost its connection")
}

// With mutual TLS a person is known by a certificate, the machine and the other replica by
// theirs, and a session passes all of them.
func TestA20_WithMutualTLS(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	authority := tlstest.New(t, "ours")
	issue := func(name string) tlsfiles.Files {
		return tlstest.Write(t, t.TempDir(), authority.Issue(t, tlstest.Request{Name: name}), tlstest.Bundle(authority))
	}
	server, ann, bob := issue("server"), issue("ann"), issue("bob")
	s := &debugStand{t: t, dir: t.TempDir(), web: peertest.FreeAddress(t), farRunners: peertest.FreeAddress(t), redis: storetest.StartServer(t).Addr}
	for name, token := range map[string]string{"runner": "a-token-of-linux", "debugger": "a-token-of-debugger", "pusher": "a-token-of-pusher"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(token), 0o600))
	}
	secure := func(config string) string {
		files := fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, ca_file: %s}}", server.Cert, server.Key, server.CA)
		config = regexp.MustCompile(`(?m)^(listen: .*)\}$`).ReplaceAllString(config, "${1}"+files)
		return strings.Replace(config, "access:\n", "access:\n  - {name: by-certificate, certificate: \"CN=ann\", roles: [debug, push, read]}\n", 1)
	}
	s.far = startReplica(t, secure(s.farConfig()))
	s.near = startReplica(t, secure(s.config("near", s.redis, "127.0.0.1:0", fmt.Sprintf(", debug: %q", s.web))))
	runAgent(t, "--router", s.farRunners, "--token-file", s.dir+"/runner", "--work-dir", t.TempDir(),
		"--debug", "on", "--ca-file", bob.CA, "--cert", bob.Cert, "--key", bob.Key)
	by := func(f tlsfiles.Files, args ...string) (string, error) {
		return s.near.ctl(append([]string{"--ca-file", f.CA, "--cert-file", f.Cert, "--key-file", f.Key}, args...)...)
	}
	_, port, err := net.SplitHostPort(peertest.FreeAddress(t))
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := by(ann, "jobs", "submit", "--id", "1", "--tag", "linux", "--script", jobPort+"="+port+" exec "+self)
	require.NoError(t, err, out)
	require.Eventually(t, func() bool {
		out, err = by(ann, "job", "exec", "1", "--", "echo", "hello")
		return err == nil && strings.Contains(out, "hello")
	}, within, 10*poll, "%s\n%v\n%v", lazily(func() string { return out }), s.near.err, s.far.err)
	s.awaitAudit("near", "debug.close", "1", "exec on machine")
	require.Equal(t, "by-certificate", s.audit("near")[0].Who)
	out, err = by(bob, "job", "exec", "1", "--", "true")
	require.Error(t, err)
	require.Contains(t, out, "nobody in the control plane's access section has this certificate (CN=bob)")

	pair, err := tls.LoadX509KeyPair(ann.Cert, ann.Key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}}
	var text []byte
	require.Eventually(t, func() bool {
		resp, err := browser.Get("https://" + s.web + "/jobs/1/proxy/" + port + "/who")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ = io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK
	}, within, 10*poll)
	require.Contains(t, string(text), "job 1 path /who")
	browser.CloseIdleConnections()
}
