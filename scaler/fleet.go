package scaler

import (
	"context"
	"maps"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// Fleet looks at the waiting jobs, the machines and all pools' supply at once, so
// that a job which several pools could take is demand for one of them only.
type Fleet struct {
	demand      Demand
	machines    Machines
	staleAfter  time.Duration
	silentAfter time.Duration
	counts      Counts // nil: none
	events      *Events

	// Of one look, and kept for the next: nobody else holds on to them.
	supplies []demand.Supply
	runners  []demand.Runners
}

// minStaleAfter is the least age at which a view is stale: half a minute without
// news is more than any source's normal delay.
const minStaleAfter = 30 * time.Second

// NewFleet returns a fleet that judges a view stale after three ticks, and after
// 30 s at the earliest, and a machine silent after silentAfter.
func NewFleet(d Demand, m Machines, tick, silentAfter time.Duration, events *Events) *Fleet {
	return &Fleet{demand: d, machines: m, staleAfter: max(3*tick, minStaleAfter), silentAfter: silentAfter, events: events}
}

// Picture is one look at the whole fleet. It is a value; do not change it.
type Picture struct {
	At          time.Time
	Demand      policy.Freshness
	DemandWhy   string // what is wrong when Demand isn't Whole
	Classes     []demand.Class
	Attribution demand.Attribution
	Signals     []spillway.Signal
	// MachinesKnown is false when the machines could not be read: Machines is nil
	// then, which says nothing.
	MachinesKnown bool
	Machines      map[string][]router.Machine // by pool

	viewAt time.Time            // when the waiting jobs were such
	listed map[string]time.Time // the same by origin, where it was earlier
	lacks  map[string]string    // why a part of an origin's jobs is not known, where Demand is Partial for these and lackOf only; both nil = for all
	lackOf map[string]string    // the same by pool
	limits map[string]Limits    // of pools of which not everything can be known
	begun  map[string]int       // jobs by pool that have a place and may be among Classes
	unseen map[string]int       // jobs by pool that have a place and are in neither
	offers map[string]counted   // what attribution counted on, by pool
	rooms  map[string]router.Room
	counts map[string]count // of the jobs, by pool; only for pools that have a source of counts
}

// Rooms is how much each pool can grow, for the router: until when a job waits for a pool
// depends on it.
func (p *Picture) Rooms() map[string]router.Room { return p.rooms }

// DemandFor is how much is known of the jobs that may be a pool's, and when they were such.
func (p *Picture) DemandFor(pool *spillway.Pool) (known policy.Freshness, at time.Time) {
	known, _ = p.demandFor(pool)
	return known, p.listedAt(pool.Capability.Origin)
}

// Concerns reports whether the picture gives the pool something new to decide on,
// compared with the one before; nil before the first. What doesn't concern it waits
// for the pool's own tick.
func (p *Picture) Concerns(before *Picture, pool string) bool {
	sameKeys := func(a, b map[string]string) bool {
		return maps.EqualFunc(a, b, func(string, string) bool { return true })
	}
	return before == nil || before.Attribution.Pools[pool] != p.Attribution.Pools[pool] || before.Demand != p.Demand ||
		!sameKeys(before.lacks, p.lacks) || !sameKeys(before.lackOf, p.lackOf) || !sameMarks(before.Machines[pool], p.Machines[pool])
}

// demandFor is how much is known of the jobs that may be a pool's, and what is wrong when
// that isn't all: a source that is away keeps nobody from knowing what the others say.
func (p *Picture) demandFor(pool *spillway.Pool) (known policy.Freshness, why string) {
	if p.Demand != policy.Partial || len(p.lacks)+len(p.lackOf) == 0 {
		return p.Demand, p.DemandWhy
	}
	if why, lacking := p.lackOf[pool.Name]; lacking {
		return p.Demand, why
	}
	if why, lacking := p.lacks[pool.Capability.Origin]; lacking {
		return p.Demand, why
	}
	return policy.Whole, ""
}

// listedAt is when the waiting jobs of an origin were such.
func (p *Picture) listedAt(origin string) time.Time {
	if at, known := p.listed[origin]; known {
		return at
	}
	return p.viewAt
}

// mark is what of a machine can change a decision.
type mark struct {
	inUse               int
	draining, acked     bool
	notice              string
	stopping, unhealthy bool
	paused              bool
}

func markOf(m *router.Machine) mark {
	return mark{
		inUse: m.InUse(), draining: m.Draining, acked: !m.DrainAckedAt.IsZero(), notice: m.InterruptionKind,
		stopping: !m.StoppingSince.IsZero(), unhealthy: m.Unhealthy != "", paused: m.Paused,
	}
}

// sameMarks compares the machines of a pool in two pictures. Nearly always they come in
// the same order, and are compared as they come.
func sameMarks(before, now []router.Machine) bool {
	i := 0
	for i < len(before) && i < len(now) && before[i].ID == now[i].ID {
		if markOf(&before[i]) != markOf(&now[i]) {
			return false
		}
		i++
	}
	return i == len(before) && i == len(now) || maps.Equal(marks(before[i:]), marks(now[i:]))
}

func marks(machines []router.Machine) map[spillway.MachineID]mark {
	out := make(map[spillway.MachineID]mark, len(machines))
	for i := range machines {
		out[machines[i].ID] = markOf(&machines[i])
	}
	return out
}

// Observe looks once. What can't be read is marked unknown in the picture. It is for one
// goroutine at a time.
func (f *Fleet) Observe(ctx context.Context, now time.Time, pools []*Pool) *Picture {
	pic := &Picture{At: now, offers: make(map[string]counted, len(pools)), rooms: make(map[string]router.Room, len(pools))}
	f.readDemand(ctx, pic)
	f.readMachines(ctx, pic)
	f.readLimits(pic, pools)
	f.readCounts(pic, pools)
	f.supplies, f.runners = f.supplies[:0], f.runners[:0]
	for _, p := range pools {
		machines := pic.Machines[p.Name()]
		o := p.offer.Load()
		s := p.supply(now, o, machines, f.silentAfter)
		s.Free += pic.begun[p.Name()]
		pic.offers[p.Name()] = counted{offer: o.offer, coming: s.Booting}
		pic.rooms[p.Name()] = o.roomIn(now, &s)
		f.supplies = append(f.supplies, s)
		f.runners = append(f.runners, demand.Runners{Capability: p.def.Load().Capability, Live: liveMachines(now, machines, f.silentAfter)})
	}
	pic.Attribution = demand.Attribute(pic.Classes, f.supplies, router.Fits)
	pic.Signals = demand.Signals(pic.Classes, f.runners, router.Fits, now)
	f.events.looked(pic)
	return pic
}

func (f *Fleet) readDemand(ctx context.Context, pic *Picture) {
	view, err := f.demand.Demand(ctx)
	switch {
	case err != nil:
		f.events.trouble(TroubleInfo{At: pic.At, Doing: "reading the waiting jobs", Err: err})
		pic.Demand, pic.DemandWhy = policy.Absent, "the waiting jobs could not be read: "+oneLine(err)
	case pic.At.Sub(view.At) > f.staleAfter:
		pic.Demand, pic.DemandWhy = policy.Partial, "the view of the waiting jobs is "+pic.At.Sub(view.At).Round(time.Second).String()+" old"
	case view.Partial:
		pic.Demand, pic.DemandWhy = policy.Partial, "a part of the waiting jobs could not be read"
		pic.lacks, pic.lackOf = view.Lacking, view.LackingPools
	}
	pic.Classes, pic.viewAt, pic.listed = view.Classes, view.At, view.Listed
}

func (f *Fleet) readMachines(ctx context.Context, pic *Picture) {
	machines, err := f.machines.Machines(ctx)
	if err != nil {
		f.events.trouble(TroubleInfo{At: pic.At, Doing: "reading the machines", Err: err})
		return
	}
	pic.MachinesKnown = true
	pic.Machines = make(map[string][]router.Machine)
	// The store tells of one pool after the other: each run is that pool's, uncopied.
	for len(machines) > 0 {
		pool, n := machines[0].Pool, 1
		for n < len(machines) && machines[n].Pool == pool {
			n++
		}
		if before := pic.Machines[pool]; before != nil {
			pic.Machines[pool] = append(before, machines[:n]...)
		} else {
			pic.Machines[pool] = machines[:n:n]
		}
		machines = machines[n:]
	}
}

func (f *Fleet) readLimits(pic *Picture, pools []*Pool) {
	e, ok := f.machines.(Evidence)
	if !ok {
		return
	}
	pic.limits = make(map[string]Limits, len(pools))
	pic.begun, pic.unseen = make(map[string]int, len(pools)), make(map[string]int, len(pools))
	for _, p := range pools {
		if l := e.Limits(p.Name()); l != (Limits{}) {
			pic.limits[p.Name()] = l
		}
		if n := e.Begun(p.Name(), pic.listedAt(p.def.Load().Capability.Origin)); n > 0 {
			pic.begun[p.Name()] = n
		}
		if n := e.Unseen(p.Name()); n > 0 {
			pic.unseen[p.Name()] = n
		}
	}
}

func liveMachines(now time.Time, machines []router.Machine, silentAfter time.Duration) int {
	n := 0
	for i := range machines {
		if machines[i].Connected && now.Sub(machines[i].HeardAt) < silentAfter {
			n++
		}
	}
	return n
}

// serves reports whether a machine would take jobs if no order kept it from that.
func serves(now time.Time, m *router.Machine, silentAfter time.Duration) bool {
	leaves := m.InterruptionKind != "" && m.InterruptionKind != router.InterruptionRebalance
	return m.Connected && m.StoppingSince.IsZero() && m.Unhealthy == "" && !m.Paused && !leaves && now.Sub(m.HeardAt) < silentAfter
}

// freePlaces counts the places that machines give away now [jobs].
func freePlaces(now time.Time, machines []router.Machine, maxUses int, silentAfter time.Duration) int {
	n := 0
	for i := range machines {
		m := &machines[i]
		if serves(now, m, silentAfter) && !m.Draining {
			free := m.Capacity - m.InUse()
			if maxUses > 0 {
				free = min(free, maxUses-m.Uses)
			}
			n += max(0, free)
		}
	}
	return n
}

// drainingPlaces counts the places of machines that are ordered to take no more
// jobs [jobs].
func drainingPlaces(now time.Time, machines []router.Machine, silentAfter time.Duration) int {
	n := 0
	for i := range machines {
		m := &machines[i]
		if serves(now, m, silentAfter) && m.Draining {
			n += max(0, m.Capacity-m.InUse())
		}
	}
	return n
}
