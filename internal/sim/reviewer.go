package sim

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// The numbers of admission's shell, as serve has them.
const (
	reviewTTL     = time.Minute
	announceEvery = 5 * time.Second
	announceTTL   = 3 * announceEvery
	// sweepEvery is how often absences are looked at while somebody waits. Serve looks
	// more often; no deadline of a story is so short that it matters.
	sweepEvery = time.Second
	// maxFailedAtOnce bounds the jobs of a class that an absence fails at a time [jobs].
	maxFailedAtOnce = 512
)

// reviewer is admission's shell of one replica: what admission/session does with
// goroutines and streams, done in the order of the agenda.
type reviewer struct {
	replica *replica
	world   *world
	life    int
	engine  *admission.Engine
	streams map[admission.InstanceID]*controller
	last    admission.InstanceID
	waiting map[spillway.JobClass]*router.ClassCount // what there may still be to claim
	counted map[spillway.JobClass]*router.ClassCount // what the last count found
	decided []store.ReviewEnd                        // the store has not confirmed these yet
	retry   bool                                     // a retry of theirs is planned
	woken   bool
	alarm   time.Time // when time alone is looked at; zero = not planned
	// configuredAt is the reload that the policy is of.
	configuredAt time.Time

	seenAt time.Time            // when the store last told of all replicas
	goodAt map[string]time.Time // by controller: when it was last known to do its work
}

// newReviewer returns a reviewer that nobody is connected to; nil if nobody has to be
// asked about jobs.
func newReviewer(r *replica) *reviewer {
	policy := r.world.policy
	if len(policy.Controllers()) == 0 {
		return nil
	}
	v := &reviewer{
		replica: r, world: r.world, life: r.life, engine: admission.NewEngine(r.world.now, policy),
		streams: make(map[admission.InstanceID]*controller), goodAt: make(map[string]time.Time),
		waiting: make(map[spillway.JobClass]*router.ClassCount), configuredAt: r.world.reloadedAt,
	}
	r.every(announceEvery, v.announce)
	return v
}

// told is the whole queue, sorted.
func (v *reviewer) told(counts []router.ClassCount) {
	v.waiting, v.counted = make(map[spillway.JobClass]*router.ClassCount), make(map[spillway.JobClass]*router.ClassCount)
	for i := range counts {
		if counts[i].Unadmitted > 0 {
			c, still := counts[i], counts[i]
			v.counted[c.Class], v.waiting[c.Class] = &c, &still
		}
	}
	v.wake()
}

// wake has the reviewer act in this moment, once whatever else happens in it has begun.
func (v *reviewer) wake() {
	if v.woken {
		return
	}
	v.woken = true
	v.world.after(0, func() {
		v.woken = false
		if v.replica.life == v.life && v.replica.working() {
			v.act()
		}
	})
}

// act does what is due.
func (v *reviewer) act() {
	now := v.world.now
	late, silent := v.engine.Expire(now)
	v.settle(late)
	for _, id := range silent {
		v.end(id)
	}
	v.claim()
	for _, b := range v.engine.Plan(now) {
		if c := v.streams[b.Instance]; c != nil {
			v.world.rules.shown(c.name, &b)
			if c.replica == v.replica && c.id == b.Instance { // else it goes to a stream that is broken already
				c.review(b)
			}
		}
	}
	v.write()
	v.failAbsent()
	v.arm()
}

// arm plans the next look at what time does.
func (v *reviewer) arm() {
	at, ok := v.engine.NextDeadline()
	if sweep := v.world.now.Add(sweepEvery); len(v.counted) > 0 && (!ok || sweep.Before(at)) {
		at, ok = sweep, true
	}
	if !ok || (!v.alarm.IsZero() && !at.Before(v.alarm) && v.alarm.After(v.world.now)) {
		return
	}
	at = later(at, v.world.now)
	v.alarm = at
	v.world.agenda.plan(at, func() {
		if v.alarm.Equal(at) {
			v.alarm = time.Time{}
			v.wake()
		}
	})
}

// claim takes jobs that can be shown to their next controller soon.
func (v *reviewer) claim() {
	wants := v.wants()
	if len(wants) == 0 {
		return
	}
	got, err := v.world.store.ClaimForReview(v.replica.name, wants, reviewTTL)
	if err != nil {
		return // counted again when the store is back
	}
	brought := make(map[spillway.JobClass]int)
	for i := range got {
		g := &got[i]
		brought[g.Ref.Class]++
		s := admission.Subject{ID: string(g.Job.ID), Job: g.Job}
		if g.Ref.Attempt == 1 {
			v.observe(s)
		}
		v.settle(v.engine.Take(v.world.now, admission.Item{
			Ref: g.Ref, Subject: s, Approved: g.Approved, AskedBy: g.Asked.Controller, AskedFor: g.Asked.For,
		}))
	}
	for _, w := range wants {
		c := v.waiting[w.Class]
		if c.Unadmitted -= brought[w.Class]; brought[w.Class] < w.N || c.Unadmitted <= 0 {
			delete(v.waiting, w.Class)
		}
	}
}

// wants lists what to claim, the most urgent classes first.
func (v *reviewer) wants() []store.ReviewWant {
	classes := slices.SortedFunc(maps.Values(v.waiting), func(a, b *router.ClassCount) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Oldest.Compare(b.Oldest), cmp.Compare(a.Class, b.Class))
	})
	var wants []store.ReviewWant
	for _, c := range classes {
		n := min(c.Unadmitted, v.engine.Room(&c.Requirement))
		if n <= 0 {
			continue
		}
		want := store.ReviewWant{Class: c.Class, N: n}
		for _, a := range v.engine.Policy().Approvers(&c.Requirement) {
			want.Approvers = append(want.Approvers, store.Approver{Name: a.Name, Here: v.engine.Here(a.Name)})
		}
		wants = append(wants, want)
	}
	return wants
}

// observe shows a job to its dry_run controllers, here or at another replica.
func (v *reviewer) observe(s admission.Subject) {
	for _, c := range v.engine.Policy().Observers(&s.Job.Requirement) {
		for _, r := range append([]*replica{v.replica}, v.world.replicas...) {
			if r.working() && r.reviewer != nil && r.reviewer.engine.Observe(v.world.now, c.Name, s) {
				r.reviewer.wake()
				break
			}
		}
	}
}

// dispatched shows a job that nobody has to approve to its dry_run controllers.
func (v *reviewer) dispatched(job *spillway.Job) {
	if !v.engine.Policy().Needs(&job.Requirement) {
		v.observe(admission.Subject{ID: string(job.ID), Job: *job})
	}
}

// settle keeps what was decided until the store has it.
func (v *reviewer) settle(list []admission.Decision) {
	for i := range list {
		if list[i].Kind == admission.Review {
			v.decided = append(v.decided, reviewed(&list[i]))
			v.wake()
		}
	}
}

// reviewed is what the store is told of a review.
func reviewed(d *admission.Decision) store.ReviewEnd {
	e := store.ReviewEnd{Ref: d.Ref}
	switch d.Outcome {
	case admission.Approved:
		e.To, e.Approved = spillway.Admitted, d.Approved
	case admission.Rejected:
		e.To, e.Result = spillway.Rejected, spillway.JobResult{State: spillway.Rejected, Reason: spillway.AdmissionRejected, Detail: d.Reason}
	case admission.TimedOut:
		e.To, e.Result = spillway.Failed, spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: d.Reason}
	default:
		e.To, e.Approved, e.Reason = spillway.Pending, d.Approved, d.Reason
		e.Asked = store.Asked{Controller: d.AskedBy, For: d.AskedFor}
	}
	return e
}

// write has the store told what was decided. What it does not confirm is repeated.
func (v *reviewer) write() {
	if len(v.decided) == 0 || v.retry {
		return
	}
	errs, err := v.world.store.EndReviews(v.decided)
	if err != nil {
		v.retry = true
		v.world.after(retryEvery, func() {
			v.retry = false
			v.wake()
		})
		return
	}
	written := v.decided
	v.decided = nil
	for i := range written {
		if errs[i] == nil {
			v.world.rules.ended(&written[i])
		}
	}
	v.world.queueChanged()
}

// renew keeps the claims of what is under review; what is no longer held is forgotten.
func (v *reviewer) renew() {
	stale, err := v.world.store.Renew(v.engine.Held(), reviewTTL)
	if err != nil {
		return // and again
	}
	for _, ref := range stale {
		v.engine.Drop(ref)
	}
}

// announce says what is connected here, and learns what is elsewhere.
func (v *reviewer) announce() {
	now := v.world.now
	var here []store.ControllerAt
	for _, p := range v.engine.Presences(now) {
		here = append(here, store.ControllerAt{
			Controller: p.Controller, Instances: p.Instances, Waiting: p.Waiting, Asked: p.Asked, Silent: max(0, now.Sub(p.GoodAt)),
		})
	}
	all, err := v.world.store.AnnounceControllers(v.replica.name, here, announceTTL)
	if err != nil {
		return
	}
	v.seenAt = now
	for i := range all {
		if at := all[i].At.Add(-all[i].Silent); at.After(v.goodAt[all[i].Controller]) {
			v.goodAt[all[i].Controller] = at
		}
	}
	v.wake()
}

// failAbsent ends jobs whose controller is connected nowhere, or silent everywhere. While
// it is not known what the other replicas have, nothing is absent.
func (v *reviewer) failAbsent() {
	now := v.world.now
	if v.seenAt.IsZero() || now.Sub(v.seenAt) > 2*announceEvery {
		return
	}
	good := maps.Clone(v.goodAt)
	for _, p := range v.engine.Presences(now) {
		if p.GoodAt.After(good[p.Controller]) {
			good[p.Controller] = p.GoodAt
		}
	}
	for _, class := range slices.Sorted(maps.Keys(v.counted)) {
		c := v.counted[class]
		for _, a := range v.engine.Policy().Absent(now, v.engine.Since(), &c.Requirement, good) {
			result := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: a.Detail()}
			_, _ = v.world.store.FailAbsent(class, a.Approvers, a.Controller.Name, a.Controller.Deadline, maxFailedAtOnce, result) // and again
		}
	}
}

// connect is an instance's new stream.
func (v *reviewer) connect(c *controller, batch int) bool {
	v.last++
	if _, err := v.engine.Connect(v.world.now, v.last, c.name, c.instance, batch); err != nil {
		return false
	}
	v.streams[v.last] = c
	c.id = v.last
	v.announce()
	v.wake()
	return true
}

// disconnected is a stream that its instance has ended.
func (v *reviewer) disconnected(id admission.InstanceID) {
	if v.streams[id] == nil {
		return
	}
	delete(v.streams, id)
	v.settle(v.engine.Disconnect(v.world.now, id))
	v.announce()
	v.wake()
}

// end is a stream that we end.
func (v *reviewer) end(id admission.InstanceID) {
	if c := v.streams[id]; c != nil {
		v.disconnected(id)
		c.disconnect()
	}
}

// answer is what an instance says. Of a lie nothing counts, and it ends the stream.
func (v *reviewer) answer(c *controller, batch uint64, verdicts []admission.Verdict) {
	decided, infos, err := v.engine.Answer(v.world.now, c.id, batch, verdicts)
	if errors.Is(err, admission.ErrLie) {
		v.end(c.id)
		return
	}
	for i := range infos {
		v.world.rec.verdict(&infos[i])
	}
	v.settle(decided)
	v.wake()
}

// setPolicy takes a configuration over.
func (v *reviewer) setPolicy(p admission.Policy) {
	v.configuredAt = v.world.reloadedAt
	left, gone := v.engine.SetPolicy(v.world.now, p)
	v.settle(left)
	for _, id := range gone {
		if c := v.streams[id]; c != nil {
			delete(v.streams, id)
			c.disconnect()
		}
	}
	v.wake()
}

// dropStreams is the end of the process, seen by the controllers.
func (v *reviewer) dropStreams() {
	for _, id := range slices.Sorted(maps.Keys(v.streams)) {
		c := v.streams[id]
		delete(v.streams, id)
		c.disconnect()
	}
}
