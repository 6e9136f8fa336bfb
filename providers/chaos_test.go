package providers_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// kills is small for every day; 500 is the chaos run.
var kills = flag.Int("kills", 25, "how often TestC42_Chaos kills a plugin (from 500 on, it also bounds the host's memory) and, up to 100, TestC41 a host")

const (
	chaosKills      = 500
	maxRSSGrowthKiB = 20 << 10
)

// storm is a plugin under kill -9 with pools that scale out meanwhile, and another
// plugin beside it.
type storm struct {
	f        *fixture
	plugin   *providers.Plugin
	other    *providers.Plugin
	cloud    string // directory
	pools    []*stormPool
	ending   chan struct{}
	running  sync.WaitGroup
	lastDead int

	// Of the other plugin's calls.
	failed    error
	slowest   time.Duration
	undelayed int // began and ended while the plugin was down
}

// stormPool asks for one instance more at a time, as a scaler does: after a failure it
// looks before it asks again.
type stormPool struct {
	name      string
	group     *providers.Group
	asked     int          // SetDesired calls
	late      int          // of them those that failed and had been carried out
	confirmed atomic.Int64 // the desired that it knows of
	failed    error
}

func newStorm(t *testing.T, timing providers.Timing) *storm {
	t.Helper()
	s := &storm{f: newHost(t, timing), cloud: t.TempDir(), ending: make(chan struct{})}
	good := spec(t, "good")
	s.other = open(t, s.f, good)
	target := spec(t, "filecloud")
	target.Name, target.Config = "target", fileCloudConfig(t, s.cloud, 3*time.Millisecond)
	s.plugin = open(t, s.f, target)
	for i := range 3 {
		name := "pool-" + itoa(i)
		s.pools = append(s.pools, &stormPool{name: name, group: s.plugin.Group(name, name)})
	}
	for _, p := range s.pools {
		s.running.Go(func() { p.failed = p.scaleOut(s.ending) })
	}
	s.running.Go(s.watchTheOther)
	return s
}

func (p *stormPool) scaleOut(ending <-chan struct{}) error {
	for {
		select {
		case <-ending:
			return nil
		default:
		}
		before := int(p.confirmed.Load())
		p.asked++
		_, failed := p.group.SetDesired(context.Background(), before+1, before)
		if failed == nil {
			p.confirmed.Store(int64(before + 1))
			continue
		}
		if !errors.Is(failed, pluginsdk.ErrTransient) {
			return failed // a conflict, too: nobody else writes
		}
		now, err := p.look()
		if err != nil {
			return err
		}
		if now > before {
			p.late++
		}
		p.confirmed.Store(int64(now))
	}
}

func (p *stormPool) look() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		s, err := p.group.Status(ctx)
		if err == nil || ctx.Err() != nil {
			return s.Desired, err
		}
	}
}

func (s *storm) watchTheOther() {
	g := s.other.Group("other", "g")
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.ending:
			return
		case <-tick.C:
		}
		began, before := time.Now(), s.plugin.State()
		if _, s.failed = g.Status(context.Background()); s.failed != nil {
			return
		}
		s.slowest = max(s.slowest, time.Since(began))
		if before.PID == 0 && s.plugin.State().Since.Equal(before.Since) {
			s.undelayed++
		}
	}
}

// killAfterAWrite kills the plugin between a write and its answer.
func (s *storm) killAfterAWrite(t *testing.T) {
	t.Helper()
	pid := s.recovered(t)
	hold := filepath.Join(s.cloud, "hold")
	require.NoError(t, os.WriteFile(hold, nil, 0o600))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.cloud, "held"))
		return err == nil
	}, patience, time.Millisecond)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.NoError(t, os.Remove(hold))
	s.lastDead = pid
}

// kill kills the plugin n times, each time another process and in the middle of what
// the pools ask of it.
func (s *storm) kill(t *testing.T, n int) {
	t.Helper()
	for range n {
		pid := s.recovered(t)
		<-time.After(rand.N(20 * time.Millisecond))
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		s.lastDead = pid
	}
}

// recovered waits for the process after the one that was killed last.
func (s *storm) recovered(t *testing.T) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		pid = s.plugin.State().PID
		return pid != 0 && pid != s.lastDead
	}, patience, time.Millisecond)
	return pid
}

// end lets the pools come to rest and checks what must be true then.
func (s *storm) end(t *testing.T) {
	t.Helper()
	close(s.ending)
	s.running.Wait()
	pid := s.recovered(t)
	asked, launched, late := 0, 0, 0
	for _, p := range s.pools {
		require.NoError(t, p.failed, p.name)
		writes, err := writesOf(filepath.Join(s.cloud, p.name))
		require.NoError(t, err)
		for i, w := range writes {
			require.Equal(t, []int{i, i + 1}, []int{w.from, w.to}, "an instance was launched twice")
		}
		require.EqualValues(t, p.confirmed.Load(), len(writes), "the cloud has what the pool knows of")
		asked, launched, late = asked+p.asked, launched+len(writes), late+p.late
	}
	require.LessOrEqual(t, countLines(t, filepath.Join(s.cloud, "asked")), asked, "the host repeated a write")
	require.Positive(t, late, "no kill came between a write and its answer: the run shows nothing")
	require.NoError(t, s.failed)
	require.Positive(t, s.undelayed, "another plugin's calls waited for this one")
	require.Zero(t, s.other.State().Restarts)
	require.Equal(t, []int{pid}, processes("filecloud"), "exactly one process")
	require.Equal(t, []int{s.other.State().PID}, processes("good"))
	require.Eventually(t, func() bool { return len(zombies(t)) == 0 }, patience, time.Millisecond, "zombies")
	require.Eventually(t, func() bool { return len(socketDirs(t, s.f.dir)) == 2 }, patience, time.Millisecond, "stale sockets")
	t.Logf("%d writes asked for, %d launched, %d of them answered by a look; the other plugin answered %d calls meanwhile, the slowest of all in %v",
		asked, launched, late, s.undelayed, s.slowest.Round(time.Microsecond))
}

// TestC42_KilledDuringWrites: 20 kills; starts are spaced out as they go on.
func TestC42_KilledDuringWrites(t *testing.T) {
	timing := providers.Timing{Restart: 10 * time.Millisecond, Settle: 160 * time.Millisecond}
	s := newStorm(t, timing)
	s.killAfterAWrite(t)
	s.kill(t, 19)
	s.end(t)
	var waits, least []time.Duration
	var ready time.Time
	inARow := 0 // deaths of processes that certainly were not stable, and the first one
	for _, state := range s.f.states("target") {
		if state.Phase == providers.Ready {
			ready = state.Since
			continue
		}
		if state.Phase != providers.Restarting && state.Phase != providers.Broken {
			continue
		}
		if inARow++; state.Since.Sub(ready) >= timing.Settle { // the machine is busy
			inARow = 1
		}
		waits = append(waits, state.RetryAt.Sub(state.Since))
		least = append(least, leastWait(timing, inARow))
	}
	require.Len(t, waits, 20)
	require.Zero(t, waits[0], "the first restart comes at once")
	require.LessOrEqual(t, slices.Max(waits), timing.Settle)
	for i := range waits {
		require.GreaterOrEqual(t, waits[i], least[i], "the wait grows up to Settle: %v, not %v", waits, least)
	}
	require.Equal(t, 20, s.plugin.State().Restarts)
}

// leastWait is that after the nth death in a row: up to a fifth is taken off.
func leastWait(timing providers.Timing, n int) time.Duration {
	if n == 1 {
		return 0
	}
	return min(timing.Restart<<(n-2), timing.Settle) * 4 / 5
}

// TestC42_Chaos: any number of kills, restarted at once, leaves nothing behind:
// no double launch, orphan, zombie, socket, descriptor or memory.
func TestC42_Chaos(t *testing.T) {
	s := newStorm(t, providers.Timing{Settle: time.Nanosecond}) // every process was stable
	warmUp := max(5, *kills/10)
	s.killAfterAWrite(t)
	s.kill(t, warmUp-1)
	s.recovered(t)
	files, memory := openFiles(t), residentKiB(t)
	began := time.Now()
	s.kill(t, *kills)
	s.end(t)
	require.Equal(t, warmUp+*kills, s.plugin.State().Restarts)
	require.Eventually(t, func() bool { return openFiles(t) <= files }, patience, 10*time.Millisecond, "descriptors leak")
	growth := residentKiB(t) - memory
	t.Logf("%d kills in %v: %d descriptors before, %d after; the host grew by %d KiB",
		*kills, time.Since(began).Round(time.Millisecond), files, openFiles(t), growth)
	if *kills >= chaosKills {
		require.Less(t, growth, maxRSSGrowthKiB, "memory leaks [KiB]")
	}
}
