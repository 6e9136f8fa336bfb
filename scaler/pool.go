package scaler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// WriteDeadline is the longest that a write to a provider may take. A write is
// sent only if the rest of the lease is longer, so that nobody else can hold the
// pool while it is under way.
const WriteDeadline = 8 * time.Second

// refreshSlack: a look may come a tenth of its time early. The pool ticks as often as
// it looks, and a tick that comes a microsecond early must not let the group go
// unseen for a whole one more.
const refreshSlack = 10

// maxRemovalsPerTick bounds the removals of one tick when the policy does not.
const maxRemovalsPerTick = 10

// Pool is the loop of one pool. All but Name, Status and supply belongs to the
// goroutine that calls Tick.
type Pool struct {
	name    string
	policy  policy.Policy
	rules   roster.Rules
	refresh time.Duration // how old a look at the group may be

	group    Group
	machines Machines
	memory   Memory
	tenure   Tenure
	events   *Events

	epoch   uint64 // 0 = not held
	afresh  bool   // what is believed was not persisted: it is read again
	until   time.Time
	book    *roster.Roster
	state   poolState
	saved   []byte       // last persisted state
	encoded bytes.Buffer // the state as it is now; nearly always it is what is saved
	seen    groupView
	last    LedgerEntry
	reacted time.Time // when more was last asked for: older jobs say nothing of how fast we react

	now             func() time.Time
	tickedAt, began time.Time // what the tick was told that the time is, and what now said then

	def    atomic.Pointer[spillway.Pool]
	offer  atomic.Pointer[offered] // what others may count on
	status atomic.Pointer[Status]  // what people see
}

// poolState is what survives a change of owner.
type poolState struct {
	Policy   policy.State  `json:"policy"`
	Roster   roster.Roster `json:"roster"`
	CoolOff  CoolOff       `json:"cool_off"`
	WaitTill time.Time     `json:"wait_till,omitzero"` // throttled, and told when to ask again
	AskedAt  time.Time     `json:"asked_at,omitzero"`  // when more was last asked for
	Failures []string      `json:"failures,omitempty"` // group failures already counted
	Kept     int           `json:"kept,omitempty"`     // the group's desired after the last withdrawal: all that exists
	KeptAt   time.Time     `json:"kept_at,omitzero"`
	Desired  int           `json:"desired"` // the group's, when last seen
	Offer    offer         `json:"offer"`
}

// groupView is the last look at the provider's group.
type groupView struct {
	status     pluginsdk.GroupStatus
	at         time.Time // zero = never seen
	mustLook   bool      // an outcome is unknown: nothing is written before a new look
	err        error     // of the last try
	noWithdraw time.Time // the provider can't take anything back, and is not asked before this
	noHooks    bool
	noReports  bool
	withdrewAt time.Time // when it was last asked to take back what is not there yet
	withdrewTo int       // the desired number that this left
}

// PoolConfig is what a pool's loop is made of.
type PoolConfig struct {
	Pool    spillway.Pool
	Policy  policy.Policy
	Rules   roster.Rules
	Refresh time.Duration // how old a look at the group may be; the tick
	// Now measures how long the calls of a tick take; nil = time.Now. It never changes.
	Now func() time.Time
}

// NewPool returns a loop that has seen nothing yet.
func NewPool(cfg PoolConfig, g Group, m Machines, mem Memory, t Tenure, events *Events) *Pool {
	p := &Pool{
		name: cfg.Pool.Name, policy: cfg.Policy, rules: cfg.Rules, refresh: cfg.Refresh,
		group: g, machines: m, memory: mem, tenure: t, events: events, now: cfg.Now,
	}
	if p.now == nil {
		p.now = time.Now
	}
	p.def.Store(&cfg.Pool)
	p.offer.Store(&offered{}) // nothing, until it is known what there is: the first tick says so at once
	p.status.Store(&Status{Pool: cfg.Pool.Name, Min: cfg.Policy.Min, Max: cfg.Policy.Max})
	return p
}

// Name is the pool's name.
func (p *Pool) Name() string { return p.name }

// Reconfigure changes the rules; it takes effect at the next tick. It belongs to
// the goroutine that calls Tick.
func (p *Pool) Reconfigure(cfg PoolConfig) {
	p.policy, p.rules, p.refresh = cfg.Policy, cfg.Rules, cfg.Refresh
	p.def.Store(&cfg.Pool)
	if p.book != nil {
		p.book.SetRules(p.rules)
	}
}

// Result says what the driver should do after a tick.
type Result struct {
	// Respill: the provider refused. The rest of the demand belongs to other pools
	// now: look at the fleet again at once.
	Respill bool
	// Again: what was believed of the group was wrong; tick again at once.
	Again bool
	// Acted: something was asked of the provider or of a machine.
	Acted bool
	// Offers: what others may count on has changed: look at the fleet again soon.
	Offers bool
	// Wake: the provider said when it may be asked again: tick then, if nothing else
	// asks for a tick before; zero = it said nothing.
	Wake time.Time
}

// Tick looks, decides, persists and acts, in that order.
func (p *Pool) Tick(ctx context.Context, now time.Time, pic *Picture) Result {
	p.tickedAt, p.began = now, p.now()
	before := p.offer.Load().offer
	res := p.tick(ctx, now, pic)
	res.Offers = p.offer.Load().offer != before
	if p.epoch != 0 && p.throttled(now) {
		res.Wake = p.state.WaitTill
	}
	return res
}

func (p *Pool) tick(ctx context.Context, now time.Time, pic *Picture) Result {
	if !p.hold(ctx, now) {
		p.follow(ctx, now, pic)
		return Result{}
	}
	p.look(ctx, now)
	if pic.MachinesKnown {
		p.book.JobsUnheardOf(pic.limits[p.Name()].Unaccounted != "")
		p.book.StoppedByHook(pic.limits[p.Name()].StoppedByHook)
		p.book.Heard(now, pic.Machines[p.Name()])
	}
	census := p.book.Census(now)
	obs := p.observation(now, pic, census)
	d, next := policy.Decide(p.policy, p.state.Policy, obs, now)
	p.state.Policy = next
	plan := p.plan(now, d, obs)
	plan.oldest = oldestLaunchJob(pic, p.Name(), p.reacted)
	p.makeOffer(now, obs)
	res := p.carryOut(ctx, now, d, plan)
	if res.Acted {
		p.makeOffer(now, p.observation(now, pic, p.book.Census(now))) // as it is after acting
	}
	p.noteChanges(ctx, now)
	p.publish(now, pic, d)
	return res
}

// hold makes sure that this replica may write for the pool, and takes the pool's
// memory over when it has just become its owner.
func (p *Pool) hold(ctx context.Context, now time.Time) bool {
	epoch, until, ok := p.tenure.Hold(p.Name(), now)
	if !ok {
		p.epoch, p.book = 0, nil
		return false
	}
	p.until = until
	if epoch == p.epoch && !p.afresh {
		return true
	}
	data, found, err := p.memory.LoadPoolState(ctx, p.Name())
	if err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "reading the pool's memory", Err: err})
		return false
	}
	p.book, p.state, p.saved = roster.New(p.rules, now), poolState{}, nil
	if found {
		if err := json.Unmarshal(data, &p.state); err != nil {
			// It is soft state: the provider and the heartbeats tell it again.
			p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "decoding the pool's memory", Err: err})
			p.state = poolState{}
		}
		p.book.Adopt(p.state.Roster)
	}
	p.seen = groupView{mustLook: true}
	p.seen.status.Desired = p.state.Desired // as far as anybody remembers, until the first look
	p.epoch, p.afresh = epoch, false
	return true
}

// follow is a tick of a pool that another replica scales: it learns the pool's
// offer, so that this replica attributes as the owner does.
func (p *Pool) follow(ctx context.Context, now time.Time, pic *Picture) {
	data, found, err := p.memory.LoadPoolState(ctx, p.Name())
	var theirs poolState
	if err != nil || !found || json.Unmarshal(data, &theirs) != nil {
		return
	}
	book := roster.New(p.rules, now)
	book.Adopt(theirs.Roster)
	p.offer.Store(&offered{offer: theirs.Offer, boots: book.Boots()})
	p.publishStatus(p.statusOf(now, pic, book, theirs.Desired))
}

// look asks the provider, if the last look is too old or an outcome is unknown.
func (p *Pool) look(ctx context.Context, now time.Time) {
	if p.throttled(now) || (!p.seen.mustLook && now.Sub(p.seen.at) < p.refresh-p.refresh/refreshSlack) {
		return
	}
	status, err := p.group.Status(ctx)
	if err == nil {
		err = status.Err
	}
	var list []pluginsdk.Instance
	if err == nil {
		list, err = p.group.ListInstances(ctx)
	}
	if err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "asking the provider", Err: err})
		if !p.throttle(now, providerError(err)) {
			p.seen.err = err
		}
		return
	}
	p.seen.err = nil
	lowered := p.checkDrift(now, status)
	before := p.book.Census(now)
	gap := p.gap(before)
	p.seen.status, p.seen.at, p.seen.mustLook = status, now, false
	p.book.Listed(now, listed(list))
	p.writeOff(now, before, lowered)
	p.countFailures(now, status.Failures)
	p.expect(now, gap)
}

// writeOff drops what has left the list together with the group's number: as many as
// the book is above the number, or as the number was lowered by now, but for those that
// the list shows as ending. The book alone doesn't tell where a part of the number was
// never launched: what has left would be taken for that part, which may come yet.
func (p *Pool) writeOff(now time.Time, before roster.Census, lowered int) {
	c := p.book.Census(now)
	if c.Absent == 0 {
		return
	}
	lowered -= max(0, c.Removing-before.Removing)
	p.book.WriteOff(now, max(c.Live-c.Removing-p.seen.status.Desired, lowered))
}

// expect notes since when what the group wants and doesn't have is on its way, where
// it wasn't this pool that asked: the group replaces what it loses, and so it may with
// what is not in its list any more. before is the gap until this look.
func (p *Pool) expect(now time.Time, before int) {
	switch gap := p.gap(p.book.Census(now)); {
	case gap == 0:
		p.state.CoolOff.Filled()
	case gap > before, p.state.AskedAt.IsZero(): // zero: nobody remembers who asked
		p.state.AskedAt = now
	}
}

// gap is how many the group wants more than it has by its own list. A short list may
// exaggerate it, which costs some patience and no instance.
func (p *Pool) gap(c roster.Census) int {
	return max(0, p.seen.status.Desired-(c.Live-c.Removing-c.Absent))
}

// checkDrift tells when somebody else has changed the group's desired number, and
// returns by how many they have lowered it.
func (p *Pool) checkDrift(now time.Time, status pluginsdk.GroupStatus) (lowered int) {
	if p.seen.at.IsZero() || p.seen.mustLook || status.Desired == p.seen.status.Desired {
		return 0
	}
	p.events.changed(ChangeInfo{Pool: p.Name(), At: now, Change: roster.Change{
		Kind: "drift", Detail: fmt.Sprintf("somebody else set desired from %d to %d", p.seen.status.Desired, status.Desired),
	}})
	return max(0, p.seen.status.Desired-status.Desired)
}

// countFailures cools the pool off for each new failure of something that the
// provider had accepted.
func (p *Pool) countFailures(now time.Time, failures []pluginsdk.GroupFailure) {
	known := make(map[string]bool, len(p.state.Failures))
	for _, id := range p.state.Failures {
		known[id] = true
	}
	p.state.Failures = p.state.Failures[:0:0]
	for _, f := range failures {
		p.state.Failures = append(p.state.Failures, f.ID)
		if !known[f.ID] && f.At.After(p.state.AskedAt.Add(-time.Second)) {
			p.state.CoolOff.FailedLate(now, &pluginsdk.Error{Kind: f.Kind, Message: f.Message})
		}
	}
}

func listed(list []pluginsdk.Instance) []roster.Listed {
	out := make([]roster.Listed, len(list))
	for i, in := range list {
		out[i] = roster.Listed{
			ID: in.ID, Creating: in.State == pluginsdk.StateCreating, Deleting: in.State == pluginsdk.StateDeleting,
			LaunchedAt: in.LaunchedAt, Protected: in.Protected, Unhealthy: in.Unhealthy,
			Hook: roster.Hook(in.Hook), Kept: in.Kept,
		}
	}
	return out
}

// Interrupted takes the provider's notice that an instance will be taken. It
// belongs to the goroutine that calls Tick.
func (p *Pool) Interrupted(n pluginsdk.Interruption) {
	if p.book == nil {
		return
	}
	kind := string(n.Kind)
	if !router.KnownInterruption(kind) {
		kind = router.InterruptionTerminating // of a newer plugin; whatever it is, the instance goes
	}
	p.book.Interrupt(roster.Notice{Instance: n.InstanceID, Kind: kind, Deadline: n.Deadline})
}

// noteChanges tells what has happened to instances, and forgets the machines of
// those that are gone. Should that fail, their records expire by themselves.
func (p *Pool) noteChanges(ctx context.Context, now time.Time) {
	var gone []spillway.MachineID
	for _, c := range p.book.Changes() {
		p.events.changed(ChangeInfo{Pool: p.Name(), At: now, Change: c})
		if (c.Kind == roster.Gone || c.Kind == roster.GoneForeign) && c.Machine != "" && !p.book.Has(c.Instance) {
			gone = append(gone, spillway.MachineID(c.Machine))
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := p.machines.RemoveMachines(ctx, p.Name(), gone); err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "forgetting machines", Err: err})
	}
}

// persist writes the pool's memory before anything is done that it speaks of.
// Without it nothing is done: another replica could not know.
func (p *Pool) persist(ctx context.Context) error {
	p.state.Roster, p.state.Desired = *p.book, p.seen.status.Desired
	p.encoded.Reset()
	if err := json.NewEncoder(&p.encoded).Encode(&p.state); err != nil {
		return fmt.Errorf("encoding the pool's memory: %w", err)
	}
	if bytes.Equal(p.encoded.Bytes(), p.saved) {
		return nil
	}
	data := bytes.Clone(p.encoded.Bytes())
	if err := p.memory.SavePoolState(ctx, p.Name(), p.epoch, data); err != nil {
		p.saved = nil
		return fmt.Errorf("saving the pool's memory: %w", err)
	}
	p.saved = data
	return nil
}

// providerError makes sure that err is classified.
func providerError(err error) *pluginsdk.Error {
	var e *pluginsdk.Error
	if errors.As(err, &e) {
		return e
	}
	return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: err.Error(), Cause: err}
}
