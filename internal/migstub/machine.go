package migstub

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// The current actions that this stub knows, as the API names them.
const (
	actNone       = "NONE"
	actCreating   = "CREATING"
	actRecreating = "RECREATING"
	actDeleting   = "DELETING"
	actVerifying  = "VERIFYING"
)

// member is a managed instance: a name that the group wants a machine for.
type member struct {
	name, zone string
	action     string // creating, recreating, deleting, or none: see (*group).action
	addedAt    time.Time
	goneAt     time.Time // it was removed then; zero = it is there
	tryAt      time.Time // when a machine is tried for next; zero = never
	lastErr    *failure  // of the last try
	vm         *machine  // nil = there is none
}

// machine is one virtual machine.
type machine struct {
	group      *group
	name, zone string
	id         uint64
	createdAt  time.Time
	launchedAt time.Time
	readyAt    time.Time
	ready      bool
	registers  bool
	spot       bool
	preemptAt  time.Time // zero = nobody wants it back
	healAt     time.Time // autohealing recreates it then; zero = it does not
	stoppedAt  time.Time // zero = it runs or boots
	goneAt     time.Time // when stopping is over; valid once stoppedAt is
	preempted  bool
}

func (m *machine) idText() string { return strconv.FormatUint(m.id, 10) }

// networkIP is the machine's address, told apart by its id.
func (m *machine) networkIP() string {
	return fmt.Sprintf("10.%d.%d.%d", byte(m.id>>16), byte(m.id>>8), byte(m.id))
}

// status is the machine's own state, as the API names it. Of the time until it is
// ready, a quarter is provisioning and a quarter staging.
func (m *machine) status(now time.Time) string {
	boot := m.readyAt.Sub(m.launchedAt)
	switch age := now.Sub(m.launchedAt); {
	case !m.stoppedAt.IsZero() && now.Before(m.goneAt):
		return "STOPPING"
	case !m.stoppedAt.IsZero():
		return "TERMINATED"
	case m.ready:
		return "RUNNING"
	case age < boot/4:
		return "PROVISIONING"
	case age < boot/2:
		return "STAGING"
	default:
		return "RUNNING"
	}
}

// actionOf is what the group is doing with a managed instance at now. It creates
// until the machine runs; with a health check it verifies until it is ready.
func (g *group) actionOf(m *member, now time.Time) string {
	if m.action != actCreating && m.action != actRecreating {
		return m.action
	}
	switch {
	case m.vm == nil || m.vm.status(now) != "RUNNING":
		return m.action
	case g.Autohealing != nil && !m.vm.ready:
		return actVerifying
	default:
		return actNone
	}
}

// addMember adds a managed instance that has no machine yet.
func (c *Cloud) addMember(now time.Time, g *group) *member {
	m := &member{name: c.newName(g), zone: c.pickZone(now, g), action: actCreating, addedAt: now, tryAt: now}
	g.members = append(g.members, m)
	return m
}

// newName is the base name and four random characters (InstanceGroupManager,
// baseInstanceName), other than those of all there are.
func (c *Cloud) newName(g *group) string {
	const letters = "0123456789bcdfghjklmnpqrstvwxz"
	for {
		name := []byte(g.BaseInstanceName + "-")
		for range 4 {
			name = append(name, letters[c.rng.IntN(len(letters))])
		}
		taken := func(m *member) bool { return m.name == string(name) }
		if !slices.ContainsFunc(g.members, taken) && !slices.ContainsFunc(g.ghosts, taken) {
			return string(name)
		}
	}
}

// pickZone is the zone with the fewest members. The shapes that go where there are
// resources leave out zones that had none just now, if another is left
// (compute/docs/instance-groups/regional-mig-distribution-shape).
func (c *Cloud) pickZone(now time.Time, g *group) string {
	zones := g.zones()
	if g.TargetShape == ShapeBalanced || g.TargetShape == ShapeAny {
		good := slices.DeleteFunc(slices.Clone(zones), func(z string) bool {
			failed, ok := g.noCapacity[z]
			return ok && now.Sub(failed) < 2*g.Faults.retry()
		})
		if len(good) > 0 {
			zones = good
		}
	}
	if g.TargetShape == ShapeAnySingleZone {
		zones = zones[:1]
	}
	count := make(map[string]int, len(zones))
	for _, m := range g.members {
		count[m.zone]++
	}
	return slices.MinFunc(zones, func(a, b string) int { return count[a] - count[b] })
}

// launch gives a member a machine; after is the one whose identity it takes over,
// if it does.
func (c *Cloud) launch(now time.Time, g *group, m *member, after *machine) {
	g.launches++
	never, n := g.Faults.NeverRegister, g.launches
	vm := c.newMachine(now, g, m)
	vm.readyAt = now.Add(c.bootTime(g.Faults.Boot))
	vm.registers = !never.All && (never.Every == 0 || n%never.Every != 0) && !slices.Contains(never.IDs, m.name)
	if r := g.Faults.Recreate; r.Every > 0 && n%r.Every == 0 {
		vm.healAt = vm.readyAt.Add(r.After)
	}
	if after != nil {
		vm.id, vm.createdAt = after.id, after.createdAt
	}
	c.tell(vm.change(now, Launched))
	if !vm.readyAt.After(now) {
		c.becomeReady(now, vm)
	}
}

// settle gives a member a machine that has run for long.
func (c *Cloud) settle(now time.Time, g *group, m *member) {
	g.launches++
	m.addedAt = time.Time{} // lists have noticed it
	vm := c.newMachine(now, g, m)
	vm.ready, vm.registers = true, !slices.Contains(g.Faults.NeverRegister.IDs, m.name)
}

func (c *Cloud) newMachine(now time.Time, g *group, m *member) *machine {
	m.vm = &machine{
		group: g, name: m.name, zone: m.zone, id: c.newID(), spot: g.Template.Spot || g.Template.Preemptible,
		createdAt: now, launchedAt: now, readyAt: now,
	}
	m.lastErr, m.tryAt = nil, time.Time{}
	return m.vm
}

func (c *Cloud) becomeReady(now time.Time, vm *machine) {
	vm.ready = true
	ch := vm.change(now, Ready)
	ch.Registers = vm.registers
	c.tell(ch)
}

func (m *machine) change(at time.Time, kind ChangeKind) Change {
	return Change{At: at, Kind: kind, Group: m.group.Name, ID: m.idText(), Name: m.name, Zone: m.zone}
}

// stop ends a machine: it is stopping from now on and gone after a while.
func (c *Cloud) stop(now time.Time, vm *machine, cause Cause) {
	if !vm.stoppedAt.IsZero() {
		return
	}
	vm.stoppedAt, vm.goneAt = now, now.Add(vm.group.Faults.Stop)
	vm.preemptAt, vm.healAt = time.Time{}, time.Time{}
	ch := vm.change(now, Ended)
	ch.Cause = cause
	c.tell(ch)
}

// bootTime is how long the next machine of the group takes.
func (c *Cloud) bootTime(b Boot) time.Duration {
	if b.P95 <= b.P50 {
		return b.P50
	}
	const z95 = 1.6448536269514722 // the standard normal distribution's 95 % quantile
	sigma := math.Log(float64(b.P95)/float64(b.P50)) / z95
	d := float64(b.P50) * math.Exp(sigma*c.rng.NormFloat64())
	return time.Duration(min(d, float64(MaxDuration))).Round(time.Millisecond)
}
