package session

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
)

const (
	// helloWithin is how long a new link may take to say who it is.
	helloWithin = 10 * time.Second
	// maxOrigins bounds the cells that a replica answers for [cells]. One that is not
	// linked and has no jobs here makes room for another.
	maxOrigins = 256
)

// inLink is one link of an origin.
type inLink struct {
	out   chan *cellsv1.PeerMessage
	once  sync.Once
	ended chan struct{}
	err   error // read after ended
}

func (l *inLink) end(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.ended)
	})
}

// say queues a message. An origin that does not read is hung up on: what it misses is said
// again over its next link.
func (l *inLink) say(m *cellsv1.PeerMessage) {
	select {
	case l.out <- m:
	default:
		l.end(status.Error(codes.ResourceExhausted, "this origin does not read what it is sent"))
	}
}

// hangUp ends the origin's link.
func (o *inOrigin) hangUp(err error) {
	if o.link != nil {
		o.link.end(err)
		o.link, o.since = nil, time.Now()
	}
}

// Link carries all that one origin says.
func (r *Receiver) Link(stream cellsv1.CellService_LinkServer) error {
	if r == nil {
		return status.Error(codes.FailedPrecondition, "this control plane is no cell: its configuration has no cells section")
	}
	l := &inLink{out: make(chan *cellsv1.PeerMessage, linkMessages), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	r.links.Add(1)
	defer r.links.Add(-1)
	late := time.AfterFunc(helloWithin, func() { l.end(status.Errorf(codes.InvalidArgument, "no hello within %s", helloWithin)) })
	defer late.Stop()
	// Reading and writing have a goroutine each and end with the handler: an origin that
	// does not read must not keep it.
	go func() { l.end(r.read(ctx, stream, l, late)) }()
	go l.write(ctx, stream)
	<-l.ended
	r.do(context.WithoutCancel(ctx), func() { r.ended(l) })
	return l.err
}

// write hands on what is said to the origin until the stream ends.
func (l *inLink) write(ctx context.Context, stream cellsv1.CellService_LinkServer) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.out:
			if err := stream.Send(m); err != nil {
				l.end(endedWith(err))
				return
			}
		}
	}
}

// read hands on what the origin says until the stream ends.
func (r *Receiver) read(ctx context.Context, stream cellsv1.CellService_LinkServer, l *inLink, late *time.Timer) (err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	first, err := stream.Recv()
	if err != nil {
		return endedWith(err)
	}
	late.Stop()
	h := first.GetHello()
	if err := r.checkHello(ctx, h); err != nil {
		return err
	}
	answer := make(chan error, 1)
	if !r.do(ctx, func() { r.greet(l, h, answer) }) {
		return errGoingAway
	}
	select {
	case err := <-answer:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return endedWith(ctx.Err())
	case <-r.done:
		return errGoingAway
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return endedWith(err)
		}
		if err := checkOriginMessage(m); err != nil {
			return err
		}
		if !r.do(ctx, func() { r.hear(l, h.GetCell(), m) }) {
			return errGoingAway
		}
	}
}

func endedWith(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled:
		return status.Error(codes.Canceled, "the origin left")
	default:
		return err
	}
}

// checkHello reports why a link can't be.
func (r *Receiver) checkHello(ctx context.Context, h *cellsv1.Hello) error {
	timing := cells.Timing{Lease: h.GetLease().AsDuration(), EndWithin: r.opt.EndWithin}
	who, known := access.From(ctx)
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "the first message must be a hello")
	case !cells.ValidName(h.GetCell()):
		return status.Errorf(codes.InvalidArgument, "hello: %.80q can't name a cell", h.GetCell())
	case len(h.GetRegion()) > cells.MaxRegionBytes:
		return status.Errorf(codes.InvalidArgument, "hello: a region of more than %d bytes", cells.MaxRegionBytes)
	case h.GetCell() == r.opt.Cell:
		return status.Errorf(codes.FailedPrecondition, "this is cell %s itself: each cell needs a name of its own", r.opt.Cell)
	case timing.Validate() != nil:
		return status.Errorf(codes.InvalidArgument, "hello: %v", timing.Validate())
	case known && who.Via != access.ViaOpen && who.Name != h.GetCell():
		return status.Errorf(codes.PermissionDenied, "%q may not speak for cell %s: the entry of the access section must bear the cell's name", who.Name, h.GetCell())
	default:
		return nil
	}
}

func checkOriginMessage(m *cellsv1.OriginMessage) error {
	check := func(id string, attempt int32) error {
		if id == "" || len(id) > spillway.MaxJobIDBytes || attempt < 1 {
			return status.Errorf(codes.InvalidArgument, "%.80q, attempt %d: not an attempt at a job", id, attempt)
		}
		return nil
	}
	switch m := m.GetMessage().(type) {
	case *cellsv1.OriginMessage_Spill:
		return check(m.Spill.GetJob().GetId(), m.Spill.GetAttempt())
	case *cellsv1.OriginMessage_Cancel:
		return check(m.Cancel.GetJobId(), m.Cancel.GetAttempt())
	case *cellsv1.OriginMessage_Ack:
		return check(m.Ack.GetJobId(), m.Ack.GetAttempt())
	case *cellsv1.OriginMessage_Renew:
		all := append(append([]*cellsv1.Attempt(nil), m.Renew.GetCovered()...), m.Renew.GetAlso()...)
		if len(all) > cells.MaxHeld {
			return status.Errorf(codes.InvalidArgument, "renew: %d attempts, at most %d are allowed", len(all), cells.MaxHeld)
		}
		for _, a := range all {
			if err := check(a.GetJobId(), a.GetAttempt()); err != nil {
				return err
			}
		}
		return nil
	default:
		return status.Error(codes.InvalidArgument, "a message out of order, or of a kind that this cell doesn't know")
	}
}

// greet takes a new link in, once the store knows that it is the newest.
func (r *Receiver) greet(l *inLink, h *cellsv1.Hello, answer chan<- error) {
	if !r.hasRoomFor(h.GetCell()) {
		answer <- status.Errorf(codes.ResourceExhausted, "this cell answers for %d others, and for no more", maxOrigins)
		return
	}
	r.beside(func(ctx context.Context) func() {
		jobs, err := r.claimOrigin(ctx, h.GetCell(), h.GetEpoch())
		if err != nil {
			answer <- err
			return nil
		}
		return func() {
			r.linked(l, h, jobs)
			answer <- nil
		}
	})
}

// hasRoomFor reports whether there may be an origin of that name.
func (r *Receiver) hasRoomFor(name string) bool {
	if r.origins[name] == nil && len(r.origins) >= maxOrigins {
		maps.DeleteFunc(r.origins, func(_ string, o *inOrigin) bool { return o.link == nil && len(o.jobs) == 0 })
	}
	return r.origins[name] != nil || len(r.origins) < maxOrigins
}

func (r *Receiver) linked(l *inLink, h *cellsv1.Hello, jobs []cells.Ref) {
	o := r.origins[h.GetCell()]
	if o == nil {
		o = r.newOrigin(h.GetCell())
	}
	o.hangUp(errNewerLink)
	lease := h.GetLease().AsDuration()
	o.region, o.epoch, o.since, o.offers, o.beatAt = h.GetRegion(), h.GetEpoch(), time.Now(), nil, time.Time{}
	o.book.Link(lease)
	o.beatEvery = cells.Timing{Lease: lease}.BeatEvery()
	o.link = l
	r.inherit(o, jobs)
	held := o.book.Held()
	welcome := &cellsv1.Welcome{Cell: r.opt.Cell, Region: r.opt.Region, EndWithin: durationpb.New(r.opt.EndWithin)}
	for ref := range held {
		welcome.Held = append(welcome.Held, attempt(ref))
	}
	l.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Welcome{Welcome: welcome}})
	for ref, word := range held {
		switch j := o.jobs[ref]; {
		case j != nil && j.last != nil:
			l.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Report{Report: j.last}})
		case word > 0:
			l.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Report{Report: report(ref, word, "")}})
		}
	}
	tell(r.opt.Events.OriginLinked, OriginLinked{Origin: o.name, Region: o.region, Linked: true, Origins: r.linkedOrigins()})
	r.offersAt = time.Time{}
	o.beat(time.Now())
}

func (r *Receiver) newOrigin(name string) *inOrigin {
	o := &inOrigin{name: name, since: time.Now(), jobs: map[cells.Ref]*inJob{}}
	o.book = cells.NewInbound(cells.Timing{EndWithin: r.opt.EndWithin})
	r.origins[name] = o
	return o
}

func (r *Receiver) linkedOrigins() (n int) {
	for _, o := range r.origins {
		if o.link != nil {
			n++
		}
	}
	return n
}

// ended notes that a link is gone. Its jobs go on until their leases are over.
func (r *Receiver) ended(l *inLink) {
	for _, o := range r.origins {
		if o.link == l {
			o.link, o.since = nil, time.Now()
			tell(r.opt.Events.OriginLinked, OriginLinked{Origin: o.name, Region: o.region, Err: l.err, Origins: r.linkedOrigins()})
		}
	}
}

// hear takes in one message of an origin.
func (r *Receiver) hear(l *inLink, name string, m *cellsv1.OriginMessage) {
	o := r.origins[name]
	if o == nil || o.link != l {
		return // it has a newer link
	}
	switch m := m.GetMessage().(type) {
	case *cellsv1.OriginMessage_Spill:
		r.spilled(o, m.Spill)
	case *cellsv1.OriginMessage_Renew:
		unknown, end := o.book.Renew(m.Renew.GetBeat(), refsOf(m.Renew.GetCovered()), refsOf(m.Renew.GetAlso()))
		for _, ref := range end {
			tell(r.opt.Events.JobEnded, JobEnded{Origin: o.name, Ref: ref, Why: "its cell does not hold it any more"})
		}
		if len(unknown) > 0 {
			l.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Unknown{Unknown: &cellsv1.Unknown{Attempts: attempts(unknown)}}})
		}
	case *cellsv1.OriginMessage_Cancel:
		ref := refOf(m.Cancel.GetJobId(), m.Cancel.GetAttempt())
		if m.Cancel.GetTakeBack() {
			if j := o.jobs[ref]; j != nil && j.last == nil {
				j.back, r.lookedAt = true, time.Time{}
			}
			return
		}
		for _, ref := range o.book.Cancel(ref) {
			tell(r.opt.Events.JobEnded, JobEnded{Origin: o.name, Ref: ref, Why: "its cell wants it no more"})
		}
	case *cellsv1.OriginMessage_Ack:
		r.confirmed(o, refOf(m.Ack.GetJobId(), m.Ack.GetAttempt()))
	}
}
