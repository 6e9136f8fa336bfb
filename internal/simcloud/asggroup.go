package simcloud

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/sim"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
	"github.com/spillway-ci/spillway/scaler"
)

// asgGroup is the Auto Scaling group behind one pool.
type asgGroup struct {
	account *ASG
	setup   sim.Setup
	name    string
	births  *births
	hooked  bool            // it has a terminating hook
	held    map[string]bool // instances of which Held was told
	foreign map[string]bool // instances that somebody else has ended by name
}

var _ sim.Cloud = (*asgGroup)(nil)

// plan plans what the story says of the group's time.
func (g *asgGroup) plan(c fake.Config) {
	g.hooked = c.TerminationHook > 0
	g.held, g.foreign = make(map[string]bool), make(map[string]bool)
	for _, h := range c.Halts {
		for _, process := range haltedProcesses(h) {
			args := func() url.Values {
				return url.Values{"AutoScalingGroupName": {g.name}, "ScalingProcesses.member.1": {process}}
			}
			if h.From > 0 { // otherwise it is so from the start
				g.account.At(h.From, func() { g.account.Somebody("SuspendProcesses", args()) })
			}
			g.account.At(h.To, func() { g.account.Somebody("ResumeProcesses", args()) })
		}
	}
}

func (g *asgGroup) Connect(ctx context.Context) (scaler.Group, error) {
	inner, err := g.account.connect(ctx, g.name)
	if err != nil {
		return nil, err
	}
	return &watched{Group: inner, after: g.lookForHeld}, nil
}

// changed hears of the stand-in's changes.
func (g *asgGroup) changed(ch asgstub.Change) {
	told := sim.Change{At: ch.At, ID: ch.ID}
	switch ch.Kind {
	case asgstub.Launched:
		told.Kind = sim.Launched
		g.births.add(ch.ID)
	case asgstub.Ready:
		told.Kind = sim.Ready
		told.Registers = ch.Registers && !g.births.isMute(ch.ID)
	case asgstub.Ended:
		told.Kind = sim.Ended
		told.Cause = g.cause(ch.ID, ch.Cause)
		delete(g.births.doomed, ch.ID)
	}
	g.setup.Observe(told)
}

// lookForHeld tells of instances that a terminating hook holds since now: the
// stand-in tells only that they have ended.
func (g *asgGroup) lookForHeld() {
	if !g.hooked {
		return
	}
	for _, in := range g.instances() {
		if in.State == asgstub.TerminatingWait && !g.held[in.ID] {
			g.held[in.ID] = true
			g.setup.Observe(sim.Change{At: g.account.now(), Kind: sim.Held, ID: in.ID, Cause: g.cause(in.ID, in.Cause)})
		}
	}
}

// cause is who ended an instance. The stand-in can't tell our call from the same call
// of somebody else.
func (g *asgGroup) cause(id string, c asgstub.Cause) sim.Cause {
	if g.foreign[id] {
		return sim.BySomebody
	}
	return asgCause(c)
}

func (g *asgGroup) view() asgstub.GroupView {
	v, _ := g.account.Stub.Group(g.name)
	return v
}

// instances are those of the group that have not been shut down.
func (g *asgGroup) instances() (alive []asgstub.InstanceView) {
	for _, in := range g.view().Instances {
		if in.EndedAt.IsZero() {
			alive = append(alive, in)
		}
	}
	return alive
}

func (g *asgGroup) Existing() []sim.Instance {
	alive := g.instances()
	out := make([]sim.Instance, len(alive))
	for i, in := range alive {
		out[i] = sim.Instance{
			ID: in.ID, LaunchedAt: in.LaunchedAt.Truncate(time.Second), // EC2 tells no more than that
			Registers: in.Registers && !g.births.isMute(in.ID),
			Doomed:    g.births.doomed[in.ID], Ending: strings.HasPrefix(in.State, asgstub.TerminatingNow),
		}
	}
	return out
}

func (g *asgGroup) Live() int             { return len(g.instances()) }
func (g *asgGroup) Desired() int          { return g.view().Desired }
func (g *asgGroup) Min() int              { return g.view().Min }
func (g *asgGroup) Max() int              { return g.view().Max }
func (g *asgGroup) PricePerHour() float64 { return g.setup.Config.PricePerHour }

func (g *asgGroup) SetDesiredExternally(now time.Time, to int) (before int) {
	g.account.advance(now)
	before, _ = g.account.Stub.SetDesiredExternally(g.name, to)
	g.lookForHeld()
	return before
}

// running is the nth launch, if it has not been shut down.
func (g *asgGroup) running(now time.Time, nth int) (id string, ok bool) {
	g.account.advance(now)
	if id, ok = g.births.of(nth); !ok {
		return "", false
	}
	in, ok := g.account.Stub.Instance(id)
	return id, ok && in.EndedAt.IsZero()
}

// Kill ends the machine past its group, which no hook can hold. In a group with a
// terminating hook it is the group that somebody asks to end it, and to be one less.
func (g *asgGroup) Kill(now time.Time, nth int) (id string, ok bool) {
	switch id, ok = g.running(now, nth); {
	case !ok:
		return "", false
	case !g.hooked:
		return id, g.account.Stub.TerminateExternally(id)
	}
	g.foreign[id] = true
	g.account.Somebody("TerminateInstanceInAutoScalingGroup", url.Values{"InstanceId": {id}, "ShouldDecrementDesiredCapacity": {"true"}})
	g.lookForHeld()
	return id, true
}

func (g *asgGroup) Interrupt(now time.Time, nth int, notice time.Duration) (n pluginsdk.Interruption, ok bool) {
	id, ok := g.running(now, nth)
	if !ok || !g.account.Stub.Interrupt(id, notice) {
		return n, false
	}
	g.births.doomed[id] = true
	g.account.advance(now) // no notice: it goes at once
	return pluginsdk.Interruption{InstanceID: id, Kind: pluginsdk.SpotInterruption, Deadline: now.Add(notice)}, true
}

// Break is a health check of somebody's that fails. The group replaces the instance.
func (g *asgGroup) Break(now time.Time, nth int) (id string, ok bool) {
	if id, ok = g.running(now, nth); !ok {
		return "", false
	}
	g.account.Somebody("SetInstanceHealth", url.Values{
		"InstanceId": {id}, "HealthStatus": {"Unhealthy"}, "ShouldRespectGracePeriod": {"false"},
	})
	g.lookForHeld()
	return id, true
}

func (g *asgGroup) Keep(now time.Time, nth int) (id string, ok bool) {
	if id, ok = g.running(now, nth); ok {
		g.births.keep(id)
	}
	return id, ok
}

func (g *asgGroup) Advance(now time.Time) { g.account.advance(now) }

func (g *asgGroup) NextChange(now time.Time) (at time.Time, ok bool) {
	at, ok = g.account.Stub.NextEvent(now)
	deed, some := g.account.deeds.next()
	return sooner(at, ok, deed, some)
}
