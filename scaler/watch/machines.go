package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// Options is what machines are watched with.
type Options struct {
	Registry Registry
	Boards   Boards
	Tenure   scaler.Tenure // who scales a pool watches it
	Lists    *Lists
	GitLab   GitLab  // nil: not asked about any pool
	Metrics  Metrics // nil: no pool's are read
	// HookVerified reports whether the plugin of a pool has found a terminating hook of
	// its group that it can complete; nil = none has.
	HookVerified func(pool string) bool
	// Fresh is how old a fact may be to prove anything; 0 = spillway.SilentAfter.
	Fresh time.Duration
	// Trouble is told of what failed and kept nothing from being known; nil = nobody is.
	Trouble func(pool string, err error)
	Now     func() time.Time // nil = time.Now
}

// Machines is the machines of all pools. Those of watched pools are what is known of
// them from everywhere; the others are the registry's.
type Machines struct {
	Options

	mu struct {
		sync.Mutex
		pools  []Pool
		limits map[string]scaler.Limits
		begun  map[string][]begin
		unseen map[string]int
	}
	look sync.Mutex // one look at a time; it guards watched
	// watched is what is remembered of each watched pool from look to look.
	watched map[string]*memory
}

// memory is what one look leaves for the next.
type memory struct {
	orders map[spillway.MachineID]order          // in force
	asked  map[spillway.MachineID]router.Machine // the last record of machines that have a job
	// bookSince is since when the book has every job, by the store's clock, and ourSince
	// is that by ours.
	bookSince, ourSince time.Time
	disowned            time.Time // when it was last put down that the book misses jobs
	shown               shown
	// busy is when machines were last seen with a job: the router, which writes that down
	// in other pools, knows nothing of theirs.
	busy map[spillway.MachineID]time.Time
	// inUse is the jobs of each machine at the last look; nil = there was none.
	inUse    map[spillway.MachineID]int
	unseenAt time.Time // since when GitLab shows jobs that no machine tells of
	// systems are the machines that GitLab last listed of each runner: of one that is
	// deleted it lists none.
	systems map[string][]string
}

// order is a drain and when it was first seen here.
type order struct {
	router.DrainOrder
	seen time.Time
}

var (
	_ scaler.Machines = (*Machines)(nil)
	_ scaler.Evidence = (*Machines)(nil)
)

// New returns machines that watch pools.
func New(o Options, pools []Pool) *Machines {
	if o.Fresh == 0 {
		o.Fresh = spillway.SilentAfter
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HookVerified == nil {
		o.HookVerified = func(string) bool { return false }
	}
	if o.Trouble == nil {
		o.Trouble = func(string, error) {}
	}
	m := &Machines{Options: o, watched: make(map[string]*memory)}
	m.mu.limits, m.mu.begun, m.mu.unseen = make(map[string]scaler.Limits), make(map[string][]begin), make(map[string]int)
	m.SetPools(pools)
	return m
}

// SetPools changes the pools to be watched, as after a reload.
func (m *Machines) SetPools(pools []Pool) {
	keep := make(map[string]bool, len(pools))
	for _, p := range pools {
		keep[p.Name] = true
	}
	m.Lists.forget(keep)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.pools = slices.Clone(pools)
	maps.DeleteFunc(m.mu.limits, func(pool string, _ scaler.Limits) bool { return !keep[pool] })
	maps.DeleteFunc(m.mu.begun, func(pool string, _ []begin) bool { return !keep[pool] })
	maps.DeleteFunc(m.mu.unseen, func(pool string, _ int) bool { return !keep[pool] })
}

// Machines implements scaler.Machines.
func (m *Machines) Machines(ctx context.Context) ([]router.Machine, error) {
	m.look.Lock()
	defer m.look.Unlock()
	records, err := m.Registry.Machines(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	pools := m.mu.pools
	m.mu.Unlock()
	byPool, out := split(records, pools)
	runners := m.runners(ctx, pools)
	maps.DeleteFunc(m.watched, func(pool string, _ *memory) bool { _, still := byPool[pool]; return !still })
	for _, p := range pools {
		v, err := m.watch(ctx, p, byPool[p.Name], runners)
		if err != nil {
			return nil, fmt.Errorf("watching pool %s: %w", p.Name, err)
		}
		out = append(out, v.Machines...)
		m.setLimits(p.Name, v)
	}
	return out, nil
}

// split sorts records into those of each pool and those of others. It counts first: a
// record is large, and there are thousands at each look.
func split(records []router.Machine, pools []Pool) (byPool map[string][]router.Machine, others []router.Machine) {
	count := make(map[string]int, len(pools))
	for i := range records {
		count[records[i].Pool]++
	}
	byPool = make(map[string][]router.Machine, len(pools))
	for _, p := range pools {
		byPool[p.Name] = make([]router.Machine, 0, count[p.Name])
	}
	others = make([]router.Machine, 0, len(records))
	for i := range records {
		if list, watched := byPool[records[i].Pool]; watched {
			byPool[records[i].Pool] = append(list, records[i])
		} else {
			others = append(others, records[i])
		}
	}
	return byPool, others
}

// runners is GitLab's word. Where it can't be read nothing of GitLab is known, which
// holds what needs it and nothing else.
func (m *Machines) runners(ctx context.Context, pools []Pool) map[int64]collect.RunnerState {
	if m.GitLab == nil || !slices.ContainsFunc(pools, func(p Pool) bool { return len(p.Runners) > 0 }) {
		return nil
	}
	runners, err := m.GitLab.Runners(ctx)
	if err != nil {
		m.Trouble("", fmt.Errorf("reading GitLab's runners: %w", err))
		return nil
	}
	return runners
}

// watch judges a pool that this replica scales, or reads what the one that does has
// shown.
func (m *Machines) watch(ctx context.Context, p Pool, records []router.Machine, runners map[int64]collect.RunnerState) (evidence.Verdict, error) {
	mem := m.watched[p.Name]
	if mem == nil {
		mem = &memory{}
		m.watched[p.Name] = mem
	}
	epoch, _, ours := m.Tenure.Hold(p.Name, m.Now())
	if !ours || m.Lists.of(p.Name).at.IsZero() {
		v, found, err := m.shown(ctx, p.Name, mem)
		switch {
		case err != nil:
			return evidence.Verdict{}, err
		case found:
			return v, nil
		case !ours:
			return evidence.Verdict{Machines: records}, nil
		}
	}
	facts, err := m.facts(ctx, p, mem, records, runners)
	if err != nil {
		return evidence.Verdict{}, err
	}
	v := evidence.Judge(facts, m.Now())
	mem.noteUse(v.Machines)
	v.Unseen = mem.lag(v.Unseen, m.Now(), m.Fresh)
	if p.Mode == evidence.Observe && !p.Hooked {
		m.noteBegun(p.Name, mem, v.Machines)
	}
	if err := m.show(ctx, p.Name, mem, epoch, v); err != nil {
		m.Trouble(p.Name, fmt.Errorf("showing the machines to the other replicas: %w", err))
	}
	return v, nil
}

// beginsFor is how long a begin is remembered: a list of jobs that is older is stale.
const beginsFor = time.Minute

// begin is jobs that were seen to have begun.
type begin struct {
	at   time.Time // when their machine said so: they had begun by then
	jobs int
}

// noteBegun remembers which machines have more jobs than at the last look.
func (m *Machines) noteBegun(pool string, mem *memory, machines []router.Machine) {
	var begun []begin
	inUse := make(map[spillway.MachineID]int, len(machines))
	for i := range machines {
		n := machines[i].InUse()
		inUse[machines[i].ID] = n
		if more := n - mem.inUse[machines[i].ID]; mem.inUse != nil && more > 0 { // else it isn't known since when
			begun = append(begun, begin{at: machines[i].HeartbeatAt, jobs: more})
		}
	}
	mem.inUse = inUse
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Now()
	list := slices.DeleteFunc(m.mu.begun[pool], func(b begin) bool { return now.Sub(b.at) > beginsFor })
	m.mu.begun[pool] = append(list, begun...)
}

// Begun implements scaler.Evidence.
func (m *Machines) Begun(pool string, after time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, b := range m.mu.begun[pool] {
		if b.at.After(after) {
			n += b.jobs
		}
	}
	return n
}

// Unseen implements scaler.Evidence.
func (m *Machines) Unseen(pool string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.unseen[pool]
}

// lag is how many of the jobs that no machine tells of one will tell of soon. Those that
// none has told of for as long as a fact is fresh run somewhere else.
func (mem *memory) lag(unseen int, now time.Time, fresh time.Duration) int {
	switch {
	case unseen == 0:
		mem.unseenAt = time.Time{}
	case mem.unseenAt.IsZero():
		mem.unseenAt = now
	case now.Sub(mem.unseenAt) >= fresh:
		return 0
	}
	return unseen
}

// noteUse adds when machines were last seen with a job to when their records say.
func (mem *memory) noteUse(machines []router.Machine) {
	busy := make(map[spillway.MachineID]time.Time, len(machines))
	for i := range machines {
		m := &machines[i]
		at := mem.busy[m.ID]
		if m.InUse() > 0 && m.HeartbeatAt.After(at) {
			at = m.HeartbeatAt
		}
		if at.IsZero() {
			continue
		}
		busy[m.ID] = at
		if at.After(m.LastUsedAt) {
			m.LastUsedAt = at
		}
	}
	mem.busy = busy
}

func (m *Machines) setLimits(pool string, v evidence.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.unseen[pool] = v.Unseen
	m.mu.limits[pool] = scaler.Limits{StoppedByHook: v.StoppedByHook, CannotDrain: v.CannotDrain, Unaccounted: v.Unaccounted, CannotServe: v.CannotServe}
}

// Limits implements scaler.Evidence.
func (m *Machines) Limits(pool string) scaler.Limits {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.limits[pool]
}

// CannotDrain is why nothing of a pool can be removed; empty = some can, as of the last
// look.
func (m *Machines) CannotDrain(pool string) string { return m.Limits(pool).CannotDrain }

// OrderDrain implements scaler.Machines.
func (m *Machines) OrderDrain(ctx context.Context, pool string, orders []router.DrainOrder) error {
	return m.Registry.OrderDrain(ctx, pool, orders)
}

// RemoveMachines implements scaler.Machines.
func (m *Machines) RemoveMachines(ctx context.Context, pool string, ids []spillway.MachineID) error {
	return m.Registry.RemoveMachines(ctx, pool, ids)
}
