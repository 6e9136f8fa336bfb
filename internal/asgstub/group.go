package asgstub

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// maxGone bounds the ended instances that a group remembers, the newest [instances].
const maxGone = 20_000

// group is one Auto Scaling group. The Cloud's lock guards it.
type group struct {
	c       *Cloud
	cfg     GroupConfig
	name    string
	arn     string
	created time.Time
	deleted bool
	rng     *rand.Rand
	faults  *faultState

	template          template
	subnets           string
	policies          []string // termination policies
	grace             Seconds
	min, max, desired int
	surplus           int // launched on purpose beyond desired, to take another one later
	zones             []string
	protectNew        bool
	rebalances        bool
	cooldown          Seconds
	suspended         []string // in the order of processes
	tags              []Tag    // by key
	hooks             []*hook  // by name
	refreshes         []*refresh

	instances   []*instance // that the group has, by launch
	warm        []*instance // in the warm pool, by launch
	gone        []*instance // ended, or left the group, by their end
	launches    int         // so far
	requests    []request
	requested   int         // requests so far
	activities  []*activity // the oldest first
	why         string      // the last reason for another desired capacity, as an activity says it
	stale       int         // what desired was before it changed at staleSince
	staleSince  time.Time
	lastScaling time.Time // for the cooldown
	rebalancing bool
}

// request is instances that were asked for and are not there yet.
type request struct {
	count int
	never bool // they do not come
	no    int  // its number, so that its timer finds it
}

// AddGroup adds a group with cfg.Desired instances in service. The observer is not
// told of these: see Existing. A cfg that is not valid, or has the name of another
// group, panics.
func (c *Cloud) AddGroup(cfg GroupConfig) {
	must(cfg.Validate())
	c.do(func() {
		if c.mu.groups[cfg.Name] != nil {
			panic(fmt.Sprintf("asgstub: there is a group %q already", cfg.Name))
		}
		if len(c.mu.groups) >= MaxGroups {
			panic(fmt.Sprintf("asgstub: more than %d groups", MaxGroups))
		}
		g := c.newGroup(cfg)
		for range cfg.Desired {
			g.addRunning()
		}
		for range g.warmMissing() {
			g.addWarm().toState(g.warmState())
		}
		if cfg.InstanceRefreshInProgress {
			g.refreshes = append(g.refreshes, &refresh{
				id: g.uuid(), status: refreshInProgress, started: c.mu.now, todo: cfg.Desired, stuck: true,
			})
		}
	})
}

func (c *Cloud) newGroup(cfg GroupConfig) *group {
	g := &group{
		c:          c,
		cfg:        cfg,
		name:       cfg.Name,
		created:    c.mu.now,
		rng:        newRand(c.opts.Seed, cfg.Name),
		faults:     c.mu.faults,
		min:        cfg.Min,
		max:        cfg.Max,
		desired:    cfg.Desired,
		stale:      cfg.Desired,
		zones:      slices.Clone(cfg.Zones),
		protectNew: cfg.NewInstancesProtected,
		rebalances: cfg.CapacityRebalance,
		cooldown:   cmp.Or(cfg.DefaultCooldown, defaultCooldown),
		tags:       slices.Clone(cfg.Tags),
		template:   template{id: templateID, name: templateName, version: "1"},
		policies:   []string{"Default"},
	}
	g.arn = fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s",
		c.region(), c.opts.AccountID, g.uuid(), g.name)
	if len(g.zones) == 0 {
		g.zones = []string{c.region() + "a", c.region() + "b"}
	}
	if cfg.Faults != nil {
		g.faults = newFaultState(*cfg.Faults, c.mu.start)
	}
	slices.SortFunc(g.tags, func(a, b Tag) int { return cmp.Compare(a.Key, b.Key) })
	for _, h := range cfg.Hooks {
		g.putHook(h)
	}
	g.suspend(cfg.SuspendedProcesses)
	c.insertGroup(g)
	return g
}

// defaultCooldown is the service's:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html
const defaultCooldown Seconds = 300

// uuid is an identifier of the usual form, drawn from the group's own randomness.
func (g *group) uuid() string { return uuid(g.rng) }

func uuid(rng *rand.Rand) string {
	a, b := rng.Uint64(), rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		uint32(a>>32), uint16(a>>16), uint16(a)&0xfff, uint16(b>>48)&0x3fff|0x8000, b&0xffffffffffff) //nolint:gosec // parts of it are meant
}

// instanceID is the nth instance that the group launched: 17 hexadecimal digits,
// of the group's name and of n.
func (g *group) instanceID(n int) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(g.name))
	return fmt.Sprintf("i-%08x%09x", h.Sum32(), n)
}

func (g *group) suspend(names []string) {
	g.suspended = slices.DeleteFunc(slices.Clone(processes), func(p string) bool {
		return !g.isSuspended(p) && !slices.Contains(names, p)
	})
}

func (g *group) resume(names []string) {
	g.suspended = slices.DeleteFunc(g.suspended, func(p string) bool { return slices.Contains(names, p) })
}

func (g *group) isSuspended(process string) bool { return slices.Contains(g.suspended, process) }

// setDesired changes the group's number. why is how an activity explains it.
func (g *group) setDesired(n int, why string) {
	if n == g.desired {
		return
	}
	g.why = fmt.Sprintf("At %s %s changing the desired capacity from %d to %d.", seconds(g.c.mu.now), why, g.desired, n)
	g.stale, g.staleSince = g.desired, g.c.mu.now
	g.desired = n
}

// shownDesired is what a reader sees.
func (g *group) shownDesired() int {
	if g.faults.DesiredStale > 0 && g.c.mu.now.Before(g.staleSince.Add(g.faults.DesiredStale)) {
		return g.stale
	}
	return g.desired
}

// active is the instances that count towards desired: those in service and those
// on their way there.
func (g *group) active() int {
	n := 0
	for _, in := range g.instances {
		if in.counts() {
			n++
		}
	}
	return n
}

// outstanding is the instances that were asked for and are not there yet.
func (g *group) outstanding() int {
	n := 0
	for _, r := range g.requests {
		n += r.count
	}
	return n
}

func (g *group) spotNext() bool {
	share := g.cfg.SpotShare
	if share == 0 {
		return false
	}
	spot := 0
	for _, in := range g.instances {
		if in.spot && in.counts() {
			spot++
		}
	}
	return float64(spot) < share*float64(g.active()+1)
}

// nextZone is the zone with the fewest instances.
func (g *group) nextZone() string { return slices.MinFunc(g.zones, g.byInstances) }

func (g *group) byInstances(a, b string) int { return cmp.Compare(g.inZone(a), g.inZone(b)) }

func (g *group) inZone(zone string) int {
	n := 0
	for _, in := range g.instances {
		if in.zone == zone && in.counts() {
			n++
		}
	}
	return n
}
