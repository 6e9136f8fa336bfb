package providers_test

import (
	"context"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestC42_AKilledPluginAnswersAgain: the first restart comes at once.
func TestC42_AKilledPluginAnswersAgain(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "good"))
	g := p.Group("pool", "g")
	pid := p.State().PID

	killed := time.Now()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, err := g.Status(within(t, patience))
		return err == nil && p.State().PID != pid
	}, patience, time.Millisecond)
	t.Logf("good answer %v after the kill", time.Since(killed).Round(time.Millisecond))
	s := p.State()
	require.Equal(t, 1, s.Restarts)
	require.Contains(t, s.LastError, "signal: killed")
	require.Equal(t, []int{s.PID}, processes("good"))
}

func TestC42_APluginThatDiesInACall(t *testing.T) {
	for group, words := range map[string]string{"exit": "exit status 5", "panic": "panic: surprise"} {
		t.Run(group, func(t *testing.T) {
			f := newHost(t, providers.Timing{})
			p := open(t, f, spec(t, "good"))
			_, err := p.Group("a", group).SetDesired(within(t, patience), 3, 0)
			require.ErrorIs(t, err, pluginsdk.ErrTransient, "the outcome is unknown")
			_, err = p.Group("b", "g").ListInstances(within(t, patience))
			if err != nil { // the death was not noticed yet
				require.ErrorIs(t, err, pluginsdk.ErrTransient)
			}
			require.Eventually(t, func() bool {
				_, err := p.Group("b", "g").ListInstances(within(t, patience))
				return err == nil && p.State().Restarts == 1
			}, patience, 5*time.Millisecond)
			require.Contains(t, p.State().LastError, words)
		})
	}
}

// TestC42_AHopelessPluginOpensTheBreaker: its calls fail at once then, and other plugins go on.
func TestC42_AHopelessPluginOpensTheBreaker(t *testing.T) {
	f := newHost(t, providers.Timing{})
	s := spec(t, "good")
	healthy := s
	healthy.Config = []byte(`{"do":"well"}`)
	other := open(t, f, healthy)

	s.Config = []byte(`{"do":"refuse"}`) // hopeless at once: nobody waits for five deaths
	p, err := f.Start(s)
	require.NoError(t, err)
	require.Error(t, p.Ready(within(t, patience)))
	state := p.State()
	require.Equal(t, providers.Broken, state.Phase)
	require.Contains(t, state.LastError, "no such region")
	wait := state.RetryAt.Sub(state.Since)
	require.LessOrEqual(t, wait, time.Minute)
	require.GreaterOrEqual(t, wait, 48*time.Second, "a minute, unevenly")

	began := time.Now()
	_, err = p.Group("pool", "g").Status(within(t, patience))
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "broken")
	require.Less(t, time.Since(began), patience/2, "it waited")
	_, err = other.Group("pool", "g").Status(within(t, patience))
	require.NoError(t, err)
}

// killUntilItWaits kills p's processes until it waits for a restart, for longer than
// least: the first one comes at once.
func killUntilItWaits(t *testing.T, p *providers.Plugin, least time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		if s := p.State(); s.Phase == providers.Ready {
			_ = syscall.Kill(s.PID, syscall.SIGKILL)
		}
		s := p.State()
		return s.Phase == providers.Restarting && time.Until(s.RetryAt) > least
	}, patience, time.Millisecond)
}

// TestCallsWaitForARestartOnlyIfItCanHelp: a call can wait for a start that is due in a
// second, and not for one that is due in an hour.
func TestCallsWaitForARestartOnlyIfItCanHelp(t *testing.T) {
	s := spec(t, "good")
	p := open(t, newHost(t, providers.Timing{Restart: time.Hour, Settle: time.Hour}), s)
	killUntilItWaits(t, p, 2*patience)
	_, err := p.Group("a", "g").ListInstances(within(t, patience))
	require.ErrorContains(t, err, "restarting")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "it waited in vain")

	p = open(t, newHost(t, providers.Timing{}), s)
	killUntilItWaits(t, p, 0)
	_, err = p.Group("a", "g").ListInstances(within(t, patience))
	require.NoError(t, err)
}

// TestC43_AHungPluginIsRestarted: each call ends at its deadline; after three
// the process is killed. Pools of other plugins notice nothing.
func TestC43_AHungPluginIsRestarted(t *testing.T) {
	f := newHost(t, providers.Timing{Read: 150 * time.Millisecond, Write: 150 * time.Millisecond})
	p := open(t, f, spec(t, "good"))
	hung := p.Group("a", "hang")
	pid := p.State().PID
	for range 3 {
		_, err := hung.ListInstances(context.Background())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
	}
	require.Eventually(t, func() bool { return p.State().Restarts == 1 && p.State().Phase == providers.Ready }, patience, time.Millisecond)
	require.Contains(t, p.State().LastError, "3 calls in a row got no answer in time")
	require.False(t, aliveProcess(pid))
}

// TestC43_AStatusThatHangsCounts: the shared call has the callers' deadlines.
func TestC43_AStatusThatHangsCounts(t *testing.T) {
	f := newHost(t, providers.Timing{Read: 150 * time.Millisecond})
	p := open(t, f, spec(t, "good"))
	hung := p.Group("a", "hang")
	for range 3 {
		_, err := hung.Status(context.Background())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Eventually(t, func() bool { return p.State().Restarts == 1 }, patience, time.Millisecond)
}

func TestC43_ACallerThatGivesUpProvesNothing(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "good"))
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := p.Group("a", "slow").ListInstances(ctx)
		cancel()
		require.Error(t, err)
	}
	_, err := p.Group("a", "g").Status(within(t, patience))
	require.NoError(t, err)
	require.Zero(t, p.State().Restarts)
}

// TestC43_AStoppedPluginIsRestarted: nothing is called, but the pings fail.
func TestC43_AStoppedPluginIsRestarted(t *testing.T) {
	f := newHost(t, providers.Timing{Ping: 20 * time.Millisecond, PingAnswer: 500 * time.Millisecond})
	p := open(t, f, spec(t, "good"))
	pid := p.State().PID
	_ = syscall.Kill(pid, syscall.SIGSTOP) // on a busy machine its pings may have failed by now
	require.Eventually(t, func() bool { return p.State().Restarts >= 1 && p.State().Phase == providers.Ready }, patience, 5*time.Millisecond)
	require.Contains(t, p.State().LastError, "3 pings in a row failed")
	require.False(t, aliveProcess(pid))
}

func TestAStoppedPluginCanBeClosed(t *testing.T) {
	f := newHost(t, providers.Timing{Close: 100 * time.Millisecond, Kill: 200 * time.Millisecond})
	p := open(t, f, spec(t, "good"))
	require.NoError(t, syscall.Kill(p.State().PID, syscall.SIGSTOP))
	require.NoError(t, p.Close(context.Background()))
	requireNoProcess(t, "good")
}

// TestCloseInAHurry: the caller's end is the plugin's, which would answer nothing.
func TestCloseInAHurry(t *testing.T) {
	f := newHost(t, providers.Timing{Close: time.Hour, Kill: time.Hour})
	p := open(t, f, spec(t, "good"))
	require.NoError(t, syscall.Kill(p.State().PID, syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, p.Close(ctx), context.Canceled)
	requireNoProcess(t, "good")
}

// TestWhatAPluginStartedGoesWithIt: and what has left its group can't hold us up
// by keeping the outputs open.
func TestWhatAPluginStartedGoesWithIt(t *testing.T) {
	for config, escapes := range map[string]bool{`{"do":"grandchild"}`: false, `{"do":"grandchild in its own session"}`: true} {
		t.Run(config, func(t *testing.T) {
			f := newHost(t, providers.Timing{})
			s := spec(t, "good")
			s.Config = []byte(config)
			p := open(t, f, s)
			child := sleeper(t, f)
			t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })

			began := time.Now()
			require.NoError(t, p.Close(context.Background()))
			require.Less(t, time.Since(began), patience/2)
			if escapes {
				require.True(t, aliveProcess(child))
			} else {
				require.Eventually(t, func() bool { return !aliveProcess(child) }, patience, time.Millisecond)
			}
		})
	}
}

var sleeperPID = regexp.MustCompile(`sleeper (\d+)`)

func sleeper(t *testing.T, f *fixture) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		m := sleeperPID.FindStringSubmatch(f.log.String())
		if m != nil {
			pid, _ = strconv.Atoi(m[1])
		}
		return m != nil
	}, patience, time.Millisecond)
	return pid
}

// TestC42_RestartsLeaveNothingBehind: no goroutine, descriptor or socket.
func TestC42_RestartsLeaveNothingBehind(t *testing.T) {
	f := newHost(t, providers.Timing{})
	s := spec(t, "good")
	once := func() {
		p := open(t, f, s)
		pid := p.State().PID
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool { return p.State().Restarts == 1 && p.State().PID > 0 }, patience, time.Millisecond)
		require.NoError(t, p.Close(context.Background()))
	}
	once()                                                      // what is made once for all
	goroutines, files := runtime.NumGoroutine()+1, openFiles(t) // Eventually asks from a goroutine of its own
	for range 5 {
		once()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, patience, 10*time.Millisecond, "goroutines leak")
	require.Eventually(t, func() bool { return openFiles(t) <= files }, patience, 10*time.Millisecond, "descriptors leak")
	requireNoProcess(t, "good")
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestWatchGoesOnAfterARestart(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "good"))
	ctx, cancel := context.WithCancel(within(t, patience))
	notices := make(chan pluginsdk.Interruption, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- p.Watch(ctx, []string{"g"}, func(i pluginsdk.Interruption) { notices <- i })
	}()
	first := <-notices
	require.Equal(t, "g", first.Group, "notices about foreign groups are dropped")
	require.Equal(t, itoa(p.State().PID), first.InstanceID)
	require.NoError(t, syscall.Kill(p.State().PID, syscall.SIGKILL))
	second := <-notices
	require.NotEqual(t, first.InstanceID, second.InstanceID)
	cancel()
	require.NoError(t, <-ended)
}

func TestObserverSeesTheLifeOfAPlugin(t *testing.T) {
	var phases atomic.Pointer[[]providers.Phase]
	phases.Store(&[]providers.Phase{})
	host, err := providers.NewHost(providers.Options{Dir: shortDir(t), Timing: patiently(providers.Timing{}), Observer: providers.Observer{
		StateChanged: func(s providers.State) { // one goroutine: the supervisor's
			next := append(*phases.Load(), s.Phase)
			phases.Store(&next)
		},
	}})
	require.NoError(t, err)
	p, err := host.Open(within(t, patience), spec(t, "good"))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(p.State().PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return p.State().Restarts == 1 }, patience, time.Millisecond)
	require.NoError(t, host.Close(context.Background()))
	require.Equal(t, []providers.Phase{providers.Ready, providers.Restarting, providers.Ready, providers.Closed}, *phases.Load())
}
