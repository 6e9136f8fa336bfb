package scaler

import (
	"time"

	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// observation turns all that is known of the pool into what a decision needs.
func (p *Pool) observation(now time.Time, pic *Picture, c roster.Census) policy.Observation {
	leaving, unfilled := c.Leaving()-c.Removing, p.unfilled(c)
	if p.givenUp(now) {
		leaving, unfilled = leaving+unfilled, 0
	}
	booting := c.Booting + unfilled
	o := policy.Observation{
		Running: c.RunningJobs + c.DoomedJobs, Attributed: p.attributed(pic, booting*p.policy.CapacityPerInstance+c.DrainingPlaces), Overflow: pic.Attribution.Pools[p.Name()].Beyond,
		Usable: c.Usable, Booting: booting, Draining: c.Draining,
		Leaving: leaving, Ending: c.Removing, Absent: c.Absent + c.Unlisted,
		InUse: c.InUse, Removable: c.Removable, Unfilled: unfilled,
		GroupDesired: p.seen.status.Desired, GroupMin: p.seen.status.Min, GroupMax: p.seen.status.Max,
		GroupAge:  p.groupAge(now),
		CooledOff: p.state.CoolOff.Until, LaunchClamp: p.launchClamp(now, booting),
	}
	o.DemandAge, o.DemandWhy = pic.demandFor(p.def.Load())
	o.Unplaced = p.unplaced(pic, booting)
	o.Unsettled = min(pic.begun[p.Name()], pic.Attribution.Pools[p.Name()].Free) + pic.unseen[p.Name()]
	p.driveByCount(&o, pic)
	if p.canWithdraw(now) {
		o.Withdrawable = unfilled
	}
	if p.seen.err != nil {
		o.ProviderDown = p.seen.err.Error()
	}
	o.NoScaleIn, o.NoScaleInWhy = p.noScaleIn(now, pic, c)
	o.NoLaunch, o.NoLaunchWhy = p.noLaunch(now, pic)
	o.Floor = pic.counts[p.Name()].jobs
	return o
}

// attributed is the jobs that are this pool's. Those that were to wait for places
// which turn out not to come are nobody's until the next look at the fleet, at once:
// places that are coming elsewhere are theirs before anything is launched. Those that
// have begun since they were listed count as running already.
func (p *Pool) attributed(pic *Picture, coming int) int {
	share := pic.Attribution.Pools[p.Name()]
	return max(0, share.Free-pic.begun[p.Name()]) + min(share.Coming, coming) + share.Launch
}

// unplaced is the jobs that attribution has left to a launch. It counted on what was
// known at the tick before: what turns out to be coming only now is for them.
func (p *Pool) unplaced(pic *Picture, booting int) int {
	saw := pic.offers[p.Name()]
	if saw.offer != p.offer.Load().offer || !pic.MachinesKnown {
		return 0 // it was attributed before our last act, or without knowing who is free
	}
	news := max(0, booting*p.policy.CapacityPerInstance-saw.coming)
	return max(0, pic.Attribution.Pools[p.Name()].Launch-news)
}

// driveByCount makes a count the demand of a pool where nothing tells which jobs wait.
// An unknown count is unknown demand, and whatever is known of other jobs is not it.
func (p *Pool) driveByCount(o *policy.Observation, pic *Picture) {
	c, counted := pic.counts[p.Name()]
	if !counted || !c.drives {
		return
	}
	o.Counted, o.Unplaced, o.DemandAge, o.DemandWhy = true, 0, policy.Whole, ""
	o.Attributed = max(0, c.jobs-o.Running)
	if c.err != nil {
		o.Attributed, o.DemandAge, o.DemandWhy = 0, policy.Absent, oneLine(c.err)
	}
}

func (p *Pool) noLaunch(now time.Time, pic *Picture) (policy.Reason, string) {
	switch unserved := pic.limits[p.Name()].CannotServe; {
	case unserved != "":
		return policy.ReasonRunnerGone, unserved
	case p.seen.status.LaunchHalt != "":
		return policy.ReasonGroupHalt, "the group launches nothing: " + p.seen.status.LaunchHalt
	case p.book.Boot.Clamp(now) == 0:
		return policy.ReasonHoldBreaker, "the last instances never registered: next try at " + clock(p.book.Boot.Until)
	case p.throttled(now):
		return policy.ReasonThrottled, "the provider throttles: next try at " + clock(p.state.WaitTill)
	default:
		return "", ""
	}
}

func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// unfilled is what was asked of the group and does not exist yet. Instances that
// are being removed have left the group's desired number already.
func (p *Pool) unfilled(c roster.Census) int {
	return unfilled(p.seen.status.Desired, c)
}

func unfilled(desired int, c roster.Census) int { return max(0, desired-(c.Live-c.Removing)) }

// givenUp: what was asked for and does not exist yet covers no demand any more. It
// should have registered by now, or the provider has said that it failed. What a
// withdrawal has left does exist, listed or not.
func (p *Pool) givenUp(now time.Time) bool {
	left := p.state.Kept == p.seen.status.Desired && now.Sub(p.state.KeptAt) < p.rules.RegisterTimeout
	return !left && (now.Sub(p.state.AskedAt) >= p.rules.RegisterTimeout || p.state.CoolOff.Lost(now))
}

func (p *Pool) groupAge(now time.Time) policy.Freshness {
	switch {
	case p.seen.at.IsZero() || p.seen.mustLook:
		return policy.Absent
	case now.Sub(p.seen.at) > max(3*p.refresh, minStaleAfter):
		return policy.Partial
	default:
		return policy.Whole
	}
}

// launchClamp is the tighter of what the cool-off and the boot breaker allow.
func (p *Pool) launchClamp(now time.Time, booting int) int {
	clamp := p.state.CoolOff.Clamp(now)
	if b := p.book.Boot.Clamp(now); b >= 0 {
		b = max(0, b-booting)
		if clamp < 0 || b < clamp {
			clamp = b
		}
	}
	return clamp
}

func (p *Pool) noScaleIn(now time.Time, pic *Picture, c roster.Census) (policy.Reason, string) {
	switch {
	case !pic.MachinesKnown:
		return policy.ReasonHoldStale, "the machines could not be read"
	case p.book.WarmingUp(now):
		return policy.ReasonHoldWarmup, "two heartbeat periods have not passed since this replica took the pool over"
	case p.seen.status.RemovalHalt != "":
		return policy.ReasonGroupHalt, "the group removes nothing: " + p.seen.status.RemovalHalt
	case p.throttled(now):
		return policy.ReasonThrottled, "the provider throttles: next try at " + clock(p.state.WaitTill)
	case pic.counts[p.Name()].err != nil:
		return policy.ReasonHoldStale, "the count of the jobs is not known: " + oneLine(pic.counts[p.Name()].err)
	case p.book.Unready(c):
		return policy.ReasonHoldUnready, "more than 45 % of the registered instances fell silent: more likely the network than the instances"
	case pic.limits[p.Name()].CannotDrain != "":
		return policy.ReasonCannotDrain, pic.limits[p.Name()].CannotDrain
	default:
		return "", ""
	}
}

// makeOffer publishes what the rest of the fleet may count on.
func (p *Pool) makeOffer(now time.Time, o policy.Observation) {
	c := p.book.Census(now)
	room := min(p.policy.Max, o.GroupMax) - c.Live - p.unfilled(c)
	if p.seen.at.IsZero() {
		room = p.policy.Max
	}
	if p.state.CoolOff.Active(now) {
		room = min(room, 1) // what there is at its end; until then CooledUntil says no
	} else if o.LaunchClamp >= 0 {
		room = min(room, o.LaunchClamp)
	}
	if p.policy.Paused || (o.NoLaunch != "" && o.NoLaunch != policy.ReasonThrottled) {
		room = 0
	}
	capacity := p.policy.CapacityPerInstance
	next := offer{
		Coming: o.Booting * capacity, Draining: c.DrainingPlaces, Launchable: max(0, room) * capacity,
		CooledUntil: p.state.CoolOff.Until, Down: p.seen.err != nil, Unfilled: o.Unfilled,
	}
	p.state.Offer = next
	p.offer.Store(&offered{offer: next, boots: p.book.Boots()})
}
