package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// pkiStand is a control plane, a machine and a person with certificates of one authority,
// each in a folder of its own that the test renews. The store outlives the control plane.
type pkiStand struct {
	t                      *testing.T
	server, machine, human tlsfiles.Files
	config                 string
	runners, token         string
	*replica
}

func newPKIStand(t *testing.T, a *tlstest.Authority, more string) *pkiStand {
	t.Helper()
	s := &pkiStand{t: t, runners: peertest.FreeAddress(t), token: filepath.Join(t.TempDir(), "token")}
	require.NoError(t, os.WriteFile(s.token, []byte("a-token-of-linux"), 0o600))
	for files, name := range map[*tlsfiles.Files]string{&s.server: "server", &s.machine: "machine", &s.human: "human"} {
		*files = tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{Name: name}), tlstest.Bundle(a))
	}
	redis := storetest.StartServer(t)
	s.config = fmt.Sprintf(`listen:
  runners: %q
  api: "127.0.0.1:0"
  metrics: "127.0.0.1:0"
  tls: {cert_file: %s, key_file: %s, ca_file: %s}
store: {redis: {addrs: [%q]}}
timeouts: {heartbeat_every: 1s}
plugin_dir: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {linux: {max: 1}}}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: cloud, runner_token: {file: %s}, policy: {max: 1, paused: true}}
%s`, s.runners, s.server.Cert, s.server.Key, s.server.CA, redis.Addr, filepath.Join(bin, "plugins"), s.token, more)
	s.replica = startReplica(t, s.config)
	return s
}

// by asks with somebody's files.
func (s *pkiStand) by(f tlsfiles.Files, args ...string) (string, error) {
	args = append(args, "--ca-file", f.CA)
	if f.Cert != "" {
		args = append(args, "--cert-file", f.Cert, "--key-file", f.Key)
	}
	return s.ctl(args...)
}

func (s *pkiStand) do(args ...string) string {
	s.t.Helper()
	out, err := s.by(s.human, args...)
	require.NoError(s.t, err, "%s\n%v", out, s.err)
	return out
}

// agent starts a machine with somebody's files.
func (s *pkiStand) agent(f tlsfiles.Files) *agentProcess {
	s.t.Helper()
	args := []string{"--router", s.runners, "--token-file", s.token, "--capacity", "1", "--ca-file", f.CA, "--work-dir", s.t.TempDir()}
	if f.Cert != "" {
		args = append(args, "--cert", f.Cert, "--key", f.Key)
	}
	return runAgent(s.t, args...)
}

// job is how a job is.
func (s *pkiStand) job(id string) (j struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
},
) {
	s.t.Helper()
	out := s.do("jobs", "show", id, "-o", "json")
	require.NoError(s.t, json.Unmarshal([]byte(out), &j), out)
	return j
}

func (s *pkiStand) awaitJob(id, state string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.job(id).State == state }, within, 5*poll, "job %s: %v", id, s.err)
}

// shown is the serial number that a listener shows to those who connect now.
func shown(t *testing.T, address string) string {
	t.Helper()
	var serial string
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // it only looks
		serial = s.PeerCertificates[0].SerialNumber.String()
		return nil
	}})
	require.NoError(t, err)
	_ = c.Close()
	return serial
}

func (s *pkiStand) awaitShown(serial string) {
	s.t.Helper()
	for _, address := range []string{s.api, s.runners, s.metrics} {
		require.Eventually(s.t, func() bool { return shown(s.t, address) == serial }, within, 5*poll, "%v", s.err)
	}
}

func (s *pkiStand) metricsPage(authority *tlstest.Authority) string {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	resp, err := h.Get("https://" + s.metrics + "/metrics")
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	return readAll(s.t, resp)
}

// kept is how often new files were not taken over.
func (s *pkiStand) kept(authority *tlstest.Authority) int {
	s.t.Helper()
	m := regexp.MustCompile(`spillway_tls_reloads_total\{result="kept",setting="listen.tls"\} (\d+)`).FindStringSubmatch(s.metricsPage(authority))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	require.NoError(s.t, err)
	return n
}

// C8: server, client and authority are replaced while a job runs. Its stream is not
// touched; whoever connects anew uses what is new.
func TestC8_RotationUnderARunningJob(t *testing.T) {
	t.Parallel()
	shows(t, "C8")
	old, next := tlstest.New(t, "old"), tlstest.New(t, "new")
	s := newPKIStand(t, old, "")
	a := s.agent(s.machine)
	gate := filepath.Join(t.TempDir(), "gate")
	s.do("jobs", "submit", "--id", "long", "--tag", "linux", "--script", "while [ ! -e "+gate+" ]; do sleep 0.1; done")
	s.awaitJob("long", "JOB_STATE_RUNNING")
	stays := s.human // a person who is not told of the rotation
	untold := tlstest.Write(t, t.TempDir(), readPair(t, stays), tlstest.Bundle(old, next))

	// The server's own certificate, by the same authority.
	pair := old.Issue(t, tlstest.Request{Name: "server"})
	tlstest.Write(t, filepath.Dir(s.server.Cert), pair, nil)
	s.awaitShown(pair.Serial)

	// A pair that is only half there changes nothing, and is counted.
	kept := s.kept(old) // not 0 if somebody looked between the two files above
	tlstest.Put(t, s.server.Key, []byte("-----BEGIN"))
	require.Eventually(t, func() bool { return s.kept(old) == kept+1 }, within, 10*poll, "%v", s.err)
	require.Eventually(t, func() bool { return strings.Contains(s.err.String(), "the ones before stay in use") }, within, poll)
	require.Equal(t, pair.Serial, shown(t, s.api))

	// The authority: both are known for a while, then the old one is not any more.
	both := tlstest.Bundle(old, next)
	for _, f := range []tlsfiles.Files{s.server, s.machine, s.human} {
		tlstest.Put(t, f.CA, both)
	}
	pair = next.Issue(t, tlstest.Request{Name: "server", Lasts: 24 * time.Hour})
	tlstest.Write(t, filepath.Dir(s.server.Cert), pair, nil)
	s.awaitShown(pair.Serial)
	s.do("pools") // by the old authority's certificate still
	tlstest.Write(t, filepath.Dir(s.human.Cert), next.Issue(t, tlstest.Request{Name: "human"}), nil)
	tlstest.Write(t, filepath.Dir(s.machine.Cert), next.Issue(t, tlstest.Request{Name: "machine"}), nil)
	s.do("pools")
	tlstest.Put(t, s.server.CA, tlstest.Bundle(next))
	require.Eventually(t, func() bool { _, err := s.by(untold, "pools"); return err != nil }, within, 10*poll, "the old authority's certificates are over")
	s.do("pools")
	require.Regexp(t, `spillway_tls_certificate_expiry_seconds\{file="[^"]*tls.crt",setting="listen.tls"\} 8[56]\d\d\d`, s.metricsPage(next))

	// All of that without a word on the stream.
	require.Equal(t, "JOB_STATE_RUNNING", s.job("long").State)
	require.Equal(t, 1, a.registered(), a.log)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	s.awaitJob("long", "JOB_STATE_COMPLETED")
	require.Equal(t, 1, s.job("long").Attempt)

	// The same process connects anew with what is on its disk now.
	s.restart()
	require.Eventually(t, func() bool { return a.registered() >= 2 }, within, 5*poll, "%v", a.log)
	s.do("jobs", "submit", "--id", "after", "--tag", "linux", "--script", "true")
	s.awaitJob("after", "JOB_STATE_COMPLETED")
}

// restart ends the control plane and starts it again at the same address for runners.
func (s *pkiStand) restart() {
	s.t.Helper()
	require.NoError(s.t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(s.t, exitOK, s.code(), s.err)
	s.replica = startReplica(s.t, s.config)
}

// Each kind of wrong certificate, at the person's and the machine's listener.
func TestC8_WhoIsRefusedAndHow(t *testing.T) {
	t.Parallel()
	shows(t, "C8")
	ours, other := tlstest.New(t, "ours"), tlstest.New(t, "other")
	s := newPKIStand(t, ours, "")
	bundle := tlstest.Bundle(ours)
	none := tlsfiles.Files{CA: s.human.CA}
	stranger := tlstest.Write(t, t.TempDir(), other.Issue(t, tlstest.Request{Name: "human"}), bundle)
	expired := tlstest.Write(t, t.TempDir(), ours.Issue(t, tlstest.Request{Name: "human", Begins: -2 * time.Hour, Lasts: -time.Minute}), bundle)

	out, err := s.by(none, "pools")
	require.Error(t, err)
	require.Contains(t, out, "not allowed: no client certificate: this control plane (listen.tls.ca_file) takes calls only from holders of one")
	for name, files := range map[string]tlsfiles.Files{"stranger": stranger, "expired": expired} {
		out, err := s.by(files, "pools")
		require.Error(t, err, name)
		require.NotContains(t, out, "not allowed", "%s: it does not get as far as a sentence", name)
	}
	out, err = s.by(tlstest.Write(t, t.TempDir(), ours.Issue(t, tlstest.Request{Name: "human"}), tlstest.Bundle(other)), "pools")
	require.Error(t, err)
	require.Contains(t, out, "its certificate was not accepted")

	without := s.agent(none)
	require.Eventually(t, func() bool { return strings.Contains(without.log.String(), "no client certificate") }, within, 5*poll, "%v", without.log)
	late := s.agent(expired)
	require.Eventually(t, func() bool { return strings.Contains(late.log.String(), "not connected") }, within, 5*poll, "%v", late.log)
	require.Zero(t, late.registered())
	// It is waited for: once its certificate is renewed, the same process is let in.
	tlstest.Write(t, filepath.Dir(expired.Cert), ours.Issue(t, tlstest.Request{Name: "machine"}), nil)
	require.Eventually(t, func() bool { return late.registered() > 0 }, within, 5*poll, "%v", late.log)

	// Probes have none and need none.
	require.Contains(t, s.metricsPage(ours), `spillway_access_refused_total{code="unauthenticated"} 1`)
	require.Contains(t, s.err.String(), "action=refused")
}

// validate says what is wrong with the files before somebody relies on them.
func TestValidateLooksAtCertificates(t *testing.T) {
	a := tlstest.New(t, "a")
	dir := t.TempDir()
	files := tlstest.Files(dir)
	path := write(t, fmt.Sprintf("listen: {tls: {cert_file: %s, key_file: %s, ca_file: %s}}\n%s", files.Cert, files.Key, files.CA,
		strings.SplitN(serving("spillway-provider-fake", "127.0.0.1:0", ""), "\n", 2)[1]))
	good := a.Issue(t, tlstest.Request{Lasts: 24 * time.Hour})
	for _, c := range []struct {
		name  string
		write func()
		code  int
		says  string
	}{
		{"missing", func() {}, exitOK, "warning: listen.tls: open "},
		{"good", func() { tlstest.Write(t, dir, good, tlstest.Bundle(a)) }, exitOK, ""},
		{"mismatch", func() { tlstest.Put(t, files.Key, a.Issue(t, tlstest.Request{}).Key) }, exitUsage, "certificate and key do not belong together"},
		{"expired", func() {
			tlstest.Write(t, dir, a.Issue(t, tlstest.Request{Begins: -2 * time.Hour, Lasts: -time.Hour}), nil)
		}, exitUsage, "has expired at"},
		{"early", func() {
			tlstest.Write(t, dir, a.Issue(t, tlstest.Request{Begins: time.Hour, Lasts: 2 * time.Hour}), nil)
		}, exitUsage, "is not valid before"},
		{"soon", func() {
			tlstest.Write(t, dir, a.Issue(t, tlstest.Request{Begins: -24 * time.Hour, Lasts: time.Hour}), nil)
		}, exitOK, "expires in 1h0m0s"},
		{"for all to read", func() {
			tlstest.Write(t, dir, good, nil)
			require.NoError(t, os.Chmod(files.Key, 0o644))
		}, exitOK, "everybody on this machine can read or change the key"},
	} {
		c.write()
		code, _, stderr := try(t, "validate", path)
		require.Equal(t, c.code, code, "%s: %s", c.name, stderr)
		if c.says == "" {
			require.NotContains(t, stderr, "listen.tls", c.name)
			continue
		}
		require.Contains(t, stderr, c.says, c.name)
	}
}

func readPair(t *testing.T, f tlsfiles.Files) tlstest.Pair {
	t.Helper()
	cert, err := os.ReadFile(f.Cert)
	require.NoError(t, err)
	key, err := os.ReadFile(f.Key)
	require.NoError(t, err)
	return tlstest.Pair{Cert: cert, Key: key}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}
