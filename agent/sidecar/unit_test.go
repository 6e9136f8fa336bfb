package sidecar_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/sidecar"
	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
)

// systemd is a systemctl that knows one unit, the runner, and notes what it is told.
type systemd struct{ dir string }

// installSystemd puts it before the machine's own. Where restarts is set, the unit is
// as gitlab-runner installs it: when its process is gone, it waits to be started again.
func installSystemd(t *testing.T, r *sidecartest.Runner, restarts bool) systemd {
	t.Helper()
	s := systemd{t.TempDir()}
	script := fmt.Sprintf(`#!/bin/sh
dir=%s pidfile=%s restarts=%t
verb=$1; shift
case $verb in show) ;; *) echo "$verb $*" >>$dir/told ;; esac
[ -e $dir/broken ] && { echo "Failed to connect to bus: Host is down" >&2; exit 1; }
pid=$(cat $pidfile 2>/dev/null) && kill -0 "$pid" 2>/dev/null || pid=0
[ "$pid" != 0 ] && grep -q ') Z ' /proc/$pid/stat && pid=0
case $verb in
show)
	state=active sub=running
	if [ $pid = 0 ]; then
		state=inactive sub=dead
		[ $restarts = true ] && [ ! -e $dir/stopped ] && state=activating sub=auto-restart
	fi
	load=loaded
	[ "$3" = gitlab-runner.service ] || load=not-found
	printf 'Restart=always\nMainPID=%%s\nLoadState=%%s\nActiveState=%%s\nSubState=%%s\nInvocationID=%%s\n' $pid $load $state $sub i$pid ;;
kill) [ -e $dir/denied ] && { echo "Access denied" >&2; exit 4; }; kill -QUIT $pid ;;
stop) : >$dir/stopped ;;
esac
`, s.dir, r.PIDFile(), restarts)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "systemctl"), []byte(script), 0o700))
	t.Setenv("PATH", s.dir+":"+os.Getenv("PATH"))
	return s
}

func (s systemd) put(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), nil, 0o600))
}

func (s systemd) told() []string {
	content, _ := os.ReadFile(filepath.Join(s.dir, "told"))
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

const (
	killed  = "kill --kill-who=main --signal=QUIT -- gitlab-runner.service"
	stopped = "stop -- gitlab-runner.service"
)

func asUnit(o *sidecar.Options) { o.Unit = "gitlab-runner.service" }

func TestAUnit(t *testing.T) {
	r := sidecartest.New(t)
	s := installSystemd(t, r, false)
	r.Start(t)
	r.Jobs(t, 1)
	w := watch(t, r, asUnit)
	w.until(t, "a job", has(1))
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "carried out", carriedOut(1))
	r.AwaitStory(t, "start", "QUIT")
	r.Jobs(t, 0)
	w.until(t, "gone", func(s sidecar.State) bool { return s.Gone && busy(s) == 0 })
	require.Equal(t, []string{killed}, s.told(), "only the main process: the others are its jobs")
}

// The unit that gitlab-runner installs has Restart=always: left alone, it would take
// jobs again in two minutes.
func TestAUnitThatSystemdWouldStartAgain(t *testing.T) {
	r := sidecartest.New(t)
	s := installSystemd(t, r, true)
	r.Start(t)
	w := watch(t, r, func(o *sidecar.Options) { asUnit(o); o.Restart = r.Shell() })
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	w.until(t, "gone", func(s sidecar.State) bool { return s.Order == 1 && s.Gone })
	w.look()
	require.Equal(t, []string{killed, stopped}, s.told(), "stopped once, and not before it was gone")
	w.Order(sidecar.Order{Number: 2})
	w.until(t, "it serves again", serving)
}

func TestAUnitThatWeMayNotSignal(t *testing.T) {
	r := sidecartest.New(t)
	s := installSystemd(t, r, false)
	s.put(t, "denied")
	r.Start(t)
	w := watch(t, r, asUnit)
	w.until(t, "it serves", serving)
	w.Order(sidecar.Order{Number: 1, Stop: true})
	state := w.until(t, "unhealthy", func(s sidecar.State) bool { return s.Unhealthy != "" })
	require.Contains(t, state.Unhealthy, "can't be told to stop: send SIGQUIT to the unit gitlab-runner.service")
	require.Contains(t, state.Unhealthy, "Access denied")
	require.False(t, state.Stopping)
	require.Zero(t, state.Order)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "denied")))
	w.until(t, "it is tried again", func(s sidecar.State) bool { return s.Gone && s.Unhealthy == "" })
}

func TestAUnitThatCanNotBeSeen(t *testing.T) {
	r := sidecartest.New(t)
	s := installSystemd(t, r, false)
	w := watch(t, r, func(o *sidecar.Options) { o.Unit = "another.service" })
	require.False(t, w.look().Gone, "a unit that systemd doesn't know tells nothing")

	s.put(t, "broken")
	w = watch(t, r, asUnit)
	state := w.look()
	require.False(t, state.Gone)
	require.Equal(t, 1, busy(state))
}
