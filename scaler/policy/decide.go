package policy

import (
	"fmt"
	"time"
)

// Decide says how many instances the pool shall have, and how to get there. It is
// a pure function: equal arguments give equal answers, whatever went before is in
// s.
//
// The pipeline is a number of instances that each step may change: what the jobs
// need, headroom on top, then the rules that damp, bound and hold, and last the
// facts that bound an action (what may be launched, what is proven idle). Min and
// max come before the step limit, so that not even a new minimum launches more at
// once than the limit allows.
//
// Out and in don't wait for each other: each has its own rules, cooldown and holds.
func Decide(p Policy, s State, o Observation, now time.Time) (Decision, State) {
	c := begin(p, s, o, now)
	for _, step := range pipeline {
		step(c)
	}
	return c.finish()
}

var pipeline = [...]func(*calculation){
	(*calculation).need,
	(*calculation).headroom,
	(*calculation).sample,
	(*calculation).floor,
	(*calculation).tolerance,
	(*calculation).stabilization,
	(*calculation).minimum,
	(*calculation).maximum,
	(*calculation).stepLimit,
	(*calculation).holdOut,
	(*calculation).holdIn,
	(*calculation).launchRoom,
	(*calculation).launchClamp,
	(*calculation).removals,
	(*calculation).overflow,
}

// calculation is one decision in the making.
type calculation struct {
	p   Policy
	o   Observation
	now time.Time

	present int // usable + booting
	n       int // usable + booting wanted, so far
	jobs    int // instances that the jobs keep busy, whatever the rule for scaling is

	state  State
	trace  []Trace
	out    Reason // what first asked for more than is present
	in     Reason // what first asked for less
	limit  Reason // what last moved n back towards what is present
	raised bool   // by the minimum
	remove int    // of what goes: existing instances, the rest is withdrawn
}

// usualTrace is how many steps leave a trace when nothing is to be done.
const usualTrace = 2

func begin(p Policy, s State, o Observation, now time.Time) *calculation {
	now = now.Round(0).UTC() // wall time only: that is what a persisted state has
	o = o.consistent()
	present := o.Usable + o.Booting
	return &calculation{
		p: p, o: o, now: now, present: present, n: present,
		state: s.settled(now), trace: make([]Trace, 0, usualTrace),
	}
}

// to makes n the number wanted, because of a rule, and says why. A step that
// changes nothing leaves no trace. A number that turns from in to out, or back,
// has left behind what restrained it on the other side.
func (c *calculation) to(n int, step string, rule Reason, why string, args ...any) {
	if n == c.n {
		return
	}
	if n > c.present && c.n <= c.present {
		c.out, c.limit = rule, ""
	}
	if n < c.present && c.n >= c.present {
		c.in, c.limit = rule, ""
	}
	c.note(n, step, why, args...)
}

// restrain is to, for a rule that keeps n from where the jobs and the rules before
// it want it.
func (c *calculation) restrain(n int, step string, rule Reason, why string, args ...any) {
	if n == c.n {
		return
	}
	c.to(n, step, rule, why, args...)
	c.limit = rule
}

// note sets the number and leaves a trace in any case.
func (c *calculation) note(n int, step, why string, args ...any) {
	c.trace = append(c.trace, Trace{Step: step, Before: c.n, After: n, Why: fmt.Sprintf(why, args...)})
	c.n = n
}

// missing and surplus are how far n is above or below what is present.
func (c *calculation) missing() int { return max(0, c.n-c.present) }
func (c *calculation) surplus() int { return max(0, c.present-c.n) }

// undrain is how many of our own drains are taken back for what is missing: they
// are there already, so it comes before anything is launched.
func (c *calculation) undrain() int { return min(c.o.Draining, c.missing()) }

func (c *calculation) launch() int { return c.missing() - c.undrain() }

// launchAtMost restrains launches, and leaves drains that are taken back alone.
func (c *calculation) launchAtMost(limit int, step string, rule Reason, why string, args ...any) {
	if c.launch() > limit {
		c.restrain(c.present+c.undrain()+limit, step, rule, why, args...)
	}
}

// finish turns the number into actions and remembers what was done.
func (c *calculation) finish() (Decision, State) {
	d := Decision{
		From: c.present, Desired: c.n, Direction: None, LimitedBy: c.limit,
		Undrain: c.undrain(), Launch: c.launch(), Remove: c.remove, Withdraw: c.surplus() - c.remove,
		Trace: c.trace,
	}
	switch {
	case c.n > c.present:
		d.Direction = Out
	case c.n < c.present:
		d.Direction = In
	}
	d.GroupTarget = c.groupTarget(d.Launch)
	d.Reason = c.reason(&d)
	c.recordActions(&d)
	return d, c.state
}

func (c *calculation) recordActions(d *Decision) {
	if d.Launch > 0 {
		c.state.LastOutAt = c.now
	}
	if d.Direction == In {
		c.state.LastInAt = c.now
	}
	if last := len(c.state.Window) - 1; last >= 0 {
		c.state.Window[last].Removed += d.Remove
	}
	if c.o.GroupAge == Whole {
		had := c.state.Held // what of it isn't listed yet may be, soon
		if !c.state.GroupSeen {
			had = c.standing() // by whoever has forgotten it; where it can't be asserted now it will be
		}
		c.state.Held = max(c.o.GroupDesired, d.GroupTarget, min(c.o.inGroup(), had))
		c.state.GroupSeen = true
	}
}

// reason picks the one answer to "why this number?".
func (c *calculation) reason(d *Decision) Reason {
	switch {
	case c.p.Paused:
		return ReasonHoldPaused
	case d.Direction == Out:
		return c.out
	case d.Direction == In:
		return c.in
	case c.limit != "":
		return c.limit
	case d.GroupTarget > c.o.GroupDesired:
		return ReasonDrift
	case c.boundsConflict():
		return ReasonConflict
	case c.raised:
		return ReasonMin
	default:
		return ReasonSteady
	}
}

// consistent returns o with numbers that can be true together, whatever a plugin
// reported. What the group was asked for and shows no instance for yet counts as
// booting, whoever asked for it: it is coming, and asking again would launch twice.
func (o Observation) consistent() Observation {
	for _, n := range []*int{
		&o.Running, &o.Attributed, &o.Unplaced, &o.Floor, &o.Unsettled, &o.Overflow, &o.Usable, &o.Booting, &o.Draining, &o.Leaving, &o.Ending, &o.Absent, &o.InUse,
		&o.Removable, &o.Unfilled, &o.Withdrawable, &o.GroupDesired, &o.GroupMin, &o.GroupMax,
	} {
		*n = max(0, *n)
	}
	if o.GroupAge != Absent {
		if owed := o.GroupDesired - o.inGroup(); owed > 0 {
			o.Booting += owed
			o.Unfilled = max(o.Unfilled, owed)
		}
	}
	o.InUse = min(o.InUse, o.Usable)
	o.Removable = min(o.Removable, o.Usable-o.InUse)
	o.Unfilled = min(o.Unfilled, o.Booting)
	o.Withdrawable = min(o.Withdrawable, o.Unfilled)
	return o
}

// inGroup is the instances that the group's desired number stands for.
func (o *Observation) inGroup() int { return o.Usable + o.Booting + o.Draining + o.Leaving }

// billed is every instance that costs money or will.
func (o *Observation) billed() int { return o.inGroup() + o.Ending }
