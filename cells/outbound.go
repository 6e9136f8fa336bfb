package cells

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// offerLag is how long what was handed over may not show in what is offered yet: the
	// peer's records of its machines are this old at most.
	offerLag = 2 * time.Second
	// acceptAfter is when the origin answers for a job of which the peer has not said yet
	// that it has it. Its router would give it to somebody else after router.Timeouts.Assigned.
	acceptAfter = 10 * time.Second
	// takeBackEvery is how often the peer is asked again for a job that it does not start.
	takeBackEvery = 10 * time.Second
	// backPause is how long a pool is offered nothing after the peer gave a job back: else
	// the same job would go to and fro at the network's speed.
	backPause = 5 * time.Second
)

// Stage is how far an attempt has come, as far as the origin knows.
type Stage int

// The stages.
const (
	Keeping Stage = iota + 1 // it is being written into the book: not sent
	Sent                     // the peer may have it
	Taken                    // the peer has it in its queue
	Running                  // it has begun there
	Ended                    // it has ended there, and the origin's store does not know yet
)

// handed is one attempt that a peer has or may have.
type handed struct {
	class    spillway.JobClass
	pool     string
	stage    Stage
	givenAt  time.Time
	accepted bool // the origin's router was told that the job is in good hands

	coveredAt time.Time     // when an answer that covers it was last sent, at the latest
	giveBack  time.Duration // after coveredAt; the longest that was ever true

	unnamed   bool // the peer has said that it does not have it, or the claim is not ours any more
	askedBack time.Time
}

// Step is something that the shell shall do about one attempt.
type Step struct {
	Do   Deed
	Ref  Ref
	Pool string
}

// Deed is what a Step asks for.
type Deed int

// The deeds. After Refuse, Deny and Lose the attempt is in the book no more.
const (
	Accept   Deed = iota + 1 // tell the router that the job was accepted
	Finish                   // tell the router how it ended, until it says that this is stored
	Refuse                   // give it back to the router: it has not begun
	Deny                     // likewise: the peer denies it (see Denied)
	Lose                     // give it back to the router: it may have begun, and runs nowhere
	AskBack                  // ask the peer to give it back unless it has begun
	Confirm                  // tell the peer that the end is known
	Withdraw                 // tell the peer that it is not wanted any more
)

// Outbound is the origin's book on one peer. It has one owner.
type Outbound struct {
	terms  Terms
	timing Timing // EndWithin is the peer's word
	linked bool
	newest Mark
	offers map[string]Offer
	paused map[string]time.Time // pools of which the peer gave a job back: until when
	jobs   map[Ref]*handed
	denied denials
}

// Mark is a beat of one link. What the origin asks of its store after a beat has come may
// be told the peer as an answer to that beat.
type Mark struct {
	link int
	Beat uint64 // 0 = none has come yet
}

// NewOutbound returns an empty book.
func NewOutbound(terms Terms, lease time.Duration) *Outbound {
	return &Outbound{
		terms: terms, timing: Timing{Lease: lease}.WithDefaults(),
		offers: map[string]Offer{}, paused: map[string]time.Time{}, jobs: map[Ref]*handed{},
		denied: denials{jobs: map[spillway.JobID]Denial{}},
	}
}

// Known is an attempt in the stored book.
type Known struct {
	Ref      Ref
	Class    spillway.JobClass
	Pool     string
	GiveBack time.Duration
}

// Inherit takes over what another replica, or an earlier life of this one, has handed over
// and not seen the end of. It may have been covered until just now.
func (o *Outbound) Inherit(now time.Time, known []Known) {
	for _, k := range known {
		o.jobs[k.Ref] = &handed{
			class: k.Class, pool: k.Pool, stage: Sent, givenAt: now, accepted: true,
			coveredAt: now, giveBack: max(k.GiveBack, o.timing.GiveBack()),
		}
	}
}

// Link notes that the peer has welcomed us.
func (o *Outbound) Link(endWithin time.Duration) {
	o.linked, o.newest = true, Mark{link: o.newest.link + 1}
	o.timing.EndWithin = endWithin
	for _, h := range o.jobs {
		h.giveBack = max(h.giveBack, o.timing.GiveBack())
		h.askedBack = time.Time{}
	}
}

// Unlink notes that the link is gone: nothing is offered any more.
func (o *Outbound) Unlink() { o.linked, o.newest.Beat = false, 0 }

// Linked reports whether there is a link.
func (o *Outbound) Linked() bool { return o.linked }

// GiveBack is for how long claims are to be extended.
func (o *Outbound) GiveBack() time.Duration { return o.timing.GiveBack() }

// SetOffers replaces what the peer offers.
func (o *Outbound) SetOffers(list []Offer) {
	o.offers = make(map[string]Offer, len(list))
	for i := range list[:min(len(list), MaxOffers)] {
		o.offers[PoolName(o.terms.Peer, list[i].Capability.Fingerprint())] = list[i]
	}
}

// Pools are what the peer offers, as pools.
func (o *Outbound) Pools() []spillway.Pool {
	pools := make([]spillway.Pool, 0, len(o.offers))
	for _, offer := range o.offers {
		pools = append(pools, o.terms.Pool(&offer))
	}
	slices.SortFunc(pools, func(a, b spillway.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return pools
}

// Offer is what the peer offers as a pool.
func (o *Outbound) Offer(pool string) Offer { return o.offers[pool] }

// Free is how many jobs more a pool takes now.
func (o *Outbound) Free(now time.Time, pool string) int {
	offer, known := o.offers[pool]
	if !known || !o.linked || o.newest.Beat == 0 || now.Before(o.paused[pool]) {
		return 0
	}
	held, unseen := 0, 0
	for _, h := range o.jobs {
		if h.pool != pool || h.stage == Ended {
			continue
		}
		held++
		if now.Sub(h.givenAt) < offerLag {
			unseen++
		}
	}
	return max(0, min(offer.Free+offer.Growth-unseen, o.terms.MaxJobs-held, MaxHeld-len(o.jobs)))
}

// Take enters a job that the router has given to a pool. It is refused when there is no
// place for it, or the peer denies it; otherwise it is to be written into the stored book,
// and then Kept.
func (o *Outbound) Take(now time.Time, ref Ref, class spillway.JobClass, pool string) (taken bool) {
	if _, denied := o.Denies(now, ref.ID); denied || o.jobs[ref] != nil || o.Free(now, pool) == 0 {
		return false
	}
	o.jobs[ref] = &handed{class: class, pool: pool, stage: Keeping, givenAt: now, giveBack: o.timing.GiveBack()}
	return true
}

// Newest is the newest beat that has come: what is asked of the origin's store from now on
// begins after it.
func (o *Outbound) Newest() Mark { return o.newest }

// Kept notes that a job is in the stored book, and that the claim on it was extended, in
// a call that began when mark was the newest; not ok: one of the two failed. If it reports
// true the job is to be sent now, naming the beat of mark.
func (o *Outbound) Kept(now time.Time, ref Ref, mark Mark, ok bool) (send bool, steps []Step) {
	h := o.jobs[ref]
	switch {
	case h == nil:
		return false, nil // it was withdrawn meanwhile
	case !ok || !o.answers(mark):
		return false, []Step{o.end(Refuse, ref, h)}
	}
	h.stage, h.coveredAt = Sent, now
	return true, nil
}

// answers reports whether an answer to a beat can be sent: its link is there still.
func (o *Outbound) answers(mark Mark) bool {
	return o.linked && mark.Beat > 0 && mark.link == o.newest.link
}

// Beat notes a beat of the peer and returns the claims that are to be extended before it is
// answered.
func (o *Outbound) Beat(number uint64) (mark Mark, claims []router.JobRef) {
	o.newest.Beat = max(o.newest.Beat, number)
	for ref, h := range o.jobs {
		if h.named() {
			claims = append(claims, router.JobRef{ID: ref.ID, Class: h.class, Attempt: ref.Attempt})
		}
	}
	slices.SortFunc(claims, func(a, b router.JobRef) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Attempt, b.Attempt))
	})
	return Mark{o.newest.link, number}, claims
}

func (h *handed) named() bool { return h.stage != Keeping && h.stage != Ended && !h.unnamed }

// Renewed returns what to answer to a beat, now. covered are the attempts whose claims were
// extended after it had come. also are those that are held too and that the answer must not
// cover: their claims were extended before the beat, when they were handed over. A claim
// that is stale is somebody else's. Nothing is to be answered, and ok is false, when the
// link of the beat is gone.
func (o *Outbound) Renewed(now time.Time, mark Mark, extended, stale []router.JobRef) (covered, also []Ref, ok bool) {
	for _, ref := range stale {
		if h := o.jobs[Ref{ref.ID, ref.Attempt}]; h != nil {
			h.unnamed = true
		}
	}
	if !o.answers(mark) {
		return nil, nil, false
	}
	isCovered := make(map[Ref]bool, len(extended))
	for _, r := range extended {
		ref := Ref{r.ID, r.Attempt}
		if h := o.jobs[ref]; h != nil && h.named() {
			h.coveredAt = now
			isCovered[ref] = true
			covered = append(covered, ref)
		}
	}
	for ref, h := range o.jobs {
		if !isCovered[ref] && h.named() {
			also = append(also, ref)
		}
	}
	slices.SortFunc(covered, Ref.compare)
	slices.SortFunc(also, Ref.compare)
	return covered, also, true
}

func (r Ref) compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.ID, o.ID), cmp.Compare(r.Attempt, o.Attempt))
}

// Unknown notes attempts that the peer does not have. They are not covered any more, and
// given back when it is sure that nobody has them: a word may still be under way to
// another replica of the peer.
func (o *Outbound) Unknown(refs []Ref) {
	for _, ref := range refs {
		if h := o.jobs[ref]; h != nil && h.stage != Keeping {
			h.unnamed = true
		}
	}
}

// Word is what the peer reports of an attempt.
type Word int

// The words.
const (
	WordTaken Word = iota + 1
	WordRunning
	WordEnded
	WordLost
	WordRefused
	WordDenied // refused for what the job is: the same would be refused again
)

// Heard takes in what the peer reports; why is its sentence on a refusal.
func (o *Outbound) Heard(now time.Time, ref Ref, word Word, why string) []Step {
	h := o.jobs[ref]
	if h == nil || h.stage == Keeping {
		if word == WordTaken || word == WordRunning {
			return nil // it will not be named, and is ended there
		}
		return []Step{{Do: Confirm, Ref: ref}}
	}
	h.unnamed = false
	switch word {
	case WordTaken, WordRunning:
		if h.stage < Taken || word == WordRunning && h.stage == Taken {
			h.stage = Taken + Stage(word-WordTaken)
		}
		return h.accept(ref)
	case WordEnded:
		h.stage = Ended
		return append(h.accept(ref), Step{Do: Finish, Ref: ref, Pool: h.pool})
	case WordLost:
		o.paused[h.pool] = now.Add(backPause)
		return []Step{o.end(Lose, ref, h), {Do: Confirm, Ref: ref}}
	case WordDenied:
		o.denied.note(now, ref.ID, h.class, why)
		return []Step{o.end(Deny, ref, h), {Do: Confirm, Ref: ref}}
	default:
		o.paused[h.pool] = now.Add(backPause)
		return []Step{o.end(Refuse, ref, h), {Do: Confirm, Ref: ref}}
	}
}

func (h *handed) accept(ref Ref) []Step {
	if h.accepted {
		return nil
	}
	h.accepted = true
	return []Step{{Do: Accept, Ref: ref, Pool: h.pool}}
}

// end takes an attempt out of the book.
func (o *Outbound) end(do Deed, ref Ref, h *handed) Step {
	delete(o.jobs, ref)
	return Step{Do: do, Ref: ref, Pool: h.pool}
}

// Tick says what the passing of time asks for.
func (o *Outbound) Tick(now time.Time) (steps []Step) {
	for ref, h := range o.jobs {
		switch {
		case h.stage == Keeping || h.stage == Ended:
		case now.Sub(h.coveredAt) > h.giveBack:
			steps = append(steps, o.end(Lose, ref, h))
		case h.stage == Sent && now.Sub(h.givenAt) >= acceptAfter:
			steps = append(steps, h.accept(ref)...)
		case h.stage == Taken && o.linked && now.Sub(h.givenAt) >= o.terms.StartWithin && now.Sub(h.askedBack) >= takeBackEvery:
			h.askedBack = now
			steps = append(steps, Step{Do: AskBack, Ref: ref, Pool: h.pool})
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return a.Ref.compare(b.Ref) })
	return steps
}

// Stored notes that the router has stored the end of an attempt, or knows a newer one.
func (o *Outbound) Stored(ref Ref) []Step {
	h := o.jobs[ref]
	if h == nil || h.stage != Ended {
		return nil
	}
	return []Step{o.end(Confirm, ref, h)}
}

// Unwanted notes that the router wants an attempt no more: it was canceled, or is not the
// newest. It is not covered any more from now on.
func (o *Outbound) Unwanted(ref Ref) []Step {
	h := o.jobs[ref]
	if h == nil {
		return nil
	}
	return []Step{o.end(Withdraw, ref, h)}
}

// Carried are the attempts that a pool's machine must name to the router as its own; ended
// are those of them that have ended.
func (o *Outbound) Carried(pool string) (carried []Ref, ended []Ref) {
	for ref, h := range o.jobs {
		if h.pool != pool {
			continue
		}
		carried = append(carried, ref)
		if h.stage == Ended {
			ended = append(ended, ref)
		}
	}
	slices.SortFunc(carried, Ref.compare)
	slices.SortFunc(ended, Ref.compare)
	return carried, ended
}

// Jobs counts the attempts that the peer has or may have: of one pool, or of all ("").
func (o *Outbound) Jobs(pool string) (n int) {
	for _, h := range o.jobs {
		if pool == "" || h.pool == pool {
			n++
		}
	}
	return n
}

// Offered returns what the peer offers as a pool, and whether it offers that at all.
func (o *Outbound) Offered(pool string) (Offer, bool) {
	offer, offered := o.offers[pool]
	return offer, offered
}
