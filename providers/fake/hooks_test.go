package fake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

func states(c *fake.Cloud, d time.Duration) (out []string) {
	for _, in := range c.List(at(d)) {
		out = append(out, in.ID+" "+string(in.State)+" "+string(in.Hook))
	}
	return out
}

func TestATerminatingHookHoldsWhatHasLeftTheNumber(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Initial, c.TerminationHook = 3, time.Hour }), start, 1)
	var seen []fake.Change
	c.Observe = func(ch fake.Change) { seen = append(seen, ch) }
	results, err := c.Remove(at(time.Second), []string{"i-0001"})
	require.NoError(t, err)
	require.Equal(t, pluginsdk.Removed, results[0].Outcome)
	require.Equal(t, 2, c.Desired())
	require.Equal(t, 3, c.Live(), "it bills")
	require.Equal(t, []string{"i-0001 deleting termination", "i-0002 running ", "i-0003 running "}, states(c, time.Second))
	results, err = c.Remove(at(time.Second), []string{"i-0001"})
	require.NoError(t, err)
	require.Equal(t, pluginsdk.AlreadyGone, results[0].Outcome)
	require.Equal(t, 2, c.Desired())

	require.NoError(t, c.CompleteHook(at(time.Minute), []string{"i-0001", "i-0002", "nobody"}))
	require.Equal(t, []string{"i-0002 running ", "i-0003 running "}, states(c, time.Minute))
	require.Equal(t, []fake.Change{
		{At: at(time.Second), Kind: fake.Held, ID: "i-0001", Cause: fake.ByName},
		{At: at(time.Minute), Kind: fake.Ended, ID: "i-0001", Cause: fake.ByName},
	}, seen)

	c.Kill(at(2*time.Minute), 1)
	require.Equal(t, 1, c.Desired())
	next, ok := c.NextChange(at(2 * time.Minute))
	require.True(t, ok)
	require.Equal(t, at(62*time.Minute), next)
	require.Equal(t, []string{"i-0003 running "}, states(c, 62*time.Minute), "a hook does not hold for ever")
	require.Equal(t, 1, c.Desired(), "it had left the number before")
}

func TestATerminatingHookDoesNotStopWhatTheCloudTakes(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Initial, c.TerminationHook = 1, time.Hour }), start, 1)
	_, ok := c.Interrupt(at(time.Second), 0, 2*time.Minute)
	require.True(t, ok)
	require.Len(t, states(c, 2*time.Minute), 1)
	require.Empty(t, states(c, 121*time.Second))
}

func TestALaunchingHookHoldsUntilItIsCompletedOrRunsOut(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.LaunchHook = 5 * time.Minute }), start, 1)
	_, err := c.SetDesired(start, 2, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"i-0001 creating launch", "i-0002 creating launch"}, states(c, 2*time.Minute), "up, and not in service")
	require.True(t, c.Status(at(2*time.Minute)).InTransition)
	require.NoError(t, c.CompleteHook(at(2*time.Minute), []string{"i-0001"}))
	require.Equal(t, []string{"i-0001 running ", "i-0002 creating launch"}, states(c, 2*time.Minute))
	require.Equal(t, []string{"i-0001 running "}, states(c, 5*time.Minute))
	require.Equal(t, 1, c.Desired(), "given up, and not replaced")
}

func TestWhatSomebodyKeepsIsNotRemoved(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Initial, c.Kept = 2, []string{"i-0001"} }), start, 1)
	id, ok := c.Keep(start, 1)
	require.True(t, ok)
	require.Equal(t, "i-0002", id)
	results, err := c.Remove(start, []string{"i-0001", "i-0002"})
	require.NoError(t, err)
	for _, r := range results {
		require.Equal(t, pluginsdk.NotRemoved, r.Outcome)
		require.ErrorIs(t, r.Err, pluginsdk.ErrInvalid)
	}
	require.True(t, c.List(start)[0].Kept)
	require.Equal(t, 2, c.Desired())
	_, ok = c.Keep(start, 2)
	require.False(t, ok)
}

func TestAHaltIsSaidAndRefuses(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Initial = 1
		c.Halts = []fake.Halt{{To: time.Minute, Launch: "no launch"}, {From: time.Minute, To: 2 * time.Minute, Removal: "no removal"}}
	}), start, 1)
	_, err := c.SetDesired(start, 2, 1)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.Equal(t, "no launch", c.Status(start).LaunchHalt)
	require.Empty(t, c.Status(start).RemovalHalt)
	_, err = c.Remove(at(time.Minute), []string{"i-0001"})
	require.ErrorContains(t, err, "no removal")
	require.ErrorContains(t, c.ReportUnhealthy(at(time.Minute), []string{"i-0001"}), "no removal")
	n, err := c.SetDesired(at(time.Minute), 2, 1)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, c.Status(at(2*time.Minute)).RemovalHalt)
}

func TestTheGroupReplacesWhatIsReportedUnhealthy(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Initial = 2 }), start, 1)
	id, ok := c.Break(start, 0)
	require.True(t, ok)
	require.True(t, c.List(start)[0].Unhealthy)
	require.NoError(t, c.ReportUnhealthy(start, []string{id, "nobody"}))
	require.Equal(t, 2, c.Desired())
	require.Equal(t, []string{"i-0002", "i-0003"}, ids(c.List(start)))
}

func TestAThrottleSaysWhenToAskAgain(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Errors = []fake.ErrorWindow{{To: time.Minute, Kind: pluginsdk.KindThrottled, Ratio: 1, Delivery: fake.ByCall, RetryAfter: 7 * time.Second}}
	}), start, 1)
	_, err := c.SetDesired(start, 1, 0)
	var e *pluginsdk.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 7*time.Second, e.RetryAfter)
}

func TestEveryBadHookAndHaltIsNamed(t *testing.T) {
	cfg := config(func(c *fake.Config) {
		c.LaunchHook, c.TerminationHook = -1, fake.MaxDuration+1
		c.Halts = []fake.Halt{{From: 2, To: 1, Launch: "x"}, {To: 1}}
		c.Errors = []fake.ErrorWindow{{To: 1, Kind: pluginsdk.KindThrottled, Delivery: fake.ByCall, RetryAfter: -1}}
	})
	for _, what := range []string{"launch_hook", "termination_hook", "halts[0]", "halts[1]", "retry_after"} {
		require.ErrorContains(t, cfg.Validate(), what)
	}
}

// Whatever happens, the group converges to its number, and what is being ended is
// not of it.
func TestTheNumberStandsForWhatServes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := fake.NewCloud(config(func(c *fake.Config) {
			c.Initial, c.Max, c.AutoReplace = 3, 6, rapid.Bool().Draw(t, "auto replace")
			c.TerminationHook = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "termination hook")
			c.LaunchHook = rapid.SampledFrom([]time.Duration{0, 2 * time.Minute}).Draw(t, "launch hook")
		}), start, 1)
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "s")) * time.Second) },
			"set": func(t *rapid.T) {
				_, err := c.SetDesired(now, rapid.IntRange(0, 6).Draw(t, "n"), c.Desired())
				require.NoError(t, err)
			},
			"remove": func(t *rapid.T) {
				if list := c.List(now); len(list) > 0 {
					_, err := c.Remove(now, []string{rapid.SampledFrom(ids(list)).Draw(t, "id")})
					require.NoError(t, err)
				}
			},
			"complete": func(*rapid.T) { require.NoError(t, c.CompleteHook(now, ids(c.List(now)))) },
			"report": func(t *rapid.T) {
				if list := c.List(now); len(list) > 0 {
					require.NoError(t, c.ReportUnhealthy(now, []string{rapid.SampledFrom(ids(list)).Draw(t, "id")}))
				}
			},
			"kill":      func(t *rapid.T) { c.Kill(now, rapid.IntRange(0, 9).Draw(t, "nth")) },
			"interrupt": func(t *rapid.T) { c.Interrupt(now, rapid.IntRange(0, 9).Draw(t, "nth"), 2*time.Minute) },
			"": func(t *rapid.T) {
				serving := 0
				for _, in := range c.List(now) {
					if in.State != pluginsdk.StateDeleting {
						serving++
					}
				}
				require.GreaterOrEqual(t, serving, c.Desired(), "nothing that was asked for is missing: this cloud fills at once")
			},
		})
	})
}
