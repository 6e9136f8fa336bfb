package admission

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// ErrLie is wrapped when an instance answers what it was not asked. Nothing of such a
// message counts.
var ErrLie = errors.New("an answer to what was not asked")

// Verdict is what a controller says of a job.
type Verdict struct {
	Subject string // Subject.ID
	Allow   bool
	Reason  string
}

// Take puts a claimed job into the line of its next controller. Its decision comes at
// once if there is none, or if that one is not here.
func (e *Engine) Take(now time.Time, item Item) (decided []Decision) {
	e.advance(now)
	if old := e.jobs[item.Ref.ID]; old != nil {
		if old.item.Ref.Attempt >= item.Ref.Attempt {
			return nil // an answer that came twice
		}
		e.remove(old) // the store has given that attempt up
	}
	w := &entry{kind: Review, item: &item, taken: e.now}
	return e.advanceJob(w)
}

// advanceJob brings a job to its next controller.
func (e *Engine) advanceJob(w *entry) []Decision {
	next, ok := e.policy.Next(&w.item.Subject.Job.Requirement, w.item.Approved)
	if !ok {
		return []Decision{e.decide(w, Approved, "", "")}
	}
	w.asked = w.askedBefore(e.now, next.Name)
	l := e.lines[next.Name]
	if len(l.instances) == 0 && w.item.Ref.Attempt < MaxMoves || len(l.waiting) >= 2*maxLine {
		return []Decision{e.decide(w, HandedOn, next.Name, "its next controller is not here")}
	}
	fresh := &entry{kind: Review, item: w.item, taken: w.taken, asked: w.asked}
	switch {
	case !fresh.asked.IsZero():
		fresh.due = fresh.asked.Add(next.Deadline)
	case len(l.instances) == 0:
		fresh.due = e.now.Add(next.Deadline)
	}
	e.queue(l, fresh)
	return nil
}

// askedBefore is when the next controller of a job was shown it before it was taken here;
// zero: it was not.
func (w *entry) askedBefore(now time.Time, next string) time.Time {
	if w.line != nil || w.item.AskedBy != next || next == "" {
		return time.Time{}
	}
	return now.Add(-w.item.AskedFor)
}

func (e *Engine) queue(l *line, w *entry) {
	w.line = l
	l.waiting = append(l.waiting, w)
	if !w.due.IsZero() {
		slices.SortStableFunc(l.waiting, byTurn)
	}
	l.subjects[w.item.Subject.ID] = w
	if w.kind == Review {
		e.jobs[w.item.Ref.ID] = w
	}
}

// Ask puts a question to one controller, for somebody who waits until the controller's
// deadline has passed from now on, whether an instance is here or not. It reports
// false, and asks nothing, if the controller is unknown, has too much to do, or is
// being asked of that job already.
func (e *Engine) Ask(now time.Time, question uint64, controller string, s Subject) bool {
	e.advance(now)
	l := e.lines[controller]
	if l == nil || len(l.waiting) >= 2*maxLine || l.subjects[s.ID] != nil {
		return false
	}
	e.queue(l, &entry{kind: Question, question: question, item: &Item{Subject: s}, taken: e.now, due: e.now.Add(l.controller.Deadline)})
	return true
}

// Observe shows a job to a dry_run controller, if it is here and has room. It is never
// waited for.
func (e *Engine) Observe(now time.Time, controller string, s Subject) bool {
	e.advance(now)
	l := e.lines[controller]
	if l == nil || !l.controller.DryRun || len(l.instances) == 0 || len(l.waiting) >= maxObserved || l.subjects[s.ID] != nil {
		return false
	}
	e.queue(l, &entry{kind: Observation, item: &Item{Subject: s}, taken: e.now})
	return true
}

// Drop takes an attempt off the book that has ended otherwise, or is not ours any more.
func (e *Engine) Drop(ref router.JobRef) bool {
	w := e.jobs[ref.ID]
	if w == nil || w.item.Ref.Attempt != ref.Attempt {
		return false
	}
	e.remove(w)
	return true
}

// Room is how many jobs with this requirement could be taken now [jobs]: as many as
// the controllers that they pass here could be shown soon.
func (e *Engine) Room(r *spillway.Requirement) int {
	room, here := maxLine, false
	for _, c := range e.policy.Approvers(r) {
		l := e.lines[c.Name]
		if len(l.instances) == 0 {
			continue
		}
		here = true
		soon := 0
		for _, i := range l.instances {
			soon += i.maxBatch * (MaxReviews + 1)
		}
		room = min(room, min(soon, maxLine)-len(l.waiting)-len(l.asked))
	}
	if !here {
		return 0
	}
	return max(room, 0)
}

// Plan says which reviews to send now.
func (e *Engine) Plan(now time.Time) []Batch {
	e.advance(now)
	var batches []Batch
	for _, name := range e.names() {
		l := e.lines[name]
		for len(l.waiting) > 0 {
			i := l.idlest()
			if i == nil {
				break
			}
			batches = append(batches, e.send(l, i))
		}
	}
	return batches
}

// idlest returns the instance with the fewest open reviews, nil if all have enough.
func (l *line) idlest() *instance {
	var best *instance
	for _, i := range l.instances {
		if n := len(i.open); n < MaxReviews && (best == nil || n < len(best.open)) {
			best = i
		}
	}
	return best
}

func (e *Engine) send(l *line, i *instance) Batch {
	n := l.fit(i.maxBatch)
	i.last++
	r := &review{id: i.last, of: i, sentAt: e.now, entries: make(map[string]*entry, n), answered: make(map[string]bool, n), left: n}
	b := Batch{Instance: i.id, ID: r.id}
	for _, w := range l.waiting[:n] {
		if w.due.IsZero() {
			w.due = e.now.Add(l.controller.Deadline)
		}
		if b.Due.IsZero() || w.due.Before(b.Due) {
			b.Due = w.due
		}
		if w.asked.IsZero() {
			w.asked = e.now
		}
		w.in, w.shown = r, true
		r.entries[w.item.Subject.ID] = w
		b.Subjects = append(b.Subjects, &w.item.Subject)
		l.asked = append(l.asked, w)
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	slices.SortStableFunc(l.asked, byTurn)
	i.open = append(i.open, r)
	if i.silentSince.IsZero() {
		i.silentSince = e.now
	}
	return b
}

// fit is how many of those who wait, at most, go into one review of bounded size.
func (l *line) fit(most int) int {
	n, bytes := 0, 0
	for n < min(most, len(l.waiting)) {
		if bytes += l.waiting[n].item.Subject.shown(&l.controller.Send); n > 0 && bytes > MaxReviewBytes {
			break
		}
		n++
	}
	return n
}

// Answer takes the verdicts of one message. With ErrLie none of them counts, and the
// connection must be ended.
func (e *Engine) Answer(now time.Time, id InstanceID, batch uint64, verdicts []Verdict) (decided []Decision, infos []VerdictInfo, err error) {
	e.advance(now)
	i := e.instances[id]
	if i == nil {
		return nil, nil, nil // it has just been ended
	}
	r, err := i.check(batch, verdicts)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range verdicts {
		r.answered[v.Subject] = true
		w := r.entries[v.Subject]
		if w == nil {
			continue // its deadline has passed, or nobody waits for it
		}
		infos = append(infos, VerdictInfo{
			Controller: i.line.controller.Name, Instance: i.name, Subject: v.Subject, Allow: v.Allow,
			DryRun: i.line.controller.DryRun, Reason: Sentence(v.Reason), Took: e.now.Sub(r.sentAt),
		})
		decided = append(decided, e.judge(w, v)...)
	}
	i.tidy()
	if i.silentSince = e.now; len(i.open) == 0 {
		i.silentSince = time.Time{}
	}
	return decided, infos, nil
}

// check finds the review that a message answers, and every lie in it.
func (i *instance) check(batch uint64, verdicts []Verdict) (*review, error) {
	var r *review
	for _, known := range [][]*review{i.open, i.retired} {
		if at := slices.IndexFunc(known, func(r *review) bool { return r.id == batch }); at >= 0 {
			r = known[at]
		}
	}
	if r == nil {
		return nil, fmt.Errorf("%w: it has no batch %d without its verdicts", ErrLie, batch)
	}
	seen := make(map[string]bool, len(verdicts))
	for _, v := range verdicts {
		_, given := r.entries[v.Subject]
		switch {
		case !given:
			return nil, fmt.Errorf("%w: job %.80q is not in batch %d", ErrLie, v.Subject, batch)
		case r.answered[v.Subject] || seen[v.Subject]:
			return nil, fmt.Errorf("%w: a second verdict on job %.80q of batch %d", ErrLie, v.Subject, batch)
		}
		seen[v.Subject] = true
	}
	return r, nil
}

// judge carries out one verdict.
func (e *Engine) judge(w *entry, v Verdict) []Decision {
	name := w.line.controller.Name
	e.remove(w)
	switch {
	case !v.Allow:
		return []Decision{e.decide(w, Rejected, name, refusal(name, v.Reason))}
	case w.kind == Review:
		w.item.Approved = append(slices.Clone(w.item.Approved), name)
		return e.advanceJob(w)
	default:
		return []Decision{e.decide(w, Approved, name, "")}
	}
}

// tidy retires reviews of which nothing is waited for.
func (i *instance) tidy() {
	i.open = slices.DeleteFunc(i.open, func(r *review) bool {
		if r.left > 0 {
			return false
		}
		if len(r.answered) < len(r.entries) {
			i.retired = append(i.retired, r)
		}
		return true
	})
	i.retired = slices.DeleteFunc(i.retired, func(r *review) bool { return len(r.answered) == len(r.entries) })
	if over := len(i.retired) - maxRetired; over > 0 {
		i.retired = slices.Delete(i.retired, 0, over)
	}
}

// settle removes an entry and decides it.
func (e *Engine) settle(w *entry, outcome Outcome, reason string) Decision {
	e.remove(w)
	return e.decide(w, outcome, w.line.controller.Name, reason)
}

func (e *Engine) decide(w *entry, outcome Outcome, controller, reason string) Decision {
	d := Decision{
		Kind: w.kind, Ref: w.item.Ref, Question: w.question, Subject: w.item.Subject.ID, Outcome: outcome,
		Controller: controller, Reason: reason, Approved: w.item.Approved, Took: e.now.Sub(w.taken),
	}
	if outcome == HandedOn && !w.asked.IsZero() {
		d.AskedBy, d.AskedFor = controller, e.now.Sub(w.asked)
	}
	return d
}

// remove takes an entry off the books. The review that it is in remembers that it was
// there: its instance may still answer.
func (e *Engine) remove(w *entry) {
	l, id := w.line, w.item.Subject.ID
	if w.in != nil {
		l.asked = slices.DeleteFunc(l.asked, func(o *entry) bool { return o == w })
		w.in.entries[id] = nil
		w.in.left--
	} else {
		l.waiting = slices.DeleteFunc(l.waiting, func(o *entry) bool { return o == w })
	}
	if l.subjects[id] == w {
		delete(l.subjects, id)
	}
	if w.kind == Review && e.jobs[w.item.Ref.ID] == w {
		delete(e.jobs, w.item.Ref.ID)
	}
}

// Expire decides what is due, and lists the instances that were asked and have said
// nothing for their deadline: they are to be ended, since they would take the next
// reviews along.
func (e *Engine) Expire(now time.Time) (decided []Decision, silent []InstanceID) {
	e.advance(now)
	for _, name := range e.names() {
		l := e.lines[name]
		for _, w := range append(slices.Clone(l.asked), l.waiting...) {
			if !w.due.IsZero() && !e.now.Before(w.due) {
				decided = append(decided, e.settle(w, TimedOut, l.whyLate(w)))
			}
		}
		for _, i := range l.instances {
			i.tidy()
			if e.now.Sub(i.goodAt(e.now)) >= l.controller.Deadline {
				silent = append(silent, i.id)
			}
		}
	}
	return decided, silent
}

func (l *line) whyLate(w *entry) string {
	if w.shown {
		return silence(l.controller.Name, l.controller.Deadline)
	}
	return absence(l.controller.Name, l.controller.Deadline)
}

// NextDeadline returns when Expire may have something to do.
func (e *Engine) NextDeadline() (at time.Time, ok bool) {
	for _, l := range e.lines {
		for _, list := range [][]*entry{l.asked, l.waiting} {
			for _, w := range list {
				if w.due.IsZero() {
					continue
				}
				if !ok || w.due.Before(at) {
					at, ok = w.due, true
				}
				break // each list is in the order of due, those without one last
			}
		}
	}
	return at, ok
}
