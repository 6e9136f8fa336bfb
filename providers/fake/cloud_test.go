package fake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func config(change func(*fake.Config)) fake.Config {
	cfg := fake.Defaults()
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func ids(list []pluginsdk.Instance) []string {
	var out []string
	for _, in := range list {
		out = append(out, in.ID)
	}
	return out
}

func TestInstanceBootsAndRegisters(t *testing.T) {
	c := fake.NewCloud(config(nil), start, 1)
	var seen []fake.Change
	c.Observe = func(ch fake.Change) { seen = append(seen, ch) }
	n, err := c.SetDesired(at(5*time.Second), 2, 0)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	next, ok := c.NextChange(at(6 * time.Second))
	require.True(t, ok)
	require.Equal(t, at(65*time.Second), next)
	require.True(t, c.Status(at(64*time.Second)).InTransition)
	require.Equal(t, pluginsdk.StateCreating, c.List(at(64 * time.Second))[0].State)
	require.Equal(t, pluginsdk.StateRunning, c.List(at(65 * time.Second))[0].State)
	require.False(t, c.Status(at(65*time.Second)).InTransition)
	require.Len(t, seen, 4)
	require.Equal(t, fake.Change{At: at(65 * time.Second), Kind: fake.Ready, ID: "i-0001", Registers: true}, seen[2])
	_, ok = c.NextChange(at(66 * time.Second))
	require.False(t, ok, "nothing more happens by itself")
}

func TestSetDesiredKeepsTheContract(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Min, c.Max, c.Initial = 1, 5, 2 }), start, 1)
	n, err := c.SetDesired(start, 2, 7)
	require.NoError(t, err, "already there: no write and no conflict")
	require.Equal(t, 2, n)
	_, err = c.SetDesired(start, 4, 1)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	var e *pluginsdk.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 2, e.Observed)
	for _, bad := range []int{0, 6} {
		_, err = c.SetDesired(start, bad, 2)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	}
	require.Equal(t, 2, c.Status(start).Desired)
	n, err = c.SetDesired(start, 5, 2)
	require.NoError(t, err)
	require.Equal(t, 5, n)
}

func TestRemoveDecrementsOncePerInstance(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Min, c.Initial = 1, 3 }), start, 1)
	res, err := c.Remove(start, []string{"i-0002", "i-0002", "i-9999", "i-0001", "i-0003"})
	require.NoError(t, err)
	var outcomes []pluginsdk.RemoveOutcome
	for _, r := range res {
		outcomes = append(outcomes, r.Outcome)
	}
	require.Equal(t, []pluginsdk.RemoveOutcome{
		pluginsdk.Removed, pluginsdk.AlreadyGone, pluginsdk.AlreadyGone, pluginsdk.Removed, pluginsdk.NotRemoved,
	}, outcomes)
	require.ErrorIs(t, res[4].Err, pluginsdk.ErrInvalid, "the group's min is 1")
	require.Equal(t, []string{"i-0003"}, ids(c.List(start)))
	require.Equal(t, 1, c.Desired())
}

func TestNeverRegister(t *testing.T) {
	registers := func(cfg fake.Config) (out []bool) {
		c := fake.NewCloud(cfg, start, 1)
		_, err := c.SetDesired(start, 6, c.Desired())
		require.NoError(t, err)
		for _, in := range c.Instances() {
			out = append(out, in.Registers)
		}
		return out
	}
	require.Equal(t, []bool{true, true, false, true, true, false},
		registers(config(func(c *fake.Config) { c.NeverRegister.Every = 3 })))
	require.Equal(t, []bool{true, false, true, true, true, true},
		registers(config(func(c *fake.Config) { c.NeverRegister.IDs = []string{"i-0002"} })))
	require.Equal(t, []bool{true, true, false, false, false, false},
		registers(config(func(c *fake.Config) { c.NeverRegister.All, c.Initial = true, 2 })),
		"what is in service at the start has registered")
}

func TestErrorsByCall(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Initial = 2
		c.Errors = []fake.ErrorWindow{
			{From: 0, To: time.Minute, Kind: pluginsdk.KindCapacity, Ratio: 1, Delivery: fake.ByCall},
			{From: time.Hour, To: 2 * time.Hour, Kind: pluginsdk.KindThrottled, Ratio: 1, Delivery: fake.ByCall},
		}
	}), start, 1)
	_, err := c.SetDesired(at(30*time.Second), 5, 2)
	require.ErrorIs(t, err, pluginsdk.ErrCapacity)
	require.Equal(t, 2, c.Desired())
	_, err = c.Remove(at(30*time.Second), []string{"i-0001"})
	require.NoError(t, err, "no capacity does not keep anybody from giving back")
	_, err = c.SetDesired(at(time.Minute), 5, 1)
	require.NoError(t, err, "the window is over")
	_, err = c.Remove(at(time.Hour), []string{"i-0002"})
	require.ErrorIs(t, err, pluginsdk.ErrThrottled)
}

func TestErrorsByActivityAreSeenLaterAndTriedAgain(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Errors = []fake.ErrorWindow{{To: time.Minute, Kind: pluginsdk.KindCapacity, Ratio: 1, Delivery: fake.ByActivity}}
	}), start, 1)
	n, err := c.SetDesired(start, 3, 0)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	st := c.Status(at(5 * time.Second))
	require.Equal(t, 3, st.Desired)
	require.Len(t, st.Failures, 1)
	require.Equal(t, pluginsdk.KindCapacity, st.Failures[0].Kind)
	require.Empty(t, c.List(at(59*time.Second)))
	require.Len(t, c.Status(at(59*time.Second)).Failures, 2, "tried again after 30 s")
	require.Len(t, c.List(at(time.Minute)), 3, "the next try is after the window")
}

func TestWithdrawTakesBackOnlyWhatIsNotThere(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Partial = 0.5 }), start, 1)
	_, err := c.SetDesired(start, 8, 0)
	require.NoError(t, err)
	require.Len(t, c.List(start), 4)
	_, err = c.Withdraw(start, 7)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	res, err := c.Withdraw(start, 8)
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 4, Withdrawn: 4}, res)
	res, err = c.Withdraw(start, 4)
	require.NoError(t, err)
	require.Zero(t, res.Withdrawn)
	require.Len(t, c.List(start), 4)
}

func TestLateFillAndVisibility(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Partial, c.LateFill, c.VisibleAfter = 0.5, 2*time.Minute, 10*time.Second
	}), start, 1)
	_, err := c.SetDesired(start, 4, 0)
	require.NoError(t, err)
	require.Empty(t, c.List(at(9*time.Second)))
	require.Len(t, c.List(at(10*time.Second)), 2)
	require.Equal(t, 2, c.Live())
	require.Len(t, c.List(at(2*time.Minute+10*time.Second)), 4)
}

func TestSomebodyElseLowersDesired(t *testing.T) {
	t.Run("protected instances stay", func(t *testing.T) {
		c := fake.NewCloud(config(func(c *fake.Config) { c.Initial = 8 }), start, 1)
		require.Equal(t, 8, c.SetDesiredExternally(start, 2))
		require.Equal(t, 2, c.Desired())
		require.Equal(t, 8, c.Live())
		_, err := c.SetDesired(start, 8, 2)
		require.NoError(t, err)
		require.Len(t, c.Instances(), 8, "nothing is launched for what never went")
	})
	for victim, want := range map[fake.Victim]string{fake.Oldest: "i-0001", fake.BusyFirst: "i-0003"} {
		t.Run(string(victim), func(t *testing.T) {
			c := fake.NewCloud(config(func(c *fake.Config) {
				c.Initial, c.Protected, c.Victim = 3, false, victim
			}), start, 1)
			c.Busy = func(id string) bool { return id == "i-0003" }
			var ended []fake.Change
			c.Observe = func(ch fake.Change) { ended = append(ended, ch) }
			c.SetDesiredExternally(start, 2)
			require.Equal(t, []fake.Change{{At: start, Kind: fake.Ended, ID: want, Cause: fake.BySomebody}}, ended)
		})
	}
}

func TestKillWithAndWithoutReplacement(t *testing.T) {
	for _, replace := range []bool{false, true} {
		c := fake.NewCloud(config(func(c *fake.Config) { c.Initial, c.AutoReplace = 2, replace }), start, 1)
		id, ok := c.Kill(start, 0)
		require.True(t, ok)
		require.Equal(t, "i-0001", id)
		_, ok = c.Kill(start, 0)
		require.False(t, ok, "it is gone")
		if replace {
			require.Equal(t, 2, c.Desired())
			require.Equal(t, []string{"i-0002", "i-0003"}, ids(c.List(start)))
		} else {
			require.Equal(t, 1, c.Desired())
			require.Equal(t, []string{"i-0002"}, ids(c.List(start)))
		}
	}
}

func TestInterruptionEndsTheInstanceAfterItsNotice(t *testing.T) {
	c := fake.NewCloud(config(func(c *fake.Config) { c.Initial = 1 }), start, 1)
	told, ok := c.Interrupt(start, 0, 2*time.Minute)
	require.True(t, ok)
	require.Equal(t, at(2*time.Minute), told.Deadline)
	require.Len(t, c.List(at(119*time.Second)), 1)
	require.Empty(t, c.List(at(2*time.Minute)))
	require.Zero(t, c.Desired())
}

func TestBootTimesHaveTheGivenQuantiles(t *testing.T) {
	const n = 10_000
	c := fake.NewCloud(config(func(c *fake.Config) {
		c.Max, c.Boot = n, fake.Boot{P50: time.Minute, P95: 2 * time.Minute}
	}), start, 7)
	_, err := c.SetDesired(start, n, 0)
	require.NoError(t, err)
	boots := make([]time.Duration, 0, n)
	for _, in := range c.Instances() {
		boots = append(boots, in.ReadyAt.Sub(in.LaunchedAt))
	}
	slices.Sort(boots)
	require.InDelta(t, 60, boots[n/2].Seconds(), 3)
	require.InDelta(t, 120, boots[n*95/100].Seconds(), 6)
}

func TestValidateNamesEveryMistake(t *testing.T) {
	require.NoError(t, fake.Defaults().Validate())
	bad := fake.Config{
		Min: 5, Max: 2, Partial: 2, Victim: "nobody", Boot: fake.Boot{P50: 2, P95: 1},
		Errors: []fake.ErrorWindow{{From: 2, To: 1, Kind: pluginsdk.KindQuota, Delivery: fake.ByCall}},
	}
	err := bad.Validate()
	for _, part := range []string{"max 2", "initial 0", "partial 2", "nobody", "p95", "errors[0]"} {
		require.ErrorContains(t, err, part)
	}
}

// Whatever is done to a group: it keeps its bounds, ends no protected instance on
// its own, and two with equal seeds agree.
func TestCloudProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := fake.Defaults()
		cfg.Max = rapid.IntRange(1, 20).Draw(rt, "max")
		cfg.Min = rapid.IntRange(0, cfg.Max).Draw(rt, "min")
		cfg.Initial = rapid.IntRange(cfg.Min, cfg.Max).Draw(rt, "initial")
		cfg.Partial = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "partial")
		cfg.LateFill = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "late_fill")
		cfg.Protected = rapid.Bool().Draw(rt, "protected")
		cfg.AutoReplace = rapid.Bool().Draw(rt, "auto_replace")
		cfg.Boot = fake.Boot{P50: time.Minute, P95: 2 * time.Minute}
		cfg.Errors = []fake.ErrorWindow{{
			From: time.Minute, To: 10 * time.Minute, Ratio: 0.5,
			Kind:     rapid.SampledFrom([]pluginsdk.Kind{pluginsdk.KindCapacity, pluginsdk.KindThrottled}).Draw(rt, "kind"),
			Delivery: rapid.SampledFrom([]fake.Delivery{fake.ByCall, fake.ByActivity}).Draw(rt, "delivery"),
		}}
		require.NoError(rt, cfg.Validate())
		seed := rapid.Uint64().Draw(rt, "seed")
		a, b := fake.NewCloud(cfg, start, seed), fake.NewCloud(cfg, start, seed)
		var logA, logB []fake.Change
		a.Observe = func(ch fake.Change) { logA = append(logA, ch) }
		b.Observe = func(ch fake.Change) { logB = append(logB, ch) }
		now := start
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second)
			op, n := rapid.IntRange(0, 5).Draw(rt, "op"), rapid.IntRange(0, 20).Draw(rt, "n")
			require.Equal(rt, do(a, now, op, n), do(b, now, op, n))
			st := a.Status(now)
			require.GreaterOrEqual(rt, st.Desired, cfg.Min)
			require.LessOrEqual(rt, st.Desired, cfg.Max)
			if !cfg.Protected {
				require.LessOrEqual(rt, a.Live(), st.Desired)
			}
		}
		require.Equal(rt, logA, logB)
		for _, ch := range logA {
			if cfg.Protected && ch.Kind == fake.Ended {
				require.NotEqual(rt, fake.ByScaleIn, ch.Cause)
			}
		}
	})
}

func do(c *fake.Cloud, now time.Time, op, n int) string {
	switch op {
	case 0:
		return fmt.Sprint(c.SetDesired(now, n, c.Desired()))
	case 1:
		return fmt.Sprint(c.Remove(now, []string{fmt.Sprintf("i-%04d", n)}))
	case 2:
		return fmt.Sprint(c.Withdraw(now, c.Desired()))
	case 3:
		return fmt.Sprint(c.Kill(now, n))
	case 4:
		return fmt.Sprint(c.Interrupt(now, n, time.Minute))
	default:
		return fmt.Sprint(c.SetDesiredExternally(now, n))
	}
}
