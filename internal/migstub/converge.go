package migstub

import (
	"math"
	"slices"
	"time"
)

// maxErrors is how many errors listErrors shows of a group, the newest [entries].
const maxErrors = 1_000

// failure is what a try to create an instance ended with.
type failure struct {
	at             time.Time
	code, message  string
	instance, zone string
	action         string
}

// resize gives the group another target size. It adds managed instances, some of
// which get their machine late or never, or chooses whom to delete.
func (c *Cloud) resize(now time.Time, g *group, size int, cause Cause) {
	g.revision++
	more := size - g.target
	g.target = size
	if more < 0 {
		for _, m := range c.victims(g, -more) {
			c.remove(now, g, m, cause)
		}
		return
	}
	late := more - int(math.Round(float64(more)*(1-g.Faults.Missing)))
	for i := range more {
		m := c.addMember(now, g)
		if i >= more-late {
			m.tryAt = time.Time{}
			if g.Faults.LateFill > 0 {
				m.tryAt = now.Add(g.Faults.LateFill)
			}
		}
	}
}

// victims is whom the group deletes when nobody names one: first those that have
// no machine, because the group looks at the status (instanceGroupManagers.resize),
// then whom the fault says.
func (c *Cloud) victims(g *group, n int) []*member {
	var list []*member
	for _, m := range g.members {
		if m.action != actDeleting {
			list = append(list, m)
		}
	}
	if g.Faults.Victim == RandomVictim || g.Faults.Victim == "" {
		c.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	rank := func(m *member) int {
		switch {
		case m.vm == nil:
			return 0
		case g.Faults.Victim == BusyFirst && c.Busy != nil && c.Busy(m.vm.idText()):
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(list, func(a, b *member) int { return rank(a) - rank(b) })
	return list[:min(n, len(list))]
}

// remove deletes a managed instance and its machine. The target size is not its
// business.
func (c *Cloud) remove(now time.Time, g *group, m *member, cause Cause) {
	m.action, m.tryAt = actDeleting, time.Time{}
	if m.vm == nil {
		c.forget(now, g, m)
		return
	}
	c.stop(now, m.vm, cause)
	if !now.Before(m.vm.goneAt) {
		c.forget(now, g, m)
	}
}

// forget takes a managed instance off the list, now or when lists have noticed.
func (c *Cloud) forget(now time.Time, g *group, m *member) {
	m.goneAt = now
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	if g.Faults.ListLag > 0 {
		g.ghosts = append(g.noticed(now), m)
	}
}

// recreate ends the machine of a managed instance and makes another of the same
// name.
func (c *Cloud) recreate(now time.Time, m *member, cause Cause) {
	m.action = actRecreating
	if m.vm == nil {
		m.tryAt = now
		return
	}
	c.stop(now, m.vm, cause)
	m.tryAt = m.vm.goneAt
}

// lose is a machine that ends without the group. A group repairs by recreating
// (instanceLifecyclePolicy.defaultActionOnFailure); one that must not keeps a
// managed instance that does not run.
func (c *Cloud) lose(now time.Time, vm *machine, cause Cause) {
	c.stop(now, vm, cause)
	g, m := vm.group, c.memberOf(vm)
	switch {
	case m == nil || m.action == actDeleting: // nobody's, or going anyway
	case g.repairs():
		m.action, m.tryAt = actRecreating, vm.goneAt
	default:
		m.action = actNone
	}
}

// memberOf is the managed instance of a machine; nil if it was abandoned.
func (c *Cloud) memberOf(vm *machine) *member {
	for _, m := range vm.group.members {
		if m.vm == vm {
			return m
		}
	}
	return nil
}

// try makes the machine of a managed instance, unless a fault says that there is
// no capacity or quota. The group tries again for ever (ManagedInstance,
// currentAction CREATING), and its target size stays.
func (c *Cloud) try(now time.Time, g *group, m *member) {
	if g.TargetShape == ShapeBalanced || g.TargetShape == ShapeAny {
		if _, failed := g.noCapacity[m.zone]; failed {
			m.zone = c.pickZone(now, g)
		}
	}
	before := m.vm
	m.vm = nil
	for _, e := range g.Faults.Errors {
		if !e.meets(now.Sub(c.start), m.zone) || !c.chance(ratioOr1(e.Ratio)) {
			continue
		}
		if e.Code.isCapacity() {
			g.noCapacity[m.zone] = now
		}
		m.lastErr = &failure{
			at: now, code: string(e.Code), message: e.text(c.project, m.zone, g.Region),
			instance: m.name, zone: m.zone, action: m.action,
		}
		g.errors = append(g.errors, *m.lastErr)
		g.errors = g.errors[max(0, len(g.errors)-maxErrors):]
		m.tryAt = now.Add(g.Faults.retry())
		return
	}
	delete(g.noCapacity, m.zone)
	if !g.Faults.Recreate.KeepID {
		before = nil
	}
	c.launch(now, g, m, before)
}
