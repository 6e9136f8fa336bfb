package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	"github.com/spillway-ci/spillway/store"
)

// Times of a Receiver.
const (
	// lookEvery is how often the records of handed-over jobs are read when nothing tells of
	// a change, and orderEvery how often a machine is told again to end one.
	lookEvery  = 2 * time.Second
	orderEvery = 5 * time.Second
	// bookEvery is how often the stored book is read: another replica may have taken jobs,
	// or answer for an origin by now.
	bookEvery = 5 * time.Second
	// replicaGone is how long a replica may not have said that it answers for an origin
	// before another one does.
	replicaGone = 20 * time.Second
	// offersEvery is how often what is offered is looked at.
	offersEvery = time.Second
	// missingFor is how long a job that was pushed may not be found before it is given up:
	// longer than any call of the store.
	missingFor = 30 * time.Second
	// endTopic is where the replicas of a cell tell each other what to end.
	endTopic = "cells-end"
	// maxEndIDs bounds the jobs of one such word [jobs].
	maxEndIDs = 100
)

// ReceiverStore is what a Receiver uses.
type ReceiverStore interface {
	Push(ctx context.Context, jobs []spillway.Job) ([]store.PushOutcome, error)
	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
	Cancel(ctx context.Context, ids []spillway.JobID, reason string) ([]store.CancelOutcome, error)
	Subscribe(ctx context.Context) (<-chan store.EventBatch, error)
	Settings(ctx context.Context, kind string) (map[string][]byte, error)
	PutSetting(ctx context.Context, kind, name string, data []byte) error
	// SwapSetting puts one that is still what it was when it was read.
	SwapSetting(ctx context.Context, kind, name string, was, data []byte) (swapped bool, err error)
	DropSetting(ctx context.Context, kind, name string) (dropped bool, err error)
	PublishFact(ctx context.Context, topic string, data []byte) error
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
}

// ReceiverOptions are the numbers of a Receiver, and what it asks of its control plane.
type ReceiverOptions struct {
	Cell, Region string
	Replica      string
	EndWithin    time.Duration
	// Offers is what the cell offers now. It must be quick.
	Offers func() []cells.Offer
	// EndJobs has machines of this replica end jobs, without the store.
	EndJobs func(ctx context.Context, ids []spillway.JobID, reason string)
	Events  Events
}

// Receiver takes jobs from other cells. The goroutine of Run owns all but the channels;
// others hand it what to do over inbox.
type Receiver struct {
	cellsv1.UnimplementedCellServiceServer

	opt    ReceiverOptions
	store  ReceiverStore
	origin *Origin // for ListCells; nil: this cell hands nothing over
	inbox  chan func()
	done   chan struct{} // closed when Run has returned
	calls  sync.WaitGroup

	links    atomic.Int64    // of origins
	ctx      context.Context // of Run
	origins  map[string]*inOrigin
	byLocal  map[spillway.JobID]*inJob
	others   map[string]otherReplica
	looking  bool
	lookedAt time.Time
	reading  bool
	readAt   time.Time
	offersAt time.Time
}

// inOrigin is an origin that this replica answers for, or is linked to.
type inOrigin struct {
	name, region string
	epoch        uint64
	book         *cells.Inbound
	jobs         map[cells.Ref]*inJob
	link         *inLink // nil: none
	since        time.Time
	beatEvery    time.Duration // of its last link; 0 = it had none here
	beatAt       time.Time
	offers       []cells.Offer
}

// inJob is one attempt of an origin.
type inJob struct {
	origin    *inOrigin
	ref       cells.Ref
	local     spillway.JobID
	last      *cellsv1.Report // the end, until it is confirmed
	orderedAt time.Time       // when a machine was told last to end it
	unsureAt  time.Time       // since when it is not sure whether a machine has it
	missingAt time.Time       // since when it is not found
	back      bool            // it is to be given back unless it has begun
}

// NewReceiver returns a receiver. Nothing is taken before Run. origin may be nil.
func NewReceiver(s ReceiverStore, origin *Origin, opt ReceiverOptions) (*Receiver, error) {
	timing := cells.Timing{EndWithin: opt.EndWithin}.WithDefaults()
	errs := []error{timing.Validate()}
	if !cells.ValidName(opt.Cell) || opt.Replica == "" {
		errs = append(errs, errors.New("cells: the cell and its replica need names"))
	}
	opt.EndWithin = timing.EndWithin
	return &Receiver{
		opt: opt, store: s, origin: origin, inbox: make(chan func(), 256), done: make(chan struct{}),
		origins: map[string]*inOrigin{}, byLocal: map[spillway.JobID]*inJob{}, others: map[string]otherReplica{},
	}, errors.Join(errs...)
}

// Run takes jobs and answers for them until ctx ends.
func (r *Receiver) Run(ctx context.Context) {
	r.ctx = ctx
	r.calls.Go(func() { r.followEvents(ctx) })
	r.calls.Go(func() { r.followOrders(ctx) })
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case f := <-r.inbox:
			f()
		case <-tick.C:
			r.tick(time.Now())
		}
	}
	close(r.done)
	for _, o := range r.origins {
		o.hangUp(errGoingAway)
	}
	r.calls.Wait()
}

var (
	errGoingAway = status.Error(codes.Unavailable, "this control plane is going away: try another")
	errNewerLink = status.Error(codes.Aborted, "this origin has a newer link")
)

// Linked reports whether an origin is linked to this replica.
func (r *Receiver) Linked() bool { return r.links.Load() > 0 }

// do has the owner do something; false when it has ended.
func (r *Receiver) do(ctx context.Context, f func()) bool {
	select {
	case r.inbox <- f:
		return true
	case <-ctx.Done():
		return false
	case <-r.done:
		return false
	}
}

// beside makes a call that may take long; what it returns is done by the owner.
func (r *Receiver) beside(f func(ctx context.Context) func()) {
	ctx := r.ctx
	r.calls.Go(func() {
		if then := f(ctx); then != nil {
			r.do(ctx, then)
		}
	})
}

func (r *Receiver) trouble(op string, err error) {
	if r.ctx.Err() == nil {
		tell(r.opt.Events.Trouble, Trouble{op, err})
	}
}

func (r *Receiver) tick(now time.Time) {
	for _, o := range r.origins {
		for _, ref := range o.book.Tick(now) {
			tell(r.opt.Events.JobEnded, JobEnded{Origin: o.name, Ref: ref, Why: "its cell has not renewed it"})
		}
		o.beat(now)
	}
	if now.Sub(r.offersAt) >= offersEvery {
		r.offersAt = now
		r.offer()
	}
	r.endWhatShall(now)
	r.look(now)
	r.readBook(now)
}

// beat asks the origin for its answer.
func (o *inOrigin) beat(now time.Time) {
	if o.link == nil || now.Sub(o.beatAt) < o.beatEvery {
		return
	}
	o.beatAt = now
	o.link.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Beat{Beat: &cellsv1.Beat{Number: o.book.Beat(now)}}})
}

// offer tells the origins what is offered, where that has changed.
func (r *Receiver) offer() {
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.origins)), func(o *inOrigin) bool { return o.link != nil }) {
		return
	}
	list := r.opt.Offers()
	for _, o := range r.origins {
		if o.link != nil && !sameOffers(o.offers, list) {
			o.offers = list
			o.link.say(offersToProto(list))
		}
	}
}

func sameOffers(a, b []cells.Offer) bool {
	return a != nil && slices.EqualFunc(a, b, func(x, y cells.Offer) bool {
		return x.Free == y.Free && x.Growth == y.Growth && x.CostPerJob == y.CostPerJob && x.Capability.Fingerprint() == y.Capability.Fingerprint()
	})
}

// job returns the entry of an attempt, and makes it if it is new.
func (r *Receiver) job(o *inOrigin, ref cells.Ref) *inJob {
	j := o.jobs[ref]
	if j == nil {
		j = &inJob{origin: o, ref: ref, local: cells.LocalID(o.name, ref)}
		o.jobs[ref] = j
		r.byLocal[j.local] = j
	}
	return j
}

func (r *Receiver) drop(j *inJob) {
	delete(j.origin.jobs, j.ref)
	delete(r.byLocal, j.local)
}

// say reports an attempt to its origin; what is final is said again over each new link.
func (r *Receiver) report(j *inJob, m *cellsv1.Report) {
	if word := wordIn(m); word >= cells.WordEnded {
		j.last = m
		tell(r.opt.Events.JobEnded, JobEnded{Origin: j.origin.name, Ref: j.ref, Word: word, Why: m.GetDetail()})
	}
	if j.origin.link != nil {
		j.origin.link.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Report{Report: m}})
	}
}

// followEvents marks the jobs whose records have changed.
func (r *Receiver) followEvents(ctx context.Context) {
	for ctx.Err() == nil {
		batches, err := r.store.Subscribe(ctx)
		if err != nil {
			r.trouble("follow handed-over jobs", err)
		}
		for err == nil {
			batch, open := <-batches
			if !open {
				break
			}
			var ids []spillway.JobID
			for i := range batch.Events {
				if id := batch.Events[i].Record.Job.ID; strings.HasPrefix(string(id), "cell/") {
					ids = append(ids, id)
				}
			}
			if len(ids) > 0 {
				r.do(ctx, func() { r.changed(ids) })
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

func (r *Receiver) changed(ids []spillway.JobID) {
	for _, id := range ids {
		if r.byLocal[id] != nil {
			r.lookedAt = time.Time{} // look at once
		}
	}
}

// followOrders ends what another replica says has to end.
func (r *Receiver) followOrders(ctx context.Context) {
	for ctx.Err() == nil {
		orders, err := r.store.Facts(ctx, endTopic)
		if err != nil {
			r.trouble("follow orders to end jobs", err)
		}
		for err == nil {
			data, open := <-orders
			if !open {
				break
			}
			var ids []spillway.JobID
			for id := range strings.SplitSeq(string(data), "\n") {
				ids = append(ids, spillway.JobID(id))
			}
			r.opt.EndJobs(ctx, ids[:min(len(ids), maxEndIDs)], endReason)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// OriginView is an origin for people.
type OriginView struct {
	Name, Region, State string
	Since               time.Time
	Jobs                int
}

// Origins lists the cells that this one has jobs of, or is linked to.
func (r *Receiver) Origins(ctx context.Context) []OriginView {
	answer := make(chan []OriginView, 1)
	asked := r.do(ctx, func() {
		var list []OriginView
		for name, o := range r.origins {
			v := OriginView{Name: name, Region: o.region, State: StateCutOff, Since: o.since, Jobs: len(o.jobs)}
			if o.link != nil {
				v.State = StateLinked
			}
			list = append(list, v)
		}
		for name, other := range r.others {
			if r.origins[name] == nil {
				list = append(list, OriginView{Name: name, State: StateOtherReplica, Since: other.changedAt, Jobs: other.jobs})
			}
		}
		slices.SortFunc(list, func(a, b OriginView) int { return cmp.Compare(a.Name, b.Name) })
		answer <- list
	})
	if !asked {
		return nil
	}
	select {
	case list := <-answer:
		return list
	case <-ctx.Done():
	case <-r.done:
	}
	return nil
}
