package asgstub

import (
	"cmp"
	"slices"
	"time"
)

// GroupView is a group as it is, not as the service shows it: without delay and
// staleness.
type GroupView struct {
	Name              string
	Min, Max, Desired int
	Outstanding       int      // asked for and not there
	Suspended         []string // processes
	Instances         []InstanceView
}

// InstanceView is an instance as it is.
type InstanceView struct {
	ID, Group, Zone string
	State           string // of its lifecycle
	EC2State        string
	Spot            bool
	Protected       bool
	Healthy         bool
	Registers       bool // its runner registers when it is ready
	Ready           bool
	LaunchedAt      time.Time
	ReadyAt         time.Time
	EndedAt         time.Time // shut down; zero = it runs
	Cause           Cause     // why it ended, or ends
}

// Group returns a group; ok is false if there is none of that name.
func (c *Cloud) Group(name string) (v GroupView, ok bool) {
	ok = c.withGroup(name, func(g *group) {
		v = GroupView{
			Name: g.name, Min: g.min, Max: g.max, Desired: g.desired, Outstanding: g.outstanding(),
			Suspended: slices.Clone(g.suspended),
		}
		for _, in := range g.instances {
			v.Instances = append(v.Instances, in.view())
		}
	})
	return v, ok
}

// Groups returns the names of the groups, sorted.
func (c *Cloud) Groups() (names []string) {
	c.do(func() {
		for _, g := range c.mu.order {
			names = append(names, g.name)
		}
	})
	return names
}

// Existing returns the instances of a group that have not been shut down, those of
// the warm pool and detached ones too, by launch.
func (c *Cloud) Existing(name string) []InstanceView {
	return c.instancesOf(name, (*instance).runs)
}

// Instances returns the instances that a group has or had, by launch.
func (c *Cloud) Instances(name string) []InstanceView {
	return c.instancesOf(name, func(*instance) bool { return true })
}

// Live is the number of instances that Existing returns: those that bill.
func (c *Cloud) Live(name string) int { return len(c.Existing(name)) }

// Instance returns one instance; ok is false if there never was one.
func (c *Cloud) Instance(id string) (v InstanceView, ok bool) {
	c.do(func() {
		if in := c.mu.instances[id]; in != nil {
			v, ok = in.view(), true
		}
	})
	return v, ok
}

func (c *Cloud) instancesOf(name string, keep func(*instance) bool) (out []InstanceView) {
	c.withGroup(name, func(g *group) {
		for _, list := range [][]*instance{g.instances, g.warm, g.gone} {
			for _, in := range list {
				if keep(in) {
					out = append(out, in.view())
				}
			}
		}
	})
	slices.SortStableFunc(out, func(a, b InstanceView) int {
		return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func (in *instance) view() InstanceView {
	return InstanceView{
		ID: in.id, Group: in.g.name, Zone: in.zone, State: in.state, EC2State: in.ec2, Spot: in.spot,
		Protected: in.protected, Healthy: !in.unhealthy, Registers: in.registers, Ready: in.ready,
		LaunchedAt: in.launched, ReadyAt: in.readyAt, EndedAt: in.ended, Cause: in.cause,
	}
}
