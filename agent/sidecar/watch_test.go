package sidecar_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/sidecar"
	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
)

const (
	within = 80 * time.Second // of what happens at once on an idle machine
	every  = 100 * time.Millisecond
)

// watched is a watch that runs.
type watched struct {
	*sidecar.Watch
	end  context.CancelFunc
	done chan struct{}
}

func watch(t *testing.T, r *sidecartest.Runner, change func(*sidecar.Options)) *watched {
	t.Helper()
	o := sidecar.Options{Metrics: r.Metrics(), Every: every, StopGrace: time.Minute}
	change(&o)
	w, err := sidecar.Open(o)
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	run := &watched{Watch: w, end: end, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		end()
		<-run.done
	})
	return run
}

// until waits for a state.
func (w *watched) until(t *testing.T, what string, is func(sidecar.State) bool) sidecar.State {
	t.Helper()
	timeout := time.After(within)
	var last sidecar.State
	for {
		select {
		case last = <-w.States():
			if is(last) {
				return last
			}
		case <-timeout:
			require.FailNow(t, what, "last: %+v", last)
		}
	}
}

// look waits for the state after the next whole look.
func (w *watched) look() sidecar.State {
	<-w.States() // it may have been made before
	<-w.States()
	return <-w.States()
}

func busy(s sidecar.State) int { return s.BusyAt(time.Now()) }

func serving(s sidecar.State) bool { return s.Capacity == 3 && busy(s) == 0 && !s.Stopping }

func carriedOut(number uint64) func(sidecar.State) bool {
	return func(s sidecar.State) bool { return s.Order == number }
}

// has is a state in which the metrics named n jobs.
func has(n int) func(sidecar.State) bool {
	return func(s sidecar.State) bool { return busy(s) == n && s.Busy == n && !s.SeenAt.IsZero() }
}

// ours is a runner that the sidecar starts.
func ours(r *sidecartest.Runner) func(*sidecar.Options) {
	return func(o *sidecar.Options) { o.Exec = r.Command() }
}

// theirs is one that runs already.
func theirs(r *sidecartest.Runner) func(*sidecar.Options) {
	return func(o *sidecar.Options) { o.PIDFile = r.PIDFile() }
}

func TestB1_WhatARunnerSays(t *testing.T) {
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	s := w.until(t, "it serves", serving)
	require.False(t, s.Gone)
	require.Empty(t, s.Unhealthy)
	r.Jobs(t, 2)
	w.until(t, "two jobs", has(2))
	r.Jobs(t, 0)
	w.until(t, "none", serving)
}

func TestAnIdleRunnerEndsAtOnce(t *testing.T) {
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "carried out", carriedOut(1))
	s := w.until(t, "gone", func(s sidecar.State) bool { return s.Gone })
	require.True(t, s.Stopping)
	require.Zero(t, busy(s))
	require.Empty(t, s.Unhealthy)
	require.Equal(t, []string{"start", "QUIT", "end"}, r.Story())
}

func TestABusyRunnerEndsWithItsJobs(t *testing.T) {
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	r.Jobs(t, 2)
	w.until(t, "two jobs", has(2))
	w.Order(sidecar.Order{Number: 1, Stop: true})
	s := w.until(t, "carried out", carriedOut(1))
	require.True(t, s.Stopping && !s.Gone)
	require.Equal(t, 2, busy(s))
	r.AwaitStory(t, "start", "QUIT")
	r.Jobs(t, 1)
	w.until(t, "one job", has(1))
	r.Jobs(t, 0)
	s = w.until(t, "gone", func(s sidecar.State) bool { return s.Gone })
	require.Zero(t, busy(s))
	require.Equal(t, []string{"start", "QUIT", "end"}, r.Story(), "told once")
}

// After SIGQUIT a runner may still be handed a job that it had asked for, and says so
// in its metrics only later. Until its process is gone it may have one.
func TestC12_NoJobInTheMetricsOfAStoppingRunnerIsNotIdle(t *testing.T) {
	r := sidecartest.New(t)
	r.Stay(t, true)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	s := w.until(t, "carried out", carriedOut(1))
	require.False(t, s.Gone)
	require.Equal(t, 1, busy(s))
	r.Stay(t, false)
	s = w.until(t, "gone", func(s sidecar.State) bool { return s.Gone })
	require.Zero(t, busy(s))
}

func TestADrainThatIsTakenBackStartsARunnerThatIsOursAgain(t *testing.T) {
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	r.Jobs(t, 1)
	w.until(t, "a job", has(1))
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "carried out", carriedOut(1))
	w.Order(sidecar.Order{Number: 2})
	s := w.until(t, "taken back", carriedOut(2))
	require.True(t, s.Stopping, "nothing calls a runner back that was told to stop")
	require.Equal(t, 1, busy(s))
	first := r.PID()
	r.Jobs(t, 0)
	w.until(t, "it serves again", serving)
	require.NotEqual(t, first, r.PID())
	require.Equal(t, []string{"start", "QUIT", "end", "start"}, r.Story())

	w.Order(sidecar.Order{Number: 3, Stop: true})
	w.until(t, "told again", func(s sidecar.State) bool { return s.Order == 3 && s.Gone })
	require.Equal(t, []string{"start", "QUIT", "end", "start", "QUIT", "end"}, r.Story(), "the next process is another one, and told too")
}

func TestARunnerOfSomebodyElse(t *testing.T) {
	r := sidecartest.New(t)
	r.Start(t)
	r.Jobs(t, 1)
	w := watch(t, r, theirs(r))
	w.until(t, "a job", has(1))
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "carried out", carriedOut(1))
	r.Jobs(t, 0)
	w.until(t, "gone", func(s sidecar.State) bool { return s.Gone && busy(s) == 0 })
	w.Order(sidecar.Order{Number: 2})
	s := w.until(t, "taken back", carriedOut(2))
	require.True(t, s.Stopping, "nobody said how it is started: it stays as it is")
	require.Empty(t, s.Unhealthy)
	require.True(t, w.look().Stopping)
	require.Equal(t, []string{"start", "QUIT", "end"}, r.Story())

	r.Start(t) // somebody did
	s = w.until(t, "it serves", serving)
	require.False(t, s.Stopping)
}

func TestARestartCommand(t *testing.T) {
	r := sidecartest.New(t)
	r.Start(t)
	w := watch(t, r, func(o *sidecar.Options) { o.PIDFile, o.Restart = r.PIDFile(), r.Shell() })
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "gone", func(s sidecar.State) bool { return s.Gone && s.Order == 1 })
	w.Order(sidecar.Order{Number: 2})
	w.until(t, "it serves again", serving)
	require.Equal(t, []string{"start", "QUIT", "end", "start"}, r.Story())
}

func TestARestartCommandThatFails(t *testing.T) {
	r := sidecartest.New(t)
	r.Start(t)
	w := watch(t, r, func(o *sidecar.Options) { o.PIDFile, o.Restart = r.PIDFile(), "echo no such unit >&2; exit 5" })
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "gone", func(s sidecar.State) bool { return s.Gone && s.Order == 1 })
	w.Order(sidecar.Order{Number: 2})
	s := w.until(t, "unhealthy", func(s sidecar.State) bool { return s.Unhealthy != "" })
	require.Equal(t, "the runner was not started again: start the runner: /bin/sh: exit status 5: no such unit", s.Unhealthy)
	require.True(t, s.Stopping)
}

func TestARunnerThatEndsThoughNobodyToldItTo(t *testing.T) {
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	process, err := os.FindProcess(r.PID())
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	s := w.until(t, "unhealthy", func(s sidecar.State) bool { return s.Unhealthy != "" })
	require.Contains(t, s.Unhealthy, "not running")
	require.True(t, s.Gone && !s.Stopping)
	require.Zero(t, busy(s))
	w.Order(sidecar.Order{Number: 1, Stop: true})
	s = w.until(t, "nothing is left to be told", carriedOut(1))
	require.True(t, s.Stopping)
	require.Empty(t, s.Unhealthy)
}

func TestARunnerThatCanNotBeStarted(t *testing.T) {
	r := sidecartest.New(t)
	file := filepath.Join(t.TempDir(), "no-program")
	require.NoError(t, os.WriteFile(file, []byte("\x00"), 0o700))
	w := watch(t, r, func(o *sidecar.Options) { o.Exec = []string{file} })
	s := w.until(t, "unhealthy", func(s sidecar.State) bool { return s.Unhealthy != "" })
	require.Contains(t, s.Unhealthy, "the runner was not started")
}

// A number in an old file may be anybody's by now: that process is neither taken for
// the runner nor told anything.
func TestTheNumberOfADeadRunner(t *testing.T) {
	r := sidecartest.New(t)
	other := exec.Command("sleep", "1000")
	require.NoError(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	file := filepath.Join(t.TempDir(), "pid")
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(other.Process.Pid)), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file, old, old))
	w := watch(t, r, func(o *sidecar.Options) { o.PIDFile = file })
	w.until(t, "gone", func(s sidecar.State) bool { return s.Gone })
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "carried out", carriedOut(1))
	require.NoError(t, other.Process.Signal(syscall.Signal(0)), "it lives")
}

// Metrics that answer are of a runner, wherever its process is looked for.
func TestARunnerThatIsLookedForInTheWrongPlace(t *testing.T) {
	r := sidecartest.New(t)
	r.Start(t)
	for name, file := range map[string]string{"no file": "", "no number": "nonsense", "init": "1"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pid")
			if file != "" {
				require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
			}
			r.Jobs(t, 1)
			w := watch(t, r, func(o *sidecar.Options) { o.PIDFile = path })
			w.until(t, "a job", func(s sidecar.State) bool { return busy(s) == 1 && !s.Gone })
			w.Order(sidecar.Order{Number: 1, Stop: true})
			for range 3 {
				s := w.look()
				require.False(t, s.Gone || s.Stopping, "%+v", s)
				require.Zero(t, s.Order, "nobody was told")
			}
			// One that is busy may leave a question unanswered: that is no proof that it is gone.
			r.Serve(t, "<html>")
			for range 3 {
				s := w.look()
				require.False(t, s.Gone || s.Stopping, "%+v", s)
				require.Zero(t, s.Order)
			}
			r.Serve(t, "")
		})
	}
	require.Equal(t, []string{"start"}, r.Story())
}

// What is ours is gone when Run returns, whatever it says to SIGTERM.
func TestARunnerThatIsOursEndsWithUs(t *testing.T) {
	r := sidecartest.New(t)
	r.Jobs(t, 1)
	w := watch(t, r, ours(r))
	w.until(t, "a job", has(1))
	w.end()
	<-w.done
	require.Zero(t, r.PID())
	require.Equal(t, []string{"start", "TERM", "end"}, r.Story())

	stubborn := filepath.Join(t.TempDir(), "stubborn")
	started := filepath.Join(t.TempDir(), "started")
	script := fmt.Sprintf("#!/bin/sh\ntrap '' TERM\n: >%s\nwhile :; do sleep 0.05; done\n", started)
	require.NoError(t, os.WriteFile(stubborn, []byte(script), 0o700))
	w = watch(t, r, func(o *sidecar.Options) { o.Exec, o.StopGrace = []string{stubborn}, 50*time.Millisecond })
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, within, time.Millisecond)
	w.end()
	<-w.done // SIGKILL
}

func TestARunnerOfSomebodyElseGoesOn(t *testing.T) {
	r := sidecartest.New(t)
	r.Start(t)
	w := watch(t, r, theirs(r))
	w.until(t, "it serves", serving)
	w.end()
	<-w.done
	require.NotZero(t, r.PID())
	require.Equal(t, []string{"start"}, r.Story())
}

// A job of the runner could read its environment.
func TestTheRunnerDoesNotGetOurToken(t *testing.T) {
	t.Setenv("SPILLWAY_RUNNER_TOKEN", "a-secret")
	t.Setenv("SPILLWAY_TEST_OTHER", "no-secret")
	r := sidecartest.New(t)
	w := watch(t, r, ours(r))
	w.until(t, "it serves", serving)
	require.NotContains(t, r.Environment(), "a-secret")
	require.Contains(t, r.Environment(), "no-secret")
}
