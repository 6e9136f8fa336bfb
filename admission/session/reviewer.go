package session

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Reviewer runs admission.Engine against the queue. Run's goroutine owns the engine and
// every field below the blank line; others reach it through do.
type Reviewer struct {
	opt    Options
	store  Store
	policy atomic.Pointer[admission.Policy]
	inbox  chan func(now time.Time)
	done   chan struct{} // closed when Run has returned
	calls  sync.WaitGroup
	seen   sightings
	asked  atomic.Uint64 // questions

	ctx       context.Context // of Run
	engine    *admission.Engine
	streams   map[admission.InstanceID]*stream
	last      admission.InstanceID
	waiting   map[spillway.JobClass]*router.ClassCount // what there may still be to claim
	counted   map[spillway.JobClass]*router.ClassCount // what the last count found
	claiming  bool
	claimed   retry
	decided   []decided
	writing   bool
	written   retry
	renewed   time.Time
	renewing  bool
	announced time.Time // when it was last tried
	changed   bool      // something to announce at once
	saying    bool
	failing   bool
	failed    time.Time // when absences were last looked at
	questions map[uint64]chan<- admission.Decision
	remote    map[string]uint64 // questions of other replicas that are being asked here
}

// decided is a decision that the store has not confirmed yet.
type decided struct {
	end  store.ReviewEnd
	tell *JobReviewed // once it has; nil: nobody
}

// NewReviewer returns a reviewer over the store. Nothing happens before Run.
func NewReviewer(s Store, opt Options) (*Reviewer, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	r := &Reviewer{
		opt: opt.withDefaults(), store: s, inbox: make(chan func(time.Time), inboxEvents), done: make(chan struct{}),
		engine: admission.NewEngine(time.Now(), opt.Policy), streams: make(map[admission.InstanceID]*stream),
		waiting: make(map[spillway.JobClass]*router.ClassCount), questions: make(map[uint64]chan<- admission.Decision),
		remote: make(map[string]uint64),
	}
	r.policy.Store(&opt.Policy)
	// Another replica may still answer what this one asked before it was restarted: that
	// must be no answer to what it asks now.
	r.asked.Store(rand.Uint64() >> 1)
	return r, nil
}

// do has f run on the reviewer's goroutine. It waits while the inbox is full, which
// holds the controller up that talks too much; false when ctx ended first or the
// reviewer has.
func (r *Reviewer) do(ctx context.Context, f func(now time.Time)) bool {
	select {
	case r.inbox <- f:
		return true
	case <-ctx.Done():
		return false
	case <-r.done:
		return false
	}
}

// beside makes a call that may take long without holding the reviewer up. What f
// returns is run on the reviewer's goroutine.
func (r *Reviewer) beside(f func(ctx context.Context) func(now time.Time)) {
	ctx := r.ctx
	r.calls.Go(func() {
		answer := f(ctx)
		select {
		case r.inbox <- answer:
		case <-ctx.Done():
		}
	})
}

// Run reviews until ctx ends. Then every stream is ended with Unavailable, so that the
// controllers go on with another replica, and what is under review goes back to the
// queue.
func (r *Reviewer) Run(ctx context.Context) error {
	r.ctx = ctx
	defer r.shutDown()
	r.listenToOthers()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case f := <-r.inbox:
			f(time.Now())
		case <-alarm.C:
		}
		r.takeIn()
		alarm.Reset(r.act(time.Now()))
	}
}

// takeIn does what waits, so that all of it is acted on at once.
func (r *Reviewer) takeIn() {
	for range inboxEvents {
		select {
		case f := <-r.inbox:
			f(time.Now())
		default:
			return
		}
	}
}

// act does what is due and returns how long nothing else will be.
func (r *Reviewer) act(now time.Time) time.Duration {
	r.expire(now)
	r.claim(now)
	r.send(now)
	rest := min(r.opt.SweepEvery, r.write(now))
	r.renew(now)
	r.announce(now)
	r.failAbsent(now)
	if at, ok := r.engine.NextDeadline(); ok {
		rest = min(rest, at.Sub(now))
	}
	return max(rest, time.Millisecond)
}

// SetPolicy replaces the policy, for a reload of the configuration.
func (r *Reviewer) SetPolicy(p admission.Policy) {
	r.policy.Store(&p)
	r.do(context.Background(), func(now time.Time) {
		left, gone := r.engine.SetPolicy(now, p)
		r.settle(left)
		for _, id := range gone {
			if s := r.streams[id]; s != nil {
				delete(r.streams, id)
				s.end(status.Error(codes.NotFound, "this controller is configured no more"))
			}
		}
		for _, s := range r.streams {
			if c, ok := p.Controller(s.controller.Name); ok {
				c.Batch = min(c.Batch, s.controller.Batch)
				s.controller = c
			}
		}
		r.changed = true
	})
}

// expire ends what was asked and not answered, and the streams of those who owe it.
func (r *Reviewer) expire(now time.Time) {
	late, silent := r.engine.Expire(now)
	r.settle(late)
	for _, id := range silent {
		s := r.streams[id]
		r.end(now, id, status.Errorf(codes.DeadlineExceeded, "it was asked and gave no verdict for its deadline of %s", s.controller.Deadline))
	}
}

// end ends a stream from here.
func (r *Reviewer) end(now time.Time, id admission.InstanceID, err error) {
	s := r.streams[id]
	if s == nil {
		return
	}
	delete(r.streams, id)
	r.changed = true
	r.settle(r.engine.Disconnect(now, id))
	s.end(err)
}

// send sends the reviews that can be.
func (r *Reviewer) send(now time.Time) {
	for _, b := range r.engine.Plan(now) {
		s := r.streams[b.Instance]
		if !s.put(reviewToProto(&b, &s.controller)) {
			r.end(now, b.Instance, errDoesNotRead)
		}
	}
}

// settle carries decisions out.
func (r *Reviewer) settle(list []admission.Decision) {
	for i := range list {
		d := &list[i]
		switch d.Kind {
		case admission.Question:
			if c := r.questions[d.Question]; c != nil {
				delete(r.questions, d.Question)
				c <- *d
			}
		case admission.Observation:
			if d.Outcome != admission.Cancelled {
				tell(r.opt.Events.JobReviewed, JobReviewed{
					Job: spillway.JobID(d.Subject), Outcome: d.Outcome, Controller: d.Controller, Reason: d.Reason, DryRun: true, Took: d.Took,
				})
			}
		default:
			r.decided = append(r.decided, reviewed(d))
		}
	}
}

// reviewed is what the store is told of a review.
func reviewed(d *admission.Decision) decided {
	e := store.ReviewEnd{Ref: d.Ref}
	told := &JobReviewed{Job: d.Ref.ID, Outcome: d.Outcome, Controller: d.Controller, Reason: d.Reason, Took: d.Took}
	switch d.Outcome {
	case admission.Approved:
		e.To = spillway.Admitted
	case admission.Rejected:
		e.To, e.Result = spillway.Rejected, spillway.JobResult{State: spillway.Rejected, Reason: spillway.AdmissionRejected, Detail: d.Reason}
	case admission.TimedOut:
		e.To, e.Result = spillway.Failed, spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: d.Reason}
	default:
		e.To, e.Approved, e.Reason, told = spillway.Pending, d.Approved, d.Reason, nil
		e.Asked = store.Asked{Controller: d.AskedBy, For: d.AskedFor}
	}
	return decided{end: e, tell: told}
}

// shutDown ends every stream and gives back what is under review. What could not be
// written ends with its claim.
func (r *Reviewer) shutDown() {
	close(r.done)
	now := time.Now()
	for id := range r.streams {
		r.end(now, id, errGoingAway)
	}
	left, _ := r.engine.SetPolicy(now, admission.Policy{}) // whatever is still before somebody is handed on
	r.settle(left)
	r.calls.Wait()
	ctx := context.WithoutCancel(r.ctx)
	for len(r.decided) > 0 {
		batch := r.takeDecided()
		if _, err := r.store.EndReviews(ctx, endsOf(batch)); err != nil {
			break
		}
	}
	_, _ = r.store.AnnounceControllers(ctx, r.opt.Replica, nil, r.opt.AnnounceTTL) // it ends by itself
}

// trouble tells of a call to the store that failed.
func (r *Reviewer) trouble(op string, err error) {
	if r.ctx.Err() == nil {
		tell(r.opt.Events.StoreTrouble, StoreTrouble{Op: op, Err: err})
	}
}

// retry spaces the repetitions of a call that failed.
type retry struct {
	pause time.Duration
	until time.Time
}

func (t *retry) rest(now time.Time) time.Duration { return t.until.Sub(now) }

func (t *retry) note(now time.Time, err error) {
	if err == nil {
		*t = retry{}
		return
	}
	t.pause = min(max(2*t.pause, retryFirst), retryMost)
	t.until = now.Add(t.pause)
}
