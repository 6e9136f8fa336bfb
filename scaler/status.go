package scaler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// Status is a pool as people see it. Counts are instances unless said otherwise.
type Status struct {
	Pool        string
	Min, Max    int
	Pending     int // jobs attributed to the pool
	Running     int // jobs on its usable instances
	Desired     int // the group's
	InService   int
	Idle        int // of InService: without a job
	Booting     int
	Draining    int
	Paused      int       // their runner is paused in GitLab: of no use, and left alone
	Lost        int       // silent, interrupted, unhealthy or boot-failed
	Ending      int       // on their way out; a hook of the group may hold them until their jobs are done
	Strangers   int       // machines of the pool on instances that the group doesn't have
	WaitTill    time.Time // the provider throttles, and is not asked before; zero or past = it doesn't
	Probing     bool      // one instance was launched to try after a refusal, and no more is before it is there
	LaunchLost  bool      // the provider says that what it had accepted has failed: it covers no job
	Decision    policy.Decision
	Hold        policy.Reason // empty = none
	Finding     string        // what somebody should look at; empty = nothing
	DecidedAt   time.Time
	LastSuccess time.Time // of the last look at the group
	Held        bool      // by this replica
}

// Status returns the pool as of its last tick. It may be called from any
// goroutine.
func (p *Pool) Status() Status { return *p.status.Load() }

func (p *Pool) publish(now time.Time, pic *Picture, d policy.Decision) {
	s := p.statusOf(now, pic, p.book, p.seen.status.Desired)
	s.Decision, s.DecidedAt, s.LastSuccess, s.Held, s.WaitTill = d, now, p.seen.at, true, p.state.WaitTill
	s.Probing, s.LaunchLost = p.state.CoolOff.Probing(now), p.state.CoolOff.Lost(now)
	if isHold(d.Reason) {
		s.Hold = d.Reason
	}
	s.Finding = p.finding(now, pic.limits[p.Name()])
	p.publishStatus(s)
}

func (p *Pool) publishStatus(s Status) {
	p.status.Store(&s)
	p.events.ticked(s)
}

func (p *Pool) statusOf(now time.Time, pic *Picture, book *roster.Roster, desired int) Status {
	c, strangers := book.Census(now), book.Strangers(now)
	return Status{
		Pool: p.Name(), Min: p.policy.Min, Max: p.policy.Max,
		Pending: p.pending(pic, c), Running: c.RunningJobs,
		Desired: desired, InService: c.Usable, Idle: c.Usable - c.InUse, Booting: c.Booting + unfilled(desired, c), Draining: c.Draining + c.UsedUp, Paused: c.Paused,
		Lost: c.Silent + c.Interrupted + c.Broken + c.BootFailed, Ending: c.Removing, Strangers: strangers, DecidedAt: now,
	}
}

// pending is the jobs that wait for the pool, as far as anything tells.
func (p *Pool) pending(pic *Picture, c roster.Census) int {
	if n := pic.counts[p.Name()]; n.drives {
		return max(0, n.jobs-c.RunningJobs-c.DoomedJobs)
	}
	return pic.Attribution.Pools[p.Name()].Total()
}

func isHold(r policy.Reason) bool {
	switch r {
	case policy.ReasonHoldStale, policy.ReasonHoldPartial, policy.ReasonHoldPaused, policy.ReasonHoldCooledOff,
		policy.ReasonHoldProvider, policy.ReasonHoldWarmup, policy.ReasonHoldUnready, policy.ReasonHoldBreaker,
		policy.ReasonCannotDrain, policy.ReasonRunnerGone, policy.ReasonGroupHalt, policy.ReasonThrottled:
		return true
	default:
		return false
	}
}

// finding is what somebody should look at, in one sentence.
func (p *Pool) finding(now time.Time, l Limits) string {
	g := p.seen.status
	switch {
	case p.seen.err != nil:
		return "provider_down: " + p.seen.err.Error()
	case p.book.Boot.Clamp(now) >= 0:
		return fmt.Sprintf("boot_failing: the last %d instances never registered within %s", p.book.Boot.Failures, p.rules.RegisterTimeout)
	case l.CannotServe != "":
		return "runner_gone: " + l.CannotServe
	case p.state.CoolOff.Active(now):
		return fmt.Sprintf("cooled_off: the provider refused (%s: %s), next try at %s", p.state.CoolOff.Kind, p.state.CoolOff.Message, p.state.CoolOff.Until.UTC().Format(time.TimeOnly))
	case g.LaunchHalt != "" || g.RemovalHalt != "":
		return "group_halt: " + haltText(g)
	case !p.seen.at.IsZero() && g.Min > p.policy.Max:
		return fmt.Sprintf("bounds_conflict: the group's minimum %d is above the pool's maximum %d", g.Min, p.policy.Max)
	case !p.seen.at.IsZero() && g.Max < p.policy.Max:
		return fmt.Sprintf("provider_max: the group allows %d, the pool %d", g.Max, p.policy.Max)
	case p.book.Strangers(now) > 0:
		return fmt.Sprintf("zombie: %d machines say that they are on instances that the group doesn't have", p.book.Strangers(now))
	case l.CannotDrain != "":
		return "cannot_drain: " + l.CannotDrain
	case l.Unaccounted != "" && p.book.Census(now).BootFailed > 0:
		return fmt.Sprintf("unheard: %d instances were never heard of and are not removed: %s", p.book.Census(now).BootFailed, l.Unaccounted)
	default:
		return ""
	}
}

func haltText(g pluginsdk.GroupStatus) string {
	switch {
	case g.RemovalHalt == "":
		return "the group launches nothing: " + g.LaunchHalt
	case g.LaunchHalt == "":
		return "the group removes nothing: " + g.RemovalHalt
	case g.LaunchHalt == g.RemovalHalt:
		return "the group launches and removes nothing: " + g.LaunchHalt
	default:
		return "the group launches nothing: " + g.LaunchHalt + "; and removes nothing: " + g.RemovalHalt
	}
}

func (p *Pool) appendLedger(ctx context.Context, e LedgerEntry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a decision: %w", err)
	}
	return p.memory.AppendLedger(ctx, p.Name(), p.epoch, data)
}
