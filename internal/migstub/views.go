package migstub

import "time"

// Instance is a machine that exists.
type Instance struct {
	Group, Name, ID, Zone string
	LaunchedAt, ReadyAt   time.Time
	Ready                 bool
	Registers             bool
	Spot                  bool
	PreemptAt             time.Time // zero = it is not taken back
}

// GroupView is a group as it really is, without the delays of lists.
type GroupView struct {
	Name     string
	Target   int // target size
	Members  int // managed instances, with and without a machine
	Live     int // machines that have not ended, booting ones too
	Deleting int
	Stable   bool
	Errors   int // failed tries that listErrors shows
}

// Group is the group at this moment; ok is false if there is none.
func (c *Cloud) Group(name string) (view GroupView, ok bool) {
	c.do(func(now time.Time) {
		g := c.group(name)
		if ok = g != nil; !ok {
			return
		}
		view = GroupView{
			Name: name, Target: g.target, Members: len(g.members), Live: len(g.live()),
			Stable: g.stable(now), Errors: len(g.errors),
		}
		for _, m := range g.members {
			if m.action == actDeleting {
				view.Deleting++
			}
		}
	})
	return view, ok
}

// Existing is the group's machines that have not ended, by launch of their name.
func (c *Cloud) Existing(group string) (list []Instance) {
	c.do(func(time.Time) {
		g := c.group(group)
		if g == nil {
			return
		}
		for _, vm := range g.live() {
			list = append(list, Instance{
				Group: group, Name: vm.name, ID: vm.idText(), Zone: vm.zone,
				LaunchedAt: vm.launchedAt, ReadyAt: vm.readyAt, Ready: vm.ready,
				Registers: vm.registers, Spot: vm.spot, PreemptAt: vm.preemptAt,
			})
		}
	})
	return list
}

// Live is how many machines of the group have not ended, booting ones too.
func (c *Cloud) Live(group string) (n int) {
	c.do(func(time.Time) {
		if g := c.group(group); g != nil {
			n = len(g.live())
		}
	})
	return n
}

func (g *group) live() []*machine {
	var list []*machine
	for _, m := range g.members {
		if m.vm != nil && m.vm.stoppedAt.IsZero() {
			list = append(list, m.vm)
		}
	}
	return list
}

// stable is status.isStable: no instance undergoes a change, none is planned, and
// the group itself is not being modified (InstanceGroupManagerStatus).
func (g *group) stable(now time.Time) bool {
	if g.changesOpen > 0 {
		return false
	}
	for _, m := range g.members {
		if g.actionOf(m, now) != actNone {
			return false
		}
	}
	return true
}
