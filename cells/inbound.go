package cells

import (
	"slices"
	"time"
)

const (
	// MaxHeld bounds the attempts of one origin that a peer holds, and so those that one
	// message names [jobs].
	MaxHeld = 1_000
	// keptBeats bounds the beats that an answer may be to [beats]. Older ones cover
	// nothing any more.
	keptBeats = 64
)

// held is one attempt of an origin.
type held struct {
	coveredUntil time.Time
	phase        phase
	word         Word // of what has been said of it last; 0 = nothing
}

// phase is how far an attempt has come in the peer.
type phase int

const (
	pushing phase = iota + 1 // on its way into the queue
	working                  // in the queue, or on a machine
	ending                   // it shall end
	done                     // it has ended; the origin has yet to confirm
)

// Inbound is the peer's book on one origin. It has one owner.
type Inbound struct {
	timing Timing // Lease is the origin's word
	beat   uint64
	sent   []time.Time // of the last beats, the newest last
	jobs   map[Ref]*held
}

// NewInbound returns an empty book.
func NewInbound(timing Timing) *Inbound {
	return &Inbound{timing: timing.WithDefaults(), jobs: map[Ref]*held{}}
}

// Link begins anew with the beats: those of an older link cover nothing any more.
func (b *Inbound) Link(lease time.Duration) {
	b.timing.Lease = lease
	b.sent = nil
}

// Inherit takes over attempts that another replica, or an earlier life of this one, has
// taken. For how long they are covered is not known: hardly at all. Those that are known
// are left as they are.
func (b *Inbound) Inherit(now time.Time, refs []Ref) {
	for _, ref := range refs {
		if b.jobs[ref] == nil {
			b.jobs[ref] = &held{phase: working, coveredUntil: now.Add(b.timing.Welcome())}
		}
	}
}

// Beat numbers the beat that is sent at now.
func (b *Inbound) Beat(now time.Time) (number uint64) {
	b.beat++
	b.sent = append(b.sent, now)
	if len(b.sent) > keptBeats {
		b.sent = slices.Delete(b.sent, 0, len(b.sent)-keptBeats)
	}
	return b.beat
}

// until is when what was covered by an answer to a beat is covered no more; the zero time
// for a beat that this link does not know.
func (b *Inbound) until(beat uint64) time.Time {
	at := len(b.sent) - 1 - int(b.beat-beat)
	if beat > b.beat || b.beat-beat >= keptBeats || at < 0 {
		return time.Time{}
	}
	return b.sent[at].Add(b.timing.Lease)
}

// Spilled is what becomes of an attempt that is handed over.
type Spilled int

// The outcomes.
const (
	Push    Spilled = iota + 1 // into the queue, then Pushed
	Again                      // it is here already
	TooLate                    // it is not covered any more: it must not begin
	TooMany                    // the origin has MaxHeld here
)

// Spill takes in an attempt.
func (b *Inbound) Spill(now time.Time, ref Ref, beat uint64) Spilled {
	until := b.until(beat)
	if h := b.jobs[ref]; h != nil { // before all else: what is here has not been refused
		h.cover(until)
		return Again
	}
	if !now.Before(until) {
		return TooLate
	}
	if len(b.jobs) >= MaxHeld {
		return TooMany
	}
	b.jobs[ref] = &held{phase: pushing, coveredUntil: until}
	return Push
}

func (h *held) cover(until time.Time) {
	if until.After(h.coveredUntil) {
		h.coveredUntil = until
	}
}

// Pushed notes that an attempt is in the queue, or is not and will not be. end: it shall
// end at once.
func (b *Inbound) Pushed(now time.Time, ref Ref, ok bool) (end bool) {
	h := b.jobs[ref]
	switch {
	case h == nil:
		return false
	case !ok:
		delete(b.jobs, ref)
		return false
	case h.phase == ending || !now.Before(h.coveredUntil):
		h.phase = ending
		return true
	case h.phase == pushing:
		h.phase = working
	}
	return false
}

// Renew takes in an answer to a beat: which of the named attempts are not here, and which
// of those that are shall end, since they were not named. also are named without being
// covered.
func (b *Inbound) Renew(beat uint64, covered, also []Ref) (unknown, end []Ref) {
	until := b.until(beat)
	wanted := make(map[Ref]bool, len(covered)+len(also))
	for i, ref := range slices.Concat(covered, also) {
		wanted[ref] = true
		switch h := b.jobs[ref]; {
		case h == nil:
			unknown = append(unknown, ref)
		case i < len(covered):
			h.cover(until)
		}
	}
	for ref, h := range b.jobs {
		if !wanted[ref] && h.phase <= working {
			end = append(end, b.ends(ref, h)...)
		}
	}
	slices.SortFunc(end, Ref.compare)
	return unknown, end
}

// ends has an attempt end; one that is on its way into the queue is ended when it is there.
func (b *Inbound) ends(ref Ref, h *held) []Ref {
	was := h.phase
	h.phase = ending
	if was == pushing {
		return nil
	}
	return []Ref{ref}
}

// Cancel has an attempt end that is not wanted any more.
func (b *Inbound) Cancel(ref Ref) (end []Ref) {
	h := b.jobs[ref]
	if h == nil || h.phase >= ending {
		return nil
	}
	return b.ends(ref, h)
}

// Tick returns the attempts that are covered no more: they shall end.
func (b *Inbound) Tick(now time.Time) (end []Ref) {
	for ref, h := range b.jobs {
		if h.phase <= working && !now.Before(h.coveredUntil) {
			end = append(end, b.ends(ref, h)...)
		}
	}
	slices.SortFunc(end, Ref.compare)
	return end
}

// Seen notes what is true of an attempt by now, and reports whether that is news for the
// origin. After the last three words it runs nowhere in this cell.
func (b *Inbound) Seen(ref Ref, word Word) (news bool) {
	h := b.jobs[ref]
	if h == nil || h.phase == done || word <= h.word {
		return false
	}
	h.word = word
	if word >= WordEnded {
		h.phase = done
	}
	return true
}

// Confirmed forgets an attempt whose end the origin knows. It reports whether there was
// one.
func (b *Inbound) Confirmed(ref Ref) bool {
	h := b.jobs[ref]
	if h == nil || h.phase != done {
		return false
	}
	delete(b.jobs, ref)
	return true
}

// Forget drops an attempt that another replica answers for.
func (b *Inbound) Forget(ref Ref) { delete(b.jobs, ref) }

// Held lists the attempts that are here, with the last word on each (0 = none yet).
func (b *Inbound) Held() map[Ref]Word {
	all := make(map[Ref]Word, len(b.jobs))
	for ref, h := range b.jobs {
		all[ref] = h.word
	}
	return all
}

// Open lists the attempts that have not ended; those in ending shall end.
func (b *Inbound) Open() (open, toEnd []Ref) {
	for ref, h := range b.jobs {
		switch h.phase {
		case working:
			open = append(open, ref)
		case ending:
			toEnd = append(toEnd, ref)
		case pushing, done:
		}
	}
	slices.SortFunc(open, Ref.compare)
	slices.SortFunc(toEnd, Ref.compare)
	return open, toEnd
}

// Jobs counts the attempts that are here.
func (b *Inbound) Jobs() int { return len(b.jobs) }

// Ends reports whether an attempt shall end.
func (b *Inbound) Ends(ref Ref) bool {
	h := b.jobs[ref]
	return h != nil && h.phase == ending
}
