package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

var update = flag.Bool("update", false, "write the golden files anew")

// only is an environment with one variable.
func only(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

// ctl runs one command line in this process.
func ctl(t *testing.T, env, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs,
		getenv: only(addrVariable, env),
		now:    func() time.Time { return noon },
	}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "make it with -update, and read it")
	require.Equal(t, string(want), got)
}

const threeJobs = `{"id":"done","script":"true"}
{"id":"fails","script":"exit 3"}
{"id":"known","script":"true"}
`

func TestCommands(t *testing.T) {
	addr := start(t, &fakeJobs{})
	for _, c := range []struct {
		name  string
		code  int
		stdin string
		args  string
	}{
		{"pools", exitOK, "", "pools"},
		{"pools-json", exitOK, "", "pools -o json"},
		{"demand", exitOK, "", "demand"},
		{"demand-json", exitOK, "", "demand -o json"},
		{"runners", exitOK, "", "runners"},
		{"runners-pool", exitOK, "", "runners --pool deploy"},
		{"plugins", exitOK, "", "plugin list"},
		{"explain", exitOK, "", "explain linux"},
		{"explain-one", exitOK, "", "explain linux --limit 1 -o json"},
		{"explain-nothing", exitOK, "", "explain fresh"},
		{"explain-unknown", exitFailed, "", "explain linus"},
		{"why-not", exitOK, "", "why-not j-gpu"},
		{"why-not-unknown", exitFailed, "", "why-not j"},
		{"explain-job", exitOK, "", "explain-job j-gpu"},
		{"explain-job-json", exitOK, "", "explain-job j-gpu -o json"},
		{"explain-job-help", exitOK, "", "explain-job --help"},
		{"explain-job-unknown", exitFailed, "", "explain-job j"},
		{"jobs-list", exitOK, "", "jobs list"},
		{"jobs-list-limit", exitOK, "", "jobs list --limit 2 --state failed,pending"},
		{"jobs-list-refused", exitRefused, "", "jobs list --state rejected"},
		{"jobs-list-bad-state", exitUsage, "", "jobs list --state asleep"},
		{"jobs-show", exitOK, "", "jobs show done"},
		{"jobs-show-waits", exitOK, "", "jobs show waits"},
		{"jobs-show-json", exitOK, "", "jobs show fails -o json"},
		{"jobs-show-unknown", exitFailed, "", "jobs show none"},
		{"jobs-list-quarantined", exitOK, "", "jobs list --quarantined"},
		{"jobs-list-quarantined-state", exitUsage, "", "jobs list --quarantined --state failed"},
		{"jobs-show-quarantined", exitOK, "", "jobs show poison"},
		{"jobs-retry", exitOK, "", "jobs retry poison --reason fixed"},
		{"jobs-retry-refused", exitRefused, "", "jobs retry done"},
		{"jobs-retry-help", exitOK, "", "jobs retry --help"},
		{"jobs-cancel", exitOK, "", "jobs cancel a b"},
		{"jobs-cancel-unknown", exitFailed, "", "jobs cancel a none"},
		{"submit-one", exitOK, "", "jobs submit --script true --id one --tag linux --env A=b --time-limit 5s"},
		{"submit-file", exitOK, threeJobs, "jobs submit -"},
		{"submit-wait", exitFailed, threeJobs, "jobs submit - --wait"},
		{"submit-wait-json", exitFailed, threeJobs, "jobs submit - --wait -o json"},
		{"submit-refused", exitRefused, `{"id":"other","script":"x"}` + "\n" + `{"id":"too-many","script":"x"}` + "\n" + `{"id":"unsure","script":"x"}` + "\n" + `{"id":"done","script":"x"}`, "jobs submit - --wait"},
		{"submit-unsure", exitUnreachable, `{"id":"unsure","script":"x"}`, "jobs submit -"},
		{"submit-cut", exitUnreachable, threeJobs + `{"id":"breaks-the-stream","script":"x"}`, "jobs submit -"},
		{"submit-bad-file", exitUsage, "{}\n[]\n", "jobs submit -"},
		{"submit-bad-job", exitUsage, "", "jobs submit --script x --priority 12 --id a:b --env 1=2"},
		{"submit-both", exitUsage, "", "jobs submit f --script x"},
		{"submit-mixed", exitUsage, "", "jobs submit f --tag x"},
		{"submit-nothing", exitUsage, "", "jobs submit"},
		{"submit-no-file", exitUsage, "", "jobs submit no-such-file"},
		{"submit-bad-env", exitUsage, "", "jobs submit --script x --env A"},
		{"submit-wait-timeout-alone", exitUsage, "", "jobs submit --script x --wait-timeout 5s"},
		{"sources", exitOK, "", "sources"},
		{"sources-json", exitOK, "", "sources -o json"},
		{"priority-list", exitOK, "", "priority list"},
		{"priority-set", exitOK, "", "priority set linux 0"},
		{"priority-set-json", exitOK, "", "priority set linux 3 -o json"},
		{"priority-set-unknown", exitFailed, "", "priority set linus 3"},
		{"priority-set-bad", exitUsage, "", "priority set linux first"},
		{"priority-clear", exitOK, "", "priority clear linux"},
		{"admission-list", exitOK, "", "admission list"},
		{"admission-status", exitOK, "", "admission status"},
		{"admission-status-json", exitOK, "", "admission status -o json"},
		{"admission-help", exitOK, "", "admission --help"},
		{"cells-list", exitOK, "", "cells list"},
		{"cells-list-json", exitOK, "", "cells list -o json"},
		{"cells-help", exitOK, "", "cells --help"},
		{"coordinator-help", exitOK, "", "coordinator --help"},
		{"coordinator-pools", exitOK, "", "coordinator pools"},
		{"coordinator-pools-json", exitOK, "", "coordinator pools -o json"},
		{"coordinator-pools-help", exitOK, "", "coordinator pools --help"},
		{"coordinator-workers", exitOK, "", "coordinator workers"},
		{"coordinator-workers-json", exitOK, "", "coordinator workers --pool gpu -o json"},
		{"coordinator-register", exitOK, "", "coordinator register arm --tag arm64 --tag linux --min-idle 2 --max 7"},
		{"coordinator-register-again", exitRefused, "", "coordinator register gpu"},
		{"coordinator-register-help", exitOK, "", "coordinator register --help"},
		{"coordinator-unregister", exitOK, "", "coordinator unregister free"},
		{"coordinator-unregister-busy", exitRefused, "", "coordinator unregister gpu"},
		{"coordinator-unregister-unknown", exitFailed, "", "coordinator unregister none"},
		{"coordinator-unregister-nothing", exitUsage, "", "coordinator unregister"},
		{"job-help", exitOK, "", "job --help"},
		{"job-exec-help", exitOK, "", "job exec --help"},
		{"job-exec", exitOK, "typed\n", "job exec 1 -- echo -n 0"},
		{"job-exec-code", 77, "", "job exec 1 -- exit 77"},
		{"job-exec-tty", exitOK, "", "job exec 1 --tty on -- exit 0"},
		{"job-exec-idle", exitRefused, "", "job exec 1 -- idle"},
		{"job-exec-unknown", exitFailed, "", "job exec 2 -- true"},
		{"job-exec-ended", exitRefused, "", "job exec ended -- true"},
		{"job-exec-nothing", exitUsage, "", "job exec 1"},
		{"job-exec-bad-tty", exitUsage, "", "job exec 1 --tty maybe -- true"},
		{"job-find", exitOK, "", "job find 1"},
		{"job-find-json", exitOK, "", "job find 1 -o json"},
		{"job-find-unknown", exitFailed, "", "job find 2"},
		{"job-forward-bad", exitUsage, "", "job port-forward 1 80:x"},
		{"job-forward-nothing", exitUsage, "", "job port-forward 1"},
		{"job-forward-unknown", exitFailed, "", "job port-forward 2 80"},
		{"job-socket", exitOK, "typed\n", "job socket 1 step-runner"},
		{"job-socket-listen", exitUsage, "", "job socket 1 step-runner --listen /no/such/place"},
		{"demand-fingerprint", exitOK, "", "demand --fingerprint 0123456789ab"},
		{"help", exitOK, "", "--help"},
		{"submit-help", exitOK, "", "jobs submit --help"},
		{"usage-unknown-command", exitUsage, "", "polls"},
		{"usage-unknown-subcommand", exitUsage, "", "jobs ls"},
		{"usage-unknown-flag", exitUsage, "", "pools --wide"},
		{"usage-arguments", exitUsage, "", "explain"},
		{"usage-no-arguments", exitUsage, "", "pools linux"},
		{"usage-cancel-nothing", exitUsage, "", "jobs cancel"},
		{"usage-output", exitUsage, "", "pools -o yaml"},
		{"usage-timeout", exitUsage, "", "pools --timeout 0s"},
		{"usage-plaintext", exitUsage, "", "pools --plaintext --ca-file x"},
		{"usage-half-certificate", exitUsage, "", "pools --cert-file x"},
		{"usage-no-ca", exitUsage, "", "pools --ca-file no-such-file"},
		{"usage-limit", exitUsage, "", "jobs list --limit 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := ctl(t, addr, c.stdin, strings.Fields(c.args)...)
			got := strings.ReplaceAll(fmt.Sprintf("$ spillwayctl %s\n%s%sexit code %d\n", c.args, out, prefixed(errs), code), addr, "ADDR")
			require.Equal(t, c.code, code, got)
			golden(t, c.name, got)
			if strings.Contains(c.args, "json") {
				require.True(t, json.Valid([]byte(out)), out)
			}
			require.NotContains(t, out, "\x1b", "what others wrote must not steer the terminal")
		})
	}
}

// A machine is as silent, and was heard as long ago, as the control plane says: our clock
// may be another.
func TestRunnersAreJudgedByTheControlPlane(t *testing.T) {
	addr := start(t, &fakeJobs{})
	var ours, later bytes.Buffer
	for out, ahead := range map[*bytes.Buffer]time.Duration{&ours: 0, &later: time.Hour} {
		a := &app{stdout: out, stderr: io.Discard, getenv: only(addrVariable, addr), now: func() time.Time { return noon.Add(ahead) }}
		require.Equal(t, exitOK, a.run(t.Context(), []string{"runners"}))
	}
	require.NotEmpty(t, ours.String())
	require.Equal(t, ours.String(), later.String())
	require.Equal(t, noon, (&app{now: func() time.Time { return noon }}).asOf(nil), "one of before doesn't say")
}

func prefixed(stderr string) string {
	if stderr == "" {
		return ""
	}
	return "stderr| " + strings.ReplaceAll(strings.TrimSuffix(stderr, "\n"), "\n", "\nstderr| ") + "\n"
}

func TestWhatIsSubmittedArrives(t *testing.T) {
	jobs := &fakeJobs{}
	addr := start(t, jobs)
	code, _, errs := ctl(t, addr, "", "jobs", "submit", "--script", "echo $A", "--name", "N", "--tag", "a,b", "--tag", "c", "--protected",
		"--project", "7", "--priority", "3", "--env", "A=b=c", "--time-limit", "90s", "--no-retry")
	require.Equal(t, exitOK, code, errs)
	job := jobs.mu.pushed[0]
	require.Regexp(t, `^ctl-[a-z2-7]{16}$`, job.GetId())
	job.Id = "x"
	got, err := json.Marshal(job)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"x","name":"N","requirement":{"tags":["a","b","c"],"protected":true,"project":7},"priority":3,"script":"echo $A","env":{"A":"b=c"},"timeout":{"seconds":90},"no_retry":true}`, string(got))

	path := filepath.Join(t.TempDir(), "jobs.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(threeJobs), 0o600))
	code, out, errs := ctl(t, addr, "", "jobs", "submit", path)
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, "3 jobs submitted: 2 accepted, 1 duplicate\n", out)
	require.Len(t, jobs.mu.pushed, 4)
}

func TestLargeSubmissionIsWaitedForInParts(t *testing.T) {
	jobs := &fakeJobs{}
	addr := start(t, jobs)
	var b strings.Builder
	for i := range 2*maxIDs + 1 {
		fmt.Fprintf(&b, "{\"id\":\"j%d\",\"script\":\"true\"}\n", i)
	}
	code, out, errs := ctl(t, addr, b.String(), "jobs", "submit", "-", "--wait")
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, "2001 jobs submitted: 2001 accepted\n2001 jobs: 2001 completed\n", out)
	require.Equal(t, 3, jobs.mu.watches)
}

func TestWaitSurvivesARestartOfTheControlPlane(t *testing.T) {
	jobs := &fakeJobs{breakWatches: 2}
	addr := start(t, jobs)
	code, out, errs := ctl(t, addr, `{"id":"done","script":"true"}`, "jobs", "submit", "-", "--wait")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "1 job: 1 completed")
	require.Equal(t, 3, jobs.mu.watches)
}

func TestWaitTimeout(t *testing.T) {
	for _, early := range []bool{false, true} {
		addr := start(t, &fakeJobs{hang: true, early: early})
		// As long as two jobs may take to end and be told of, on a machine that stands still.
		code, out, errs := ctl(t, addr, threeJobs, "jobs", "submit", "-", "--wait", "--wait-timeout", "10s")
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, "1 of 3 jobs had not ended within 10s; they go on")
		require.Contains(t, out, "3 jobs: 1 completed, 1 failed, 1 running")
	}
}

func TestInterruptedWait(t *testing.T) {
	addr := start(t, &fakeJobs{hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(threeJobs), stdout: &out, stderr: writerFunc(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("2/3 ")) {
			cancel()
		}
		return errs.Write(p)
	}), getenv: only(addrVariable, addr), now: time.Now}
	require.Equal(t, exitFailed, a.run(ctx, []string{"jobs", "submit", "-", "--wait"}))
	require.Contains(t, errs.String(), "interrupted: 1 of 3 jobs had not ended; they go on")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestUnreachable(t *testing.T) {
	const addr = "127.0.0.1:1" // which nobody gets by chance
	for _, args := range []string{"pools", "jobs list", "jobs submit --script x", "explain x"} {
		code, out, errs := ctl(t, addr, "", strings.Fields(args)...)
		require.Equal(t, exitUnreachable, code, args)
		require.Empty(t, out)
		require.Equal(t, "spillwayctl: no control plane answers at "+addr+"; start one with `controlplane serve`, or say where it is with --addr or SPILLWAY_ADDR\n", errs)
	}
}

func TestNoAnswerInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	code, _, errs := ctl(t, "", "", "pools", "--addr", l.Addr().String(), "--timeout", "200ms")
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, errs, "did not answer within 200ms")
}

func TestSomethingElseAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer() // without our services
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	code, _, errs := ctl(t, l.Addr().String(), "", "pools")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "does not know this request")

	code, _, errs = ctl(t, l.Addr().String(), "", "pools", "--ca-file", authorityFile(t))
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, errs, "it does not speak TLS there")
	s.Stop()
	require.NoError(t, <-served)
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1234 * time.Millisecond: "1.2s", 59600 * time.Millisecond: "1m0s", 61 * time.Second: "1m1s",
		3*time.Hour + 4*time.Minute + 5*time.Second: "3h4m", 50 * time.Hour: "2d2h",
	} {
		require.Equal(t, want, human(d))
	}
}

func TestCompletionAndVersion(t *testing.T) {
	code, out, _ := ctl(t, "", "", "completion", "bash")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "spillwayctl")
	code, out, _ = ctl(t, "", "", "version")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "spillwayctl "+version)
	code, out, _ = ctl(t, "", "", "version", "-o", "json")
	require.Equal(t, exitOK, code)
	require.True(t, json.Valid([]byte(out)))
}
