package policy_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func durations(label string, t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, 5 * time.Minute}).Draw(t, label)
}

func drawPolicy(t *rapid.T) policy.Policy {
	limit := func(label string) int { return rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, label) }
	direction := func(label string) policy.Rules {
		return policy.Rules{Stabilization: durations(label+" stabilization", t), Cooldown: durations(label+" cooldown", t), StepLimit: limit(label + " step limit")}
	}
	least := rapid.IntRange(0, 4).Draw(t, "min")
	return policy.Policy{
		Need: rapid.SampledFrom([]policy.Need{"", policy.Queue, policy.Step}).Draw(t, "need"),
		Min:  least, Max: rapid.IntRange(max(1, least), 12).Draw(t, "max"),
		CapacityPerInstance: rapid.IntRange(1, 4).Draw(t, "capacity"),
		IdleCount:           rapid.IntRange(0, 2).Draw(t, "idle count"),
		IdleFactor:          rapid.SampledFrom([]float64{0, 0, 0.1, 1.5}).Draw(t, "idle factor"),
		IdleTime:            10 * time.Minute,
		Tolerance:           rapid.SampledFrom([]float64{0, 0, 0.1, 0.5}).Draw(t, "tolerance"),
		Out:                 direction("out"), In: direction("in"),
		MaxRemovalsPerTick: limit("max removals"), InPercentBudget: rapid.SampledFrom([]int{0, 0, 25}).Draw(t, "budget"),
		Step: rapid.IntRange(0, 3).Draw(t, "step"), StepWait: durations("step wait", t),
		Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
	}
}

func drawSeen(t *rapid.T, capacity int) policy.Observation {
	few := rapid.IntRange(0, 5)
	rare := func(label string) bool { return rapid.IntRange(0, 9).Draw(t, label) == 0 }
	age := func(label string) policy.Freshness {
		return rapid.SampledFrom([]policy.Freshness{policy.Whole, policy.Whole, policy.Whole, policy.Partial, policy.Absent}).Draw(t, label)
	}
	o := policy.Observation{
		Usable: few.Draw(t, "usable"), Booting: few.Draw(t, "booting"), Draining: few.Draw(t, "draining"),
		Leaving: rapid.IntRange(0, 2).Draw(t, "leaving"), Ending: rapid.IntRange(0, 2).Draw(t, "ending"),
		Attributed: rapid.IntRange(0, 20).Draw(t, "attributed"), Overflow: rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "overflow"),
		GroupMin: rapid.IntRange(0, 3).Draw(t, "group min"), GroupMax: rapid.IntRange(0, 15).Draw(t, "group max"),
		DemandAge: age("demand"), GroupAge: age("group"),
		LaunchClamp: rapid.SampledFrom([]int{-1, -1, -1, 0, 1}).Draw(t, "clamp"),
	}
	o.InUse = rapid.IntRange(0, o.Usable).Draw(t, "in use")
	o.Running = rapid.IntRange(o.InUse, o.InUse*capacity).Draw(t, "running")
	o.Removable = rapid.IntRange(0, o.Usable-o.InUse).Draw(t, "removable")
	if rare("floor") {
		o.Floor = rapid.IntRange(0, 30).Draw(t, "floor jobs")
	}
	o.Unfilled = rapid.IntRange(0, o.Booting).Draw(t, "unfilled")
	o.Withdrawable = rapid.IntRange(0, o.Unfilled).Draw(t, "withdrawable")
	o.GroupDesired = max(0, inGroup(o)+rapid.SampledFrom([]int{0, 0, 0, -2, 2}).Draw(t, "drift"))
	if rare("cooled off") {
		o.CooledOff = t0.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "until")) * time.Minute)
	}
	if rare("no scale-in") {
		o.NoScaleIn = rapid.SampledFrom([]policy.Reason{policy.ReasonHoldWarmup, policy.ReasonGroupHalt, policy.ReasonThrottled}).Draw(t, "no scale-in why")
		o.NoScaleInWhy = "warming up"
	}
	if rare("no launch") {
		o.NoLaunch = rapid.SampledFrom([]policy.Reason{policy.ReasonHoldBreaker, policy.ReasonGroupHalt, policy.ReasonThrottled}).Draw(t, "no launch why")
		o.NoLaunchWhy = "boots fail"
	}
	if rare("provider down") {
		o.ProviderDown = "crash loop"
	}
	return o
}

// drawState is what some earlier decisions leave behind.
func drawState(t *rapid.T, p policy.Policy) policy.State {
	var s policy.State
	now := t0.Add(-10 * time.Minute)
	for range rapid.IntRange(0, 4).Draw(t, "earlier decisions") {
		now = now.Add(time.Duration(rapid.IntRange(1, 140).Draw(t, "seconds")) * time.Second)
		_, s = policy.Decide(p, s, drawSeen(t, p.CapacityPerInstance), now)
	}
	return s
}

type situation struct {
	p policy.Policy
	s policy.State
	o policy.Observation
}

func drawSituation(t *rapid.T) situation {
	p := drawPolicy(t)
	return situation{p: p, s: drawState(t, p), o: drawSeen(t, p.CapacityPerInstance)}
}

func (x situation) decide() policy.Decision {
	d, _ := policy.Decide(x.p, x.s, x.o, t0)
	return d
}

func always(t *testing.T, rule func(t *rapid.T, x situation, d policy.Decision)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		d := x.decide()
		t.Log(story(d))
		rule(t, x, d)
	})
}

func inGroup(o policy.Observation) int { return o.Usable + o.Booting + o.Draining + o.Leaving }

func TestI1OnlyWhatIsProvenIdleIsRemoved(t *testing.T) {
	always(t, func(t *rapid.T, x situation, d policy.Decision) {
		require.LessOrEqual(t, d.Remove, x.o.Removable)
		require.LessOrEqual(t, d.Undrain, x.o.Draining)
		if x.p.MaxRemovalsPerTick > 0 {
			require.LessOrEqual(t, d.Remove, x.p.MaxRemovalsPerTick)
		}
		if x.p.In.StepLimit > 0 {
			require.LessOrEqual(t, d.Remove+d.Withdraw, x.p.In.StepLimit)
		}
		if d.Direction == policy.In {
			require.GreaterOrEqual(t, d.Desired, min(x.p.Min, x.o.GroupMax), "no removal goes below our minimum")
			require.GreaterOrEqual(t, d.Desired, x.o.GroupMin, "nor below the group's")
		}
	})
}

func TestI2NothingThatBillsExceedsMax(t *testing.T) {
	always(t, func(t *rapid.T, x situation, d policy.Decision) {
		if d.Launch == 0 {
			return
		}
		asked := max(inGroup(x.o), x.o.GroupDesired) // what others asked for bills too
		require.LessOrEqual(t, asked+x.o.Ending+d.Launch, min(x.p.Max, x.o.GroupMax))
		require.Equal(t, asked+d.Launch, d.GroupTarget)
		if x.o.LaunchClamp >= 0 {
			require.LessOrEqual(t, d.Launch, x.o.LaunchClamp)
		}
		if x.p.Out.StepLimit > 0 {
			require.LessOrEqual(t, d.Launch, x.p.Out.StepLimit)
		}
	})
}

func TestTheGroupsNumberIsNeverLowered(t *testing.T) {
	always(t, func(t *rapid.T, x situation, d policy.Decision) {
		require.GreaterOrEqual(t, d.GroupTarget, x.o.GroupDesired)
		mayWrite := !x.p.Paused && x.o.GroupAge == policy.Whole && x.o.ProviderDown == "" && !x.o.CooledOff.After(t0)
		if d.GroupTarget > x.o.GroupDesired {
			require.True(t, mayWrite)
			require.Zero(t, d.Remove+d.Withdraw)
		}
	})
}

func TestI4JobsAndRoomAreALaunchOrTheTraceSaysWhatBlocks(t *testing.T) {
	always(t, func(t *rapid.T, x situation, d policy.Decision) {
		places := d.Desired * x.p.CapacityPerInstance
		if x.o.DemandAge != policy.Absent && x.p.Need != policy.Step && x.o.Running+x.o.Attributed > places {
			require.NotEmpty(t, d.LimitedBy)
			if d.Desired == d.From {
				require.True(t, d.Reason == d.LimitedBy || d.Reason == policy.ReasonHoldPaused)
			}
		}
		if x.p.Need == policy.Step && x.o.DemandAge != policy.Absent && x.o.Attributed > 0 && d.From == 0 {
			require.True(t, d.Desired > 0 || d.LimitedBy != "")
		}
	})
}

func TestI5UnknownNeverScalesIn(t *testing.T) {
	always(t, func(t *rapid.T, x situation, d policy.Decision) {
		if x.o.DemandAge != policy.Whole || x.o.GroupAge != policy.Whole || x.o.NoScaleIn != "" || x.o.ProviderDown != "" {
			require.Zero(t, d.Remove+d.Withdraw)
		}
		if x.o.DemandAge == policy.Absent || x.p.Paused {
			require.Equal(t, policy.None, d.Direction)
		}
		if x.o.GroupAge != policy.Whole || x.o.ProviderDown != "" || x.o.NoLaunch != "" || x.o.CooledOff.After(t0) {
			require.Zero(t, d.Launch)
		}
	})
}

// More jobs never mean fewer instances, whatever the rules and holds.
func TestNeedIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		before := x.decide()
		more := rapid.IntRange(1, 5).Draw(t, "more")
		if rapid.Bool().Draw(t, "running") {
			x.o.Running += more
		} else {
			x.o.Attributed += more
		}
		after := x.decide()
		require.GreaterOrEqual(t, after.Desired, before.Desired, "%s\n%s", story(before), story(after))
	})
}

func TestTheDirectionsDoNotWaitForEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		ago := t0.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "ago")) * time.Second)
		y := x
		y.s.LastInAt = ago
		require.Equal(t, x.decide().Launch, y.decide().Launch, "out never waits for the cooldown of in")
		require.Equal(t, x.decide().Undrain, y.decide().Undrain)
		y = x
		y.s.LastOutAt = ago
		require.Equal(t, x.decide().Remove, y.decide().Remove, "nor in for that of out")
		require.Equal(t, x.decide().Withdraw, y.decide().Withdraw)
	})
}

func TestTheTraceIsAChainThatEndsAtTheDecision(t *testing.T) {
	always(t, func(t *rapid.T, _ situation, d policy.Decision) {
		require.NotEmpty(t, d.Trace)
		at := d.From
		for _, step := range d.Trace {
			require.Equal(t, at, step.Before, step.Step)
			require.NotEmpty(t, step.Step)
			require.NotEmpty(t, step.Why)
			require.NotContains(t, step.Why, "%!")
			at = step.After
		}
		require.Equal(t, d.Desired, at)
		require.Equal(t, d.Desired-d.From, d.Undrain+d.Launch-d.Withdraw-d.Remove)
		for _, n := range []int{d.Undrain, d.Launch, d.Withdraw, d.Remove} {
			require.GreaterOrEqual(t, n, 0)
		}
		switch {
		case d.Desired > d.From:
			require.Equal(t, policy.Out, d.Direction)
			require.Zero(t, d.Withdraw+d.Remove)
		case d.Desired < d.From:
			require.Equal(t, policy.In, d.Direction)
			require.Zero(t, d.Undrain+d.Launch)
		default:
			require.Equal(t, policy.None, d.Direction)
			require.Zero(t, d.Undrain+d.Launch+d.Withdraw+d.Remove)
		}
	})
}

var reasons = []policy.Reason{
	policy.ReasonGroupHalt, policy.ReasonThrottled, policy.ReasonFloor,
	policy.ReasonSteady, policy.ReasonDemand, policy.ReasonIdle, policy.ReasonHeadroom, policy.ReasonMin, policy.ReasonMax,
	policy.ReasonProviderMax, policy.ReasonStepLimit, policy.ReasonTolerance, policy.ReasonStabilization, policy.ReasonCooldown,
	policy.ReasonIdleTime, policy.ReasonHoldStale, policy.ReasonHoldPartial, policy.ReasonHoldPaused, policy.ReasonHoldCooledOff,
	policy.ReasonHoldProvider, policy.ReasonHoldWarmup, policy.ReasonHoldUnready, policy.ReasonHoldBreaker, policy.ReasonCannotDrain,
	policy.ReasonDrift, policy.ReasonConflict,
}

func TestReasonsAreOfTheClosedSet(t *testing.T) {
	always(t, func(t *rapid.T, _ situation, d policy.Decision) {
		require.Contains(t, reasons, d.Reason)
		if d.LimitedBy != "" {
			require.Contains(t, reasons, d.LimitedBy)
		}
	})
}

func TestDecideIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		before, err := json.Marshal(x.s)
		require.NoError(t, err)
		d1, s1 := policy.Decide(x.p, x.s, x.o, t0)
		d2, s2 := policy.Decide(x.p, x.s, x.o, t0)
		require.Equal(t, d1, d2)
		require.Equal(t, s1, s2)
		after, err := json.Marshal(x.s)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "the state given is left alone")
	})
}

// What is saved and read back decides as what was in memory: a change of owner
// changes nothing. A monotonic clock or a zone must not slip in.
func TestStateSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		data, err := json.Marshal(x.s)
		require.NoError(t, err)
		var read policy.State
		require.NoError(t, json.Unmarshal(data, &read))
		again, err := json.Marshal(read)
		require.NoError(t, err)
		require.Equal(t, string(data), string(again))
		now := t0.In(time.FixedZone("elsewhere", 3600))
		d1, s1 := policy.Decide(x.p, x.s, x.o, t0)
		d2, s2 := policy.Decide(x.p, read, x.o, now)
		require.Equal(t, d1, d2)
		require.Equal(t, s1, s2)
	})
}

// The window is kept in few samples, and forgets nothing that is young enough to
// count.
func TestTheWindowIsSmallAndNeverForgetsTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 5 * time.Minute
		p := policy.Policy{Max: 1000, CapacityPerInstance: 1, In: policy.Rules{Stabilization: window}}
		type need struct {
			at   time.Time
			jobs int
		}
		var seenNeeds []need
		var s policy.State
		now := t0
		for range rapid.IntRange(1, 400).Draw(t, "ticks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 8000).Draw(t, "ms")) * time.Millisecond)
			jobs := rapid.IntRange(0, 50).Draw(t, "jobs")
			seenNeeds = append(seenNeeds, need{now, jobs})
			var d policy.Decision
			d, s = policy.Decide(p, s, seen(policy.Observation{Attributed: jobs, Usable: 60, Removable: 60}), now)
			highest := 0
			for _, n := range slices.Backward(seenNeeds) {
				if now.Sub(n.at) >= window {
					break
				}
				highest = max(highest, n.jobs)
			}
			require.GreaterOrEqual(t, d.Desired, highest)
			require.LessOrEqual(t, len(s.Window), 60)
		}
	})
}
