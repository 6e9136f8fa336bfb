package minirunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Why a script was stopped.
var (
	errCanceled = errors.New("the job was canceled")
	errLost     = errors.New("GitLab has given the job up")
	errTimeout  = errors.New("the job took too long")
)

// run does one job: it says that it runs, runs it and reports how it ended.
func (r *Runner) run(ctx context.Context, job *payload) {
	log := r.o.Log.With("job", job.ID)
	// What is reported is reported also when the runner has to go.
	reporting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopReporting := context.AfterFunc(ctx, func() { time.AfterFunc(r.o.Times.FinalUpdateMost, cancel) })
	defer stopReporting()

	t := &trace{r: r, job: job}
	t.mu.touched = time.Now()
	switch v := t.put(reporting, update{State: "running"}); v {
	case giveUp:
		log.InfoContext(ctx, "the job is not ours any more")
		return
	case cancelled:
		t.finish(reporting, r.failure(job, "job_canceled", 0))
		return
	default: // also when it could not be said: the trace will tell
	}
	log.InfoContext(ctx, "job begun")
	_, _ = fmt.Fprintf(t, "Running with minirunner %s on %s %s\n", r.o.Version, r.o.Name, r.o.SystemID)
	end, report := r.runScript(ctx, reporting, t)
	if !report {
		log.InfoContext(ctx, "GitLab has given the job up")
		return
	}
	told := t.finish(reporting, end)
	log.InfoContext(ctx, "job ended", "state", end.State, "reason", end.FailureReason, "exit_code", end.ExitCode, "reported", told)
}

// runScript runs a job's script while its output is sent, and says what to report.
func (r *Runner) runScript(ctx, reporting context.Context, t *trace) (end update, report bool) {
	scripting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if timeout := time.Duration(t.job.RunnerInfo.Timeout) * time.Second; timeout > 0 {
		timer := time.AfterFunc(timeout, func() { stop(errTimeout) })
		defer timer.Stop()
	}
	done, followed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(followed)
		t.follow(reporting, done, func(v verdict) {
			if v == giveUp {
				stop(errLost)
				return
			}
			stop(errCanceled)
		})
	}()
	exitCode, err := r.script(scripting, t)
	cause := context.Cause(scripting)
	close(done)
	<-followed
	return r.judge(t, exitCode, err, cause)
}

func (r *Runner) judge(t *trace, exitCode int, err, cause error) (end update, report bool) {
	switch {
	case errors.Is(cause, errLost):
		return update{}, false
	case errors.Is(cause, errCanceled):
		_, _ = fmt.Fprintln(t, "ERROR: Job failed: canceled")
		return r.failure(t.job, "job_canceled", 0), true
	case errors.Is(cause, errTimeout):
		_, _ = fmt.Fprintln(t, "ERROR: Job failed: execution took too long")
		return r.failure(t.job, "job_execution_timeout", 0), true
	case cause != nil: // the runner has to go
		r.cut.Store(true)
		_, _ = fmt.Fprintln(t, "ERROR: Job failed (system failure): aborted")
		return r.failure(t.job, "runner_interrupted", 0), true
	case err != nil:
		_, _ = fmt.Fprintln(t, "ERROR: Job failed (system failure):", err)
		return r.failure(t.job, "runner_system_failure", 0), true
	case exitCode != 0:
		_, _ = fmt.Fprintln(t, "ERROR: Job failed: exit code", exitCode)
		return r.failure(t.job, "script_failure", exitCode), true
	default:
		_, _ = fmt.Fprintln(t, "Job succeeded")
		return update{State: "success"}, true
	}
}

// failure is the end of a job with a reason that GitLab knows.
func (*Runner) failure(job *payload, reason string, exitCode int) update {
	if known := job.Features.FailureReasons; len(known) > 0 && !slices.Contains(known, reason) {
		reason = "unknown_failure"
	}
	return update{State: "failed", FailureReason: reason, ExitCode: exitCode}
}

// script runs a job's script with sh in a directory of its own. When ctx ends its
// process group is stopped. An error means that it was not started.
func (r *Runner) script(ctx context.Context, t *trace) (exitCode int, err error) {
	dir, err := os.MkdirTemp(r.o.WorkDir, "job-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, ".script")
	if err := os.WriteFile(file, t.job.script(), 0o600); err != nil {
		return 0, err
	}
	// The kernel ends the script with the thread that started it (PR_SET_PDEATHSIG),
	// so that no script outlives a runner that was killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-e", file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, t, t
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CI=true", "CI_PROJECT_DIR=" + dir}, t.job.environment()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = r.o.Times.CancelGrace
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_ = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	return cmd.ProcessState.ExitCode(), nil
}

func (p *payload) script() []byte {
	var lines []string
	for _, step := range p.Steps {
		lines = append(lines, step.Script...)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

func (p *payload) environment() []string {
	var env []string
	for _, v := range p.Variables {
		env = append(env, v.Key+"="+v.Value)
	}
	return env
}
