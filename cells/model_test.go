package cells_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

// The model: an origin with a queue and two replicas, and two peers. Any control plane may
// stand still or be killed at any moment, also between a call of its store and what it says
// because of it. What is said takes any time, or is lost with its link. Each clock goes as
// wrong as Timing allows. True time (now) is the model's own: nobody in it sees it.
const (
	step       = 250 * time.Millisecond
	modelLease = 20 * time.Second
	modelEnd   = 40 * time.Second
	modelTurn  = 15 * time.Second // the lease by which a replica of the origin links to the peers
	stopWithin = 12 * time.Second // a machine that is heard ends a job
	aloneUntil = 18 * time.Second // a machine without a router has ended its job
)

var offered = cells.Offer{Capability: spillway.Capability{Tags: []string{"linux"}}, Free: 4}

func poolOf(peer string) string { return cells.PoolName(peer, offered.Capability.Fingerprint()) }

// process is a control plane: it has a clock, and runs unless it is dead or stands still.
type process struct {
	w     *world
	start time.Time
	rate  float64
	until time.Duration // it stands still
	dead  bool
}

func (p *process) now() time.Time { return p.start.Add(time.Duration(float64(p.w.now) * p.rate)) }

func (p *process) runs() bool { return !p.dead && p.w.now >= p.until }

// stall has it stand still, perhaps, for at most the time.
func (p *process) stall(chance float64, most time.Duration) {
	if !p.w.calm && p.w.rnd.Float64() < chance {
		p.until = max(p.until, p.w.now+p.w.between(0, most))
	}
}

// act is something that a process does as soon as it can after a time.
type act struct {
	who  *process
	at   time.Duration
	what func()
}

// link is a connection. Each direction is in order.
type link struct {
	cut        bool
	to, fro    time.Duration // when the last message arrives
	blockedTil time.Duration
}

// stay is an attempt on a machine.
type stay struct {
	ref        cells.Ref
	peer       string
	begin, end time.Duration // end: when it is over, as far as is known by now
	stopped    bool
	denied     bool // by the peer's rules: it never begins
}

type modelJob struct {
	attempt int
	claimed bool
	expiry  time.Time // of the claim, by the store's clock
	ends    int       // ends that were stored
}

type world struct {
	t    *rapid.T
	rnd  *rand.Rand
	now  time.Duration
	calm bool // nothing breaks any more
	acts []act

	store  process // whose clock the origin's store goes by
	jobs   map[spillway.JobID]*modelJob
	book   map[string]map[cells.Ref]cells.Known // by peer
	leader *origin
	turn   time.Time // the leader's lease ends, by the store's clock

	origins []*origin
	peers   []*peer
	stays   []*stay
	handed  int // attempts that were sent
	expired int // claims
	denied  int // attempts
}

// origin is one replica.
type origin struct {
	process
	leads bool
	until time.Time // by its own clock
	books map[string]*cells.Outbound
	links map[string]*link
}

type peer struct {
	process
	name   string
	book   *cells.Inbound
	kept   map[cells.Ref]bool // in its store
	stays  map[cells.Ref]*stay
	link   *link
	from   *origin
	beatAt time.Time
}

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rnd.Int64N(int64(high-low)+1))
}

func (w *world) newProcess() process {
	return process{w: w, start: time.Date(2000+w.rnd.IntN(50), 1, 1, 0, 0, 0, 0, time.UTC), rate: 1 + (2*w.rnd.Float64()-1)/1000}
}

// later has a process do something at a time, or when it can.
func (w *world) later(who *process, at time.Duration, what func()) {
	w.acts = append(w.acts, act{who, at, what})
}

// send brings a message over a link, in one of its directions.
func (w *world) send(l *link, last *time.Duration, receiver *process, what func()) {
	if l == nil || l.cut {
		return
	}
	late := w.between(0, 2*time.Second)
	if !w.calm && w.rnd.Float64() < 0.03 {
		late = w.between(0, 3*modelLease)
	}
	*last = max(*last, w.now+late, l.blockedTil)
	w.later(receiver, *last, func() {
		if !l.cut {
			what()
		}
	})
}

func newWorld(t *rapid.T, seed uint64, jobs int) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), jobs: map[spillway.JobID]*modelJob{}, book: map[string]map[cells.Ref]cells.Known{}}
	w.store = w.newProcess()
	for i := range jobs {
		w.jobs[spillway.JobID(rune('a'+i))] = &modelJob{}
	}
	for range 2 {
		w.newOrigin()
	}
	for _, name := range []string{"b", "c"} {
		p := &peer{process: w.newProcess(), name: name, kept: map[cells.Ref]bool{}, stays: map[cells.Ref]*stay{}}
		p.book = cells.NewInbound(cells.Timing{Lease: modelLease, EndWithin: modelEnd})
		w.book[name] = map[cells.Ref]cells.Known{}
		w.peers = append(w.peers, p)
	}
	return w
}

func (w *world) newOrigin() {
	o := &origin{process: w.newProcess(), books: map[string]*cells.Outbound{}, links: map[string]*link{}}
	w.origins = append(w.origins, o)
}

// step lets true time pass.
func (w *world) step() {
	w.now += step
	w.breakSomething()
	due := w.acts
	w.acts = nil
	for _, a := range due {
		switch {
		case a.who.dead:
		case a.at > w.now || !a.who.runs():
			w.acts = append(w.acts, a)
		default:
			a.what()
		}
	}
	for _, j := range w.jobs { // the store's own doing
		if j.claimed && w.store.now().After(j.expiry) {
			j.claimed = false
			w.expired++
		}
	}
	for _, o := range w.origins {
		if o.runs() {
			o.work()
		}
	}
	for _, p := range w.peers {
		p.machines()
		if p.runs() {
			p.work()
		}
	}
	w.origins = slices.DeleteFunc(w.origins, func(o *origin) bool { return o.dead })
}

func (w *world) breakSomething() {
	if w.calm || w.rnd.Float64() > 0.02 {
		return
	}
	o, p := w.origins[w.rnd.IntN(len(w.origins))], w.peers[w.rnd.IntN(len(w.peers))]
	switch w.rnd.IntN(6) {
	case 0:
		o.stall(1, 4*modelLease)
	case 1:
		o.dead = true
		for name := range o.links {
			o.unlink(name)
		}
		w.newOrigin()
	case 2:
		p.stall(1, 4*modelLease)
	case 3: // killed and started again, with nothing but its store
		p.hangUp()
		p.book = cells.NewInbound(cells.Timing{Lease: modelLease, EndWithin: modelEnd})
		p.until = max(p.until, w.now+w.between(0, 2*modelLease))
		w.later(&p.process, w.now, p.adopt)
	case 4:
		p.hangUp()
	default:
		if p.link != nil {
			p.link.blockedTil = w.now + w.between(0, 4*modelLease)
		}
	}
}

// extend is a call of the origin's store.
func (w *world) extend(refs []router.JobRef, by time.Duration) (extended, stale []router.JobRef) {
	for _, ref := range refs {
		j := w.jobs[ref.ID]
		if !j.claimed || j.attempt != ref.Attempt {
			stale = append(stale, ref)
			continue
		}
		if until := w.store.now().Add(by); until.After(j.expiry) {
			j.expiry = until
		}
		extended = append(extended, ref)
	}
	return extended, stale
}

// work is a turn of a replica of the origin.
func (o *origin) work() {
	o.lead()
	if !o.leads {
		return
	}
	for _, p := range o.w.peers {
		if o.links[p.name] == nil {
			o.connect(p)
		}
		o.do(p, o.books[p.name].Tick(o.now()))
		o.handOver(p)
	}
}

// lead takes the turn, keeps it, or notices that it is over.
func (o *origin) lead() {
	w := o.w
	if o.leads && o.now().After(o.until) {
		o.leads = false
		for name := range o.links {
			o.unlink(name)
		}
	}
	if w.leader != o && !w.store.now().After(w.turn) {
		return
	}
	if !o.leads {
		for _, p := range w.peers {
			o.unlink(p.name)
			book := cells.NewOutbound(cells.Terms{Peer: p.name, CostFactor: 1, MaxJobs: 5, StartWithin: 30 * time.Second}, modelLease)
			book.Inherit(o.now(), slices.Collect(maps.Values(w.book[p.name])))
			o.books[p.name] = book
		}
	}
	w.leader, w.turn = o, w.store.now().Add(modelTurn)
	o.leads, o.until = true, o.now().Add(modelTurn)
}

func (o *origin) unlink(name string) {
	if l := o.links[name]; l != nil {
		l.cut = true
		delete(o.links, name)
	}
	if b := o.books[name]; b != nil {
		b.Unlink()
	}
}

func (o *origin) connect(p *peer) {
	if !p.runs() || o.w.rnd.Float64() > 0.2 {
		return
	}
	if p.link != nil && p.from != o && o.w.rnd.Float64() < 0.5 {
		p.hangUp() // else the older link is to be found dead later
	}
	l := &link{}
	o.links[p.name] = l
	p.link, p.from, p.beatAt = l, o, time.Time{}
	p.book.Link(modelLease)
	p.adopt()
	book := o.books[p.name]
	o.w.send(l, &l.fro, &o.process, func() {
		book.Link(modelEnd)
		book.SetOffers([]cells.Offer{offered})
	})
	for ref, word := range p.book.Held() {
		p.report(ref, word)
	}
}

// handOver claims a job, and hands it over.
func (o *origin) handOver(p *peer) {
	w, book := o.w, o.books[p.name]
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		j := w.jobs[id]
		if _, denied := book.Denies(o.now(), id); denied || j.claimed || j.ends > 0 || book.Free(o.now(), poolOf(p.name)) == 0 || w.rnd.Float64() < 0.7 {
			continue
		}
		j.claimed, j.attempt, j.expiry = true, j.attempt+1, w.store.now().Add(time.Minute)
		ref := cells.Ref{ID: id, Attempt: j.attempt}
		must(w.t, book.Take(o.now(), ref, "class", poolOf(p.name)), "a free place")
		o.keep(p, ref)
	}
}

func (o *origin) keep(p *peer, ref cells.Ref) {
	w, book, l := o.w, o.books[p.name], o.links[p.name]
	mark := book.Newest()
	o.stall(0.05, 2*modelLease)
	w.later(&o.process, w.now, func() {
		w.book[p.name][ref] = cells.Known{Ref: ref, Class: "class", Pool: poolOf(p.name), GiveBack: book.GiveBack()}
		_, stale := w.extend([]router.JobRef{{ID: ref.ID, Attempt: ref.Attempt}}, book.GiveBack())
		o.stall(0.05, 2*modelLease)
		w.later(&o.process, w.now, func() {
			send, steps := book.Kept(o.now(), ref, mark, len(stale) == 0)
			o.do(p, steps)
			if send {
				w.handed++
				w.send(l, &l.to, &p.process, func() { p.take(ref, mark.Beat) })
			}
		})
	})
}

// do carries steps out. The router and the store are quick here.
func (o *origin) do(p *peer, steps []cells.Step) {
	w, l := o.w, o.links[p.name]
	drop := func(ref cells.Ref) {
		if o.leads {
			delete(w.book[p.name], ref)
		}
	}
	for _, s := range steps {
		j := w.jobs[s.Ref.ID]
		current := j.claimed && j.attempt == s.Ref.Attempt
		switch s.Do {
		case cells.Finish:
			if current {
				j.claimed, j.ends = false, j.ends+1
			}
			o.do(p, o.books[p.name].Stored(s.Ref))
		case cells.Refuse, cells.Deny, cells.Lose:
			if current {
				j.claimed = false
			}
			drop(s.Ref)
		case cells.AskBack, cells.Withdraw:
			if l != nil {
				w.send(l, &l.to, &p.process, func() { p.stop(p.book.Cancel(s.Ref)) })
			}
		case cells.Confirm:
			drop(s.Ref)
			if l != nil {
				w.send(l, &l.to, &p.process, func() {
					if p.book.Confirmed(s.Ref) {
						delete(p.kept, s.Ref)
						delete(p.stays, s.Ref)
					}
				})
			}
		case cells.Accept:
		}
	}
}

// hangUp ends the peer's link.
func (p *peer) hangUp() {
	if p.link != nil {
		p.link.cut = true
		for _, o := range p.w.origins {
			if o.links[p.name] == p.link {
				o.unlink(p.name)
			}
		}
		p.link = nil
	}
}

func (p *peer) adopt() { p.book.Inherit(p.now(), slices.Collect(maps.Keys(p.kept))) }

func (p *peer) report(ref cells.Ref, word cells.Word) {
	o, l := p.from, p.link
	if l == nil || word == 0 {
		return
	}
	book := o.books[p.name]
	p.w.send(l, &l.fro, &o.process, func() { o.do(p, book.Heard(o.now(), ref, word, "")) })
}

// take takes an attempt in, and has a machine run it.
func (p *peer) take(ref cells.Ref, beat uint64) {
	switch p.book.Spill(p.now(), ref, beat) {
	case cells.Push:
		must(p.w.t, !p.kept[ref], "handed over twice")
		p.kept[ref] = true
		if !p.w.calm && p.w.rnd.Float64() < 0.1 {
			p.deny(ref)
			return
		}
		s := &stay{ref: ref, peer: p.name, begin: p.w.now + p.w.between(0, 5*time.Second)}
		s.end = s.begin + p.w.between(time.Second, 2*time.Minute)
		p.stays[ref] = s
		p.w.stays = append(p.w.stays, s)
		if p.book.Pushed(p.now(), ref, true) {
			p.stop([]cells.Ref{ref})
		}
		p.report(ref, cells.WordTaken)
	case cells.TooLate, cells.TooMany:
		p.report(ref, cells.WordRefused)
	case cells.Again:
	}
}

// deny has the cell's rules refuse an attempt: no machine ever has it.
func (p *peer) deny(ref cells.Ref) {
	p.w.denied++
	p.stays[ref] = &stay{ref: ref, peer: p.name, denied: true}
	p.book.Pushed(p.now(), ref, true)
	if p.book.Seen(ref, cells.WordDenied) {
		p.report(ref, cells.WordDenied)
	}
}

// stop has machines end attempts.
func (p *peer) stop(refs []cells.Ref) {
	for _, ref := range refs {
		if s := p.stays[ref]; s != nil && !s.stopped {
			s.stopBy(p.w.now + p.w.between(0, stopWithin))
		}
	}
}

func (s *stay) stopBy(at time.Duration) {
	if at < s.end {
		s.end, s.stopped = max(at, s.begin), true
	}
}

// machines is what they do by themselves: without a router they go on for a while only.
func (p *peer) machines() {
	if p.runs() {
		return
	}
	for _, s := range p.stays {
		if !s.stopped {
			alone := p.w.now + aloneUntil - step
			if p.until > alone {
				s.stopBy(alone)
			}
		}
	}
}

// work is a turn of the peer's control plane.
func (p *peer) work() {
	for ref, s := range p.stays {
		word := cells.WordRunning
		switch {
		case s.denied:
			word = cells.WordDenied
		case s.begin > p.w.now:
			continue
		case s.end <= p.w.now && s.stopped:
			word = cells.WordLost
		case s.end <= p.w.now:
			word = cells.WordEnded
		}
		if p.book.Seen(ref, word) {
			p.report(ref, word)
		}
	}
	p.stop(p.book.Tick(p.now()))
	_, toEnd := p.book.Open()
	p.stop(toEnd)
	every := cells.Timing{Lease: modelLease}.BeatEvery()
	if p.link != nil && !p.link.cut && p.now().Sub(p.beatAt) >= every {
		p.beatAt = p.now()
		p.beat()
	}
}

func (p *peer) beat() {
	w, o, l, n := p.w, p.from, p.link, p.book.Beat(p.now())
	book := o.books[p.name]
	w.send(l, &l.fro, &o.process, func() {
		if !o.leads || o.now().After(o.until) {
			return
		}
		mark, claims := book.Beat(n)
		o.stall(0.02, 2*modelLease)
		w.later(&o.process, w.now, func() {
			extended, stale := w.extend(claims, book.GiveBack())
			o.stall(0.02, 2*modelLease)
			w.later(&o.process, w.now, func() {
				covered, also, ok := book.Renewed(o.now(), mark, extended, stale)
				if ok {
					w.send(l, &l.to, &p.process, func() { p.renewed(o, book, l, n, covered, also) })
				}
			})
		})
	})
}

func (p *peer) renewed(o *origin, book *cells.Outbound, l *link, n uint64, covered, also []cells.Ref) {
	if p.link != l {
		return // it has a newer one
	}
	unknown, end := p.book.Renew(n, covered, also)
	p.stop(end)
	p.w.send(l, &l.fro, &o.process, func() { book.Unknown(unknown) })
}

func must(t *rapid.T, ok bool, what string) {
	if !ok {
		t.Fatalf("%s", what)
	}
}
