package simcloud

import (
	"time"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/sim"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// migGroup is the managed instance group behind one pool.
type migGroup struct {
	account *MIG
	stub    *migstub.Cloud
	setup   sim.Setup
	name    string
	id      string // the group's name in the provider's configuration
	births  *births
}

var _ sim.Cloud = (*migGroup)(nil)

// changed hears of the stand-in's changes.
func (g *migGroup) changed(ch migstub.Change) {
	told := sim.Change{At: ch.At, ID: ch.ID}
	switch ch.Kind {
	case migstub.Launched:
		told.Kind = sim.Launched
		g.births.add(ch.ID)
	case migstub.Ready:
		told.Kind = sim.Ready
		told.Registers = ch.Registers && !g.births.isMute(ch.ID)
	case migstub.Ended:
		told.Kind, told.Cause = sim.Ended, migCause(ch.Cause)
	case migstub.Notice:
		return // told by Interrupt
	}
	g.setup.Observe(told)
}

func (g *migGroup) Existing() []sim.Instance {
	alive := g.stub.Existing(g.name)
	out := make([]sim.Instance, len(alive))
	for i, in := range alive {
		out[i] = sim.Instance{
			ID: in.ID, LaunchedAt: in.LaunchedAt, Registers: in.Registers && !g.births.isMute(in.ID), Doomed: !in.PreemptAt.IsZero(),
		}
	}
	return out
}

func (g *migGroup) Live() int { return g.stub.Live(g.name) }

func (g *migGroup) Desired() int {
	v, _ := g.stub.Group(g.name)
	return v.Target
}

// Min and Max: a managed instance group has no bounds of its own.
func (g *migGroup) Min() int { return 0 }

func (g *migGroup) Max() int {
	if g.account.options.Regional {
		return 2000
	}
	return 1000
}

func (g *migGroup) PricePerHour() float64 { return g.setup.Config.PricePerHour }

func (g *migGroup) SetDesiredExternally(now time.Time, to int) (before int) {
	g.Advance(now)
	return g.stub.SetSizeExternally(g.name, to)
}

// running is the nth launch, if it has not ended.
func (g *migGroup) running(now time.Time, nth int) (id string, ok bool) {
	g.Advance(now)
	if id, ok = g.births.of(nth); !ok {
		return "", false
	}
	for _, in := range g.stub.Existing(g.name) {
		if in.ID == id {
			return id, true
		}
	}
	return "", false
}

func (g *migGroup) Kill(now time.Time, nth int) (id string, ok bool) {
	if id, ok = g.running(now, nth); !ok {
		return "", false
	}
	return id, g.stub.DeleteInstanceExternally(id)
}

func (g *migGroup) Interrupt(now time.Time, nth int, notice time.Duration) (n pluginsdk.Interruption, ok bool) {
	id, ok := g.running(now, nth)
	if !ok || !g.stub.Preempt(id, notice) {
		return n, false
	}
	return pluginsdk.Interruption{InstanceID: id, Kind: pluginsdk.SpotInterruption, Deadline: now.Add(notice)}, true
}

// Break is autohealing at work: the group recreates the instance.
func (g *migGroup) Break(now time.Time, nth int) (id string, ok bool) {
	if id, ok = g.running(now, nth); !ok {
		return "", false
	}
	return id, g.stub.Recreate(id)
}

func (g *migGroup) Keep(now time.Time, nth int) (id string, ok bool) {
	if id, ok = g.running(now, nth); ok {
		g.births.keep(id)
	}
	return id, ok
}

func (g *migGroup) Advance(now time.Time) {
	g.stub.Advance(now)
	g.account.runDeeds(now)
}

func (g *migGroup) NextChange(now time.Time) (at time.Time, ok bool) {
	at, ok = g.stub.NextEvent(now)
	deed, some := g.account.deeds.next()
	return sooner(at, ok, deed, some)
}
