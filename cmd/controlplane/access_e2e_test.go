package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
)

// accessStand is a control plane with an access section, and the tokens of its entries.
type accessStand struct {
	*replica
	folder, audit string
}

func (s *accessStand) token(who string) string { return filepath.Join(s.folder, who) }

// as asks with somebody's token.
func (s *accessStand) as(who string, args ...string) (string, error) {
	return s.ctl(append(args, "--token-file", s.token(who))...)
}

func (s *accessStand) entries() (all []access.Entry) {
	text, err := os.ReadFile(s.audit)
	require.NoError(s.t, err)
	return auditEntries(s.t, text)
}

// auditEntries are the lines of an audit file that are written to their end.
func auditEntries(t *testing.T, text []byte) (all []access.Entry) {
	t.Helper()
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e access.Entry
		require.NoError(t, json.Unmarshal(line, &e), "%s", line)
		all = append(all, e)
	}
	return all
}

// put replaces a token's file: whoever reads it finds a whole token.
func (s *accessStand) put(who, token string) {
	s.t.Helper()
	tlstest.Put(s.t, s.token(who), []byte(token+"\n"))
}

const (
	ciSecret   = "ci-token-canary-0123456789"
	lookSecret = "look-token-canary-0123456789"
	helmSecret = "helm-token-canary-0123456789"
)

func newAccessStand(t *testing.T) *accessStand {
	t.Helper()
	s := &accessStand{folder: t.TempDir()}
	s.replica = &replica{t: t}
	s.audit = filepath.Join(s.folder, "audit.jsonl")
	section := "audit: {file: " + s.audit + "}\naccess:\n"
	for who, e := range map[string][2]string{"ci": {ciSecret, "push"}, "look": {lookSecret, "read"}, "helm": {helmSecret, "operate, read"}} {
		s.put(who, e[0])
		section += fmt.Sprintf("  - {name: %s, token: {file: %s}, roles: [%s]}\n", who, s.token(who), e[1])
	}
	s.replica = startReplica(t, section+serving("spillway-provider-fake", "127.0.0.1:0", ""))
	return s
}

func TestRolesAndAudit(t *testing.T) {
	t.Parallel()
	s := newAccessStand(t)
	began := time.Now()
	_, err := s.as("ci", "jobs", "submit", "--id", "j1", "--tag", "linux", "--script", "true")
	require.NoError(t, err)
	_, err = s.as("look", "jobs", "show", "j1")
	require.NoError(t, err)
	_, err = s.as("look", "pools")
	require.NoError(t, err)

	refused := func(out string, err error, says string) {
		t.Helper()
		require.Error(t, err, out)
		require.Contains(t, out, "not allowed: ")
		require.Contains(t, out, says)
	}
	out, err := s.as("look", "jobs", "cancel", "j1")
	refused(out, err, `"look" (by token) does not have the role "push"`)
	out, err = s.as("ci", "pools")
	refused(out, err, `"ci" (by token) does not have the role "read"`)
	out, err = s.as("ci", "priority", "set", "linux", "7")
	refused(out, err, `does not have the role "operate"`)
	out, err = s.ctl("pools")
	refused(out, err, "no token and no client certificate")
	s.put("nobody", "nobodys-token-canary-0123456789")
	out, err = s.as("nobody", "pools")
	refused(out, err, "nobody in the control plane's access section has this token")

	out, err = s.as("ci", "jobs", "cancel", "j1", "--reason", "not needed")
	require.NoError(t, err, out)
	out, err = s.as("helm", "priority", "set", "linux", "7")
	require.NoError(t, err, out)

	require.Eventually(t, func() bool { return len(s.entries()) == 7 }, within, poll, "%v", lazily(func() string { return fmt.Sprint(s.entries()) }))
	all := s.entries()
	for i, want := range []struct{ who, via, action, object, detail string }{
		{"look", "token", "refused", "/spillway.jobs.v1.JobService/Cancel", `does not have the role "push"`},
		{"ci", "token", "refused", "/spillway.admin.v1.AdminService/ListPools", `does not have the role "read"`},
		{"ci", "token", "refused", "/spillway.admin.v1.AdminService/SetPriority", `does not have the role "operate"`},
		{"", "", "refused", "/spillway.admin.v1.AdminService/ListPools", "from 127.0.0.1:"},
		{"", "", "refused", "/spillway.admin.v1.AdminService/ListPools", "has this token"},
		{"ci", "token", "job.cancel", "j1", "not needed"},
		{"helm", "token", "priority.set", "linux", "7"},
	} {
		e := all[i]
		require.Equal(t, []string{want.who, want.via, want.action, want.object}, []string{e.Who, e.Via, e.Action, e.Object}, "%+v", e)
		require.Contains(t, e.Detail, want.detail)
		require.Equal(t, e.Action != "refused", e.OK)
		require.WithinRange(t, e.At, began, time.Now())
	}
	info, err := os.Stat(s.audit)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(s.audit)
	require.NoError(t, err)
	require.NotContains(t, string(text)+s.err.String(), "canary", "no token anywhere")
}

// A token that leaked is replaced in its file, and is of no use a few seconds later.
func TestTokensAreReplacedWithoutRestart(t *testing.T) {
	t.Parallel()
	s := newAccessStand(t)
	s.put("leaked", lookSecret)
	_, err := s.as("leaked", "pools")
	require.NoError(t, err)
	s.put("look", "another-token-canary-0123456789")
	require.Eventually(t, func() bool { _, err := s.as("leaked", "pools"); return err != nil }, within, 10*poll)
	_, err = s.as("look", "pools")
	require.NoError(t, err)

	s.put("look", "short")
	require.Eventually(t, func() bool { return strings.Contains(s.err.String(), "what it said before stays in force") }, within, 10*poll)
	require.Contains(t, s.err.String(), "the token is shorter than 16 characters")
	s.put("kept", "another-token-canary-0123456789")
	_, err = s.as("kept", "pools")
	require.NoError(t, err, "a broken file locks nobody out")
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, s.code())
	require.NotContains(t, s.err.String(), "canary")
}

// The names in a certificate are what an entry is found by.
func TestCertificatesHaveRoles(t *testing.T) {
	t.Parallel()
	a := tlstest.New(t, "a")
	s := newPKIStand(t, a, `access:
  - {name: people, certificate: "DNS:*.people.example", roles: [read]}
  - {name: human, certificate: "CN=human", roles: [read, push]}
`)
	s.do("jobs", "submit", "--id", "j1", "--tag", "linux", "--script", "true")
	as := func(r tlstest.Request) tlsfiles.Files {
		return tlstest.Write(t, t.TempDir(), a.Issue(t, r), tlstest.Bundle(a))
	}
	ada := as(tlstest.Request{Name: "human", DNS: "ada.people.example"})
	out, err := s.by(ada, "pools")
	require.NoError(t, err, out)
	out, err = s.by(ada, "jobs", "cancel", "j1")
	require.Error(t, err)
	require.Contains(t, out, `"people" (by certificate) does not have the role "push"`, "alternative names come before the common name")
	out, err = s.by(as(tlstest.Request{Name: "stranger"}), "pools")
	require.Error(t, err)
	require.Contains(t, out, "nobody in the control plane's access section has this certificate (CN=stranger)")
	require.Contains(t, s.err.String(), "subject=DNS:ada.people.example action=refused", "without a file the audit is in the log")
}

func TestValidateLooksAtTokens(t *testing.T) {
	missing, short := filepath.Join(t.TempDir(), "no"), filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(short, []byte("short"), 0o600))
	config := func(file string) string {
		return write(t, fmt.Sprintf("access:\n  - {name: a, token: {file: %s}, roles: [read, push]}\n%s", file, serving("spillway-provider-fake", "127.0.0.1:0", "")))
	}
	code, _, stderr := try(t, "validate", config(missing))
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "warning: access[0].token: no secret: open "+missing)
	code, _, stderr = try(t, "validate", config(short))
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "error: access[0].token: the token is shorter than 16 characters")
	code, _, stderr = try(t, "validate", write(t, "access: [{name: a, token: {env: A}, roles: [opperate]}]\n"+serving("spillway-provider-fake", "127.0.0.1:0", "")))
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `access[0].roles[0]: there is no role "opperate"; did you mean operate?`)
}
