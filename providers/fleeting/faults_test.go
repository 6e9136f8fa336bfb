package fleeting_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting"
)

// What dies comes back, is initialized again, and finds its instances as they were.
func TestKilledPluginIsStartedAgainAndAdopts(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	_, err := set(t, p, 3, 0)
	require.NoError(t, err)
	ids := awaitRunning(t, p, 3)

	pids := children(t, os.Getpid())
	require.Len(t, pids, 1)
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	require.Eventually(t, func() bool { return status(t, p).Err == nil && s.read().Inits == 2 }, within, poll)

	require.Equal(t, ids, awaitRunning(t, p, 3))
	require.Equal(t, 3, status(t, p).Desired)
	require.Len(t, children(t, os.Getpid()), 1)
	require.Equal(t, 1, s.read().Calls, "nothing was asked for again")
}

// A provider that is new finds what is there, deletes nothing and launches nothing.
func TestNewProviderAdopts(t *testing.T) {
	s := newStand(t, "stream")
	s.change(func(c *cloud) {
		c.Trees = []tree{{ID: "old-1", Phase: "running"}, {ID: "old-2", Phase: "creating"}, {ID: "old-3", Phase: "deleting"}}
	})
	p := s.provider()
	require.Equal(t, 2, status(t, p).Desired, "what is deleting doesn't count")
	require.Equal(t, []string{"old-1", "old-2"}, awaitRunning(t, p, 2))
	list, err := p.ListInstances(t.Context(), group)
	require.NoError(t, err)
	require.Zero(t, list[0].LaunchedAt, "nobody knows when it was launched")
}

func TestCrashInIncrease(t *testing.T) {
	for name, c := range map[string]struct {
		late    bool
		planted int
	}{"before anything was done": {false, 0}, "after it was carried out": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, "")
			p := s.provider()
			s.change(func(in *cloud) { in.Faults = faults{CrashIn: "Increase", CrashLate: c.late} })
			_, err := set(t, p, 2, 0)
			require.ErrorIs(t, err, pluginsdk.ErrTransient)
			require.ErrorContains(t, err, "a branch broke in Increase", "the last words say why")
			require.ErrorContains(t, err, "exit status 7")

			// Nobody knows what it did: it counts until the list or the time tells.
			require.Equal(t, 2, status(t, p).Desired)
			_, err = set(t, p, 2, 0)
			require.NoError(t, err, "asking again launches nothing twice")
			require.Equal(t, c.planted, s.read().Planted)
		})
	}
}

func TestHungDecreaseHitsItsDeadline(t *testing.T) {
	s := newStand(t, "")
	s.conf["deadlines"] = map[string]any{"decrease": "300ms"}
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	ids := awaitRunning(t, p, 2)

	before := children(t, os.Getpid())
	s.change(func(c *cloud) { c.Faults.HangIn = "Decrease" })
	for range 3 {
		_, err = p.Remove(t.Context(), group, ids[:1], "")
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.ErrorContains(t, err, "Decrease: no answer within 300ms")
	}
	require.Empty(t, children(t, os.Getpid()), "three in a row, and it counts as hung")
	s.change(func(c *cloud) { c.Faults = faults{} })
	require.Equal(t, 2, status(t, p).Desired)
	require.NotEqual(t, before, children(t, os.Getpid()))
	var results []pluginsdk.RemoveResult
	require.Eventually(t, func() bool { // on a busy machine, what was carried out may be late, too
		results, err = p.Remove(t.Context(), group, ids[:1], "")
		return err == nil
	}, within, poll)
	require.Len(t, results, 1)
	require.Contains(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.AlreadyGone}, results[0].Outcome)
	require.Equal(t, ids[1:], awaitRunning(t, p, 1))
}

func TestPartialDecrease(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	_, err := set(t, p, 3, 0)
	require.NoError(t, err)
	ids := awaitRunning(t, p, 3)
	s.change(func(c *cloud) { c.Faults.FellOne = true })
	results, err := p.Remove(t.Context(), group, []string{ids[0], "nobody", ids[1], ids[0]}, "")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.AlreadyGone, pluginsdk.NotRemoved, pluginsdk.AlreadyGone}, outcomes(results))
	require.ErrorIs(t, results[2].Err, pluginsdk.ErrTransient)
	require.ErrorContains(t, results[2].Err, "1 of 2 trees stand")
	require.Equal(t, 2, status(t, p).Desired)
}

func outcomes(results []pluginsdk.RemoveResult) (all []pluginsdk.RemoveOutcome) {
	for _, r := range results {
		all = append(all, r.Outcome)
	}
	return all
}

// A Decrease that nothing comes of: the instance counts again in the end, and not before.
func TestStuckDecrease(t *testing.T) {
	stuck := func(t *testing.T, timeout string) *fleeting.Provider {
		s := newStand(t, "")
		s.conf["remove_timeout"] = timeout
		p := s.provider()
		_, err := set(t, p, 1, 0)
		require.NoError(t, err)
		ids := awaitRunning(t, p, 1)
		s.change(func(c *cloud) { c.Faults.Stuck = true })
		_, err = p.Remove(t.Context(), group, ids, "")
		require.NoError(t, err)
		return p
	}
	before := stuck(t, "1h")
	for range 3 {
		require.Equal(t, 0, status(t, before).Desired)
	}
	after := stuck(t, "200ms")
	require.Eventually(t, func() bool { return status(t, after).Desired == 1 }, within, poll)
}

func TestUpdateErrorChangesNothing(t *testing.T) {
	const secret = "a-token-that-nobody-may-see"
	s := newStand(t, "")
	s.conf["plugin_config"] = map[string]any{"cloud": s.path, "auth": map[string]any{"token": secret}}
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	awaitRunning(t, p, 2)
	s.change(func(c *cloud) {
		c.Faults = faults{FailIn: "Update", FailWith: "quota exceeded for \x1b[1m" + secret + strings.Repeat("!", 1000)}
	})
	require.Eventually(t, func() bool { return status(t, p).Err != nil }, within, poll)
	err = status(t, p).Err
	require.ErrorIs(t, err, pluginsdk.ErrTransient, "whatever the text says")
	require.ErrorContains(t, err, "Update: the plugin says: quota exceeded for")
	require.NotContains(t, err.Error(), secret)
	require.NotContains(t, err.Error(), "\x1b")
	require.Less(t, len(err.Error()), 700)
	_, err = set(t, p, 5, 2)
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	_, err = p.ListInstances(t.Context(), group)
	require.ErrorIs(t, err, pluginsdk.ErrTransient, "an old list is no list")
	s.change(func(c *cloud) { c.Faults = faults{} })
	require.Equal(t, 2, status(t, p).Desired)
	require.Equal(t, 1, s.read().Calls)
}

// What was accepted counts once, before and after it is listed.
func TestAcceptedAndNotListedYet(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	s.change(func(c *cloud) { c.Faults.Lag = 3 })
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		require.Equal(t, 2, status(t, p).Desired)
		list, err := p.ListInstances(t.Context(), group)
		return err == nil && len(list) == 2
	}, within, poll)
	require.Equal(t, 2, status(t, p).Desired)
}

func TestAcceptedAndNeverListed(t *testing.T) {
	s := newStand(t, "")
	s.conf["fill_timeout"] = "150ms"
	p := s.provider()
	s.change(func(c *cloud) { c.Faults.Lag = 1_000_000 })
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return status(t, p).Desired == 0 }, within, poll)
	failures := status(t, p).Failures
	require.Len(t, failures, 1)
	require.Equal(t, pluginsdk.KindCapacity, failures[0].Kind)
	require.Contains(t, failures[0].Message, "accepted 2 instances that were never listed")
	require.Equal(t, failures, status(t, p).Failures, "each is counted once")
}

func TestIncreaseAcceptsFewer(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	s.change(func(c *cloud) { c.Faults.TakeFewer = 1 })
	got, err := set(t, p, 3, 0)
	require.NoError(t, err)
	require.Equal(t, 2, got)
	require.Equal(t, pluginsdk.KindCapacity, status(t, p).Failures[0].Kind)
	s.change(func(c *cloud) { c.Faults.TakeFewer = 9 })
	_, err = set(t, p, 3, 2)
	require.ErrorIs(t, err, pluginsdk.ErrCapacity)
	require.Equal(t, 2, status(t, p).Desired)
}

func TestDesiredIsOnlyRaised(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	awaitRunning(t, p, 2)
	_, err = set(t, p, 1, 2)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = set(t, p, 1, 1)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	_, err = set(t, p, 7, 2)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid, "max is 6")
	require.Equal(t, 1, s.read().Calls)
}

// The lower of max and what the plugin allows counts.
func TestPluginsOwnMax(t *testing.T) {
	s := newStand(t, "")
	s.conf["plugin_config"] = map[string]any{"cloud": s.path, "max": 2}
	p := s.provider()
	require.Equal(t, 2, status(t, p).Max)
	_, err := set(t, p, 3, 0)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}

// An instance that somebody took counts until it was missing for a while.
func TestVanishedInstance(t *testing.T) {
	s := newStand(t, "")
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	awaitRunning(t, p, 2)
	s.change(func(c *cloud) { c.Trees = c.Trees[1:] })
	awaitRunning(t, p, 1)
	require.Equal(t, 1, status(t, p).Desired)
}

func TestTimedOutInstance(t *testing.T) {
	s := newStand(t, "string-state")
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	ids := awaitRunning(t, p, 2)
	s.change(func(c *cloud) { c.Trees[0].Phase, c.Trees[1].Phase = "timeout", "rusty" })
	require.Eventually(t, func() bool { return status(t, p).Desired == 1 }, within, poll)
	list, err := p.ListInstances(t.Context(), group)
	require.NoError(t, err)
	require.Equal(t, pluginsdk.StateDeleting, list[0].State)
	require.True(t, list[0].Unhealthy, "it may still exist")
	require.Equal(t, pluginsdk.StateUnknown, list[1].State, "a state that nobody knows counts as running")
	require.Equal(t, "timeout/"+ids[0], status(t, p).Failures[0].ID)
	found, err := p.Findings(t.Context(), []string{group})
	require.NoError(t, err)
	var codes []string
	for _, f := range found {
		codes = append(codes, f.Code)
	}
	require.Equal(t, []string{"binary_not_pinned", "unknown_states", "timed_out_instances"}, codes)
}

func TestHeartbeats(t *testing.T) {
	s := newStand(t, "")
	s.conf["heartbeat_interval"] = "10ms"
	p := s.provider()
	_, err := set(t, p, 2, 0)
	require.NoError(t, err)
	ids := awaitRunning(t, p, 2)
	s.change(func(c *cloud) { c.Faults.Sick = ids[1] })
	sick := func() (sick []string) {
		list, err := p.ListInstances(t.Context(), group)
		require.NoError(t, err)
		for _, in := range list {
			if in.Unhealthy {
				sick = append(sick, in.ID)
			}
		}
		return sick
	}
	require.Eventually(t, func() bool { return len(sick()) == 1 }, within, poll)
	require.Equal(t, ids[1:], sick())
	require.Equal(t, 2, status(t, p).Desired, "a sick one is there all the same")
	s.change(func(c *cloud) { c.Faults.Sick = "" })
	require.Eventually(t, func() bool { return len(sick()) == 0 }, within, poll)
}
