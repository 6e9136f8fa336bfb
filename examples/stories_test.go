package examples_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// ends waits for the end of a terminal that ends by itself.
func (t *terminal) ends(code int) string {
	t.s.Helper()
	require.Eventually(t.s, func() bool {
		select {
		case <-t.done:
			return true
		default:
			return false
		}
	}, patience, poll, "%s", t)
	require.Equal(t.s, code, t.cmd.ProcessState.ExitCode(), "%s", t)
	return t.String()
}

// runs fails when it has ended.
func (t *terminal) runs() {
	t.s.Helper()
	select {
	case <-t.done:
		t.s.Fatalf("it has ended:\n%s", t)
	default:
	}
}

func laptop(s *stage) {
	if out := s.runWhole(); whole {
		require.Contains(s, out, "45 completed, 1 failed, 1 timed out, 1 that no pool can take")
	}
	plane := s.start()
	plane.await("msg=serving")
	out := s.run(1)
	require.Contains(s, out, "3 of 48 jobs did not complete")
	require.Contains(s, out, "train-model  rejected")
	out = s.run(0)
	require.Contains(s, out, "linux-overflow")
	require.Contains(s, out, "set_desired(")
	plane.interrupt()
}

const (
	allRan      = "12 jobs have ended, 0 of them failed; all instances are gone"
	interrupted = "interrupted: everything that was started is stopped"
)

func observe(s *stage) {
	peertest.Program(s, "prometheus", "examples/observe was not run")
	goOn := s.holdJobs()
	play := s.start()
	play.await(" 4        0           4 ") // desired, booting and in service
	s.awaitBusy(4)
	out := s.run(0)
	for _, part := range []string{"gitlab/jobs", "gitlab/runners", "count/linux", "busy"} {
		require.Contains(s, out, part)
	}
	require.Regexp(s, `scale out \d → 4`, out) // from 0, unless it has seen the first of the jobs alone
	goOn()
	if !whole {
		play.interrupt()
		require.Contains(s, play.String(), interrupted)
		return
	}
	require.Contains(s, play.ends(0), allRan)
}

func route(s *stage) {
	if out := s.runWhole(); whole {
		require.Contains(s, out, allRan)
		require.Regexp(s, `asked for a job [1-9]\d* times by Spillway, and 0 times by runners themselves`, out)
	}
	goOn := s.holdJobs()
	play := s.start()
	play.await(" 4        0           4 ")
	s.awaitBusy(4)
	out := s.run(0)
	require.Contains(s, out, "linux-")
	require.Contains(s, out, "busy")
	play.runs()
	goOn()
	play.interrupt()
	require.Contains(s, play.String(), interrupted)
}

func admission(s *stage) {
	s.change("admission/spillway.yaml", "deadline: 5s", "deadline: 20s") // whoever stands still for some seconds is not absent
	plane := s.start()
	plane.await("msg=serving")
	images, rules := s.start(), s.start()
	images.await("connected to a control plane")
	rules.await("connected to a control plane")
	s.awaitCtl(func(out string) bool { return !strings.Contains(out, "nowhere") }, "admission", "status")
	out := s.run(0)
	require.NotContains(s, out, "nowhere")
	require.Contains(s, out, "good completed")
	require.Contains(s, s.run(1), "admission controller image-policy: image docker.io/miner:1 is not allowed")
	require.Contains(s, s.run(1), "admission controller cel: a job may take two hours (rule short)")
	images.interrupt()
	require.Contains(s, s.run(1), "admission controller image-policy is not connected")
	rules.interrupt()
	plane.interrupt()
}

func rulesAreChecked(s *stage) { s.run(0) }

func imagePolicy(s *stage) { require.Contains(s, s.run(0), "-allow") }

func sixtyLines(s *stage) {
	require.Contains(s, s.run(0), "script 1.0.0")
	s.runWhole()
}

// python skips a test where there is none that can speak gRPC.
func python(s *stage) {
	if exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").Run() != nil {
		s.Skip("SKIPPED: no /usr/bin/python3 with grpcio and protobuf")
	}
}

func pythonProvider(s *stage) {
	python(s)
	peertest.Program(s, "protoc", "examples/provider-python was not run")
	require.Contains(s, s.run(0), "python")
	s.runWhole()
}

func pythonWorker(s *stage) {
	python(s)
	plane := s.start()
	plane.await("msg=serving")
	out := s.run(0)
	require.Contains(s, out, "hello completed in python (ok)")
	require.Contains(s, out, "hello from process ")
	require.Contains(s, out, "worker:python-")
	plane.interrupt()
}

// loadBalancer has the real command line make the rules, at a stand-in that notes them.
func loadBalancer(s *stage) {
	peertest.Program(s, "jq", "examples/alb was not tried")
	aws := peertest.Program(s, "aws", "examples/alb was not tried")
	rules := make(chan url.Values, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm() == nil {
			rules <- r.PostForm
		}
		_, _ = io.WriteString(w, `<CreateRuleResponse xmlns="http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"><CreateRuleResult><Rules/></CreateRuleResult></CreateRuleResponse>`)
	}))
	s.Cleanup(server.Close)
	there := fmt.Sprintf("#!/bin/sh\nexec %s --endpoint-url %s \"$@\"\n", aws, server.URL)
	require.NoError(s, os.WriteFile(filepath.Join(s.dir, "tools", "aws"), []byte(there), 0o700)) //nolint:gosec // a program
	s.env = append(s.env, "AWS_DEFAULT_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=nobody", "AWS_SECRET_ACCESS_KEY=nothing")
	s.run(0)
	for i, path := range []string{"/api/v4/runners/router/discovery", "/*"} {
		require.NotEmpty(s, rules, "%d rules were made", i)
		r := <-rules
		require.Equal(s, "CreateRule", r.Get("Action"))
		require.Equal(s, fmt.Sprint(i+1), r.Get("Priority"))
		require.Equal(s, "forward", r.Get("Actions.member.1.Type"))
		require.Equal(s, path, r.Get("Conditions.member.1.PathPatternConfig.Values.member.1"))
	}
}
