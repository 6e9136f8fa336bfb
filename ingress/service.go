package ingress

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// openWithin is how long a target may take to be there. The machine's own times are
// shorter.
const openWithin = 20 * time.Second

// ErrElsewhere says that no machine that is connected here has the job.
var ErrElsewhere = errors.New("no machine of this replica has the job")

// Service is the DebugService of one replica, and what its HTTP proxy is made from.
type Service struct {
	debugv1.UnimplementedDebugServiceServer

	opt     Options
	seats   *seats
	tickets *tickets
	peers   *peers

	ctx      context.Context // ends with Close
	end      context.CancelCauseFunc
	mu       sync.Mutex // of closed and of sessions.Add
	closed   bool
	sessions sync.WaitGroup
}

// New makes a Service. Run tells other replicas of it.
func New(opt Options) (*Service, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	opt.Limits = opt.Limits.withDefaults()
	s := &Service{opt: opt, seats: newSeats(opt.Limits), tickets: newTickets(), peers: newPeers(opt.Dial)}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

// Close ends all sessions, and returns when their ends are in the audit.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errShutDown)
	s.sessions.Wait()
	s.peers.close()
}

// Tunnel is a session of a person who has called this replica.
func (s *Service) Tunnel(rpc debugv1.DebugService_TunnelServer) error {
	if err := access.Require(rpc.Context(), access.Debug); err != nil {
		return err
	}
	open, err := firstFrame(rpc)
	if err != nil {
		return err
	}
	kind, object := kindOf(open.GetTarget())
	return s.serve(rpc.Context(), request{kind: kind, object: object, job: spillway.JobID(open.GetJobId()), target: open.GetTarget()}, rpc)
}

// Relay is a session of a person who has called another replica.
func (s *Service) Relay(rpc debugv1.DebugService_RelayServer) error {
	rpc.SetTrailer(answeredBy(s.opt.Replica))
	open, err := firstFrame(rpc)
	if err != nil {
		return err
	}
	job := spillway.JobID(open.GetJobId())
	who, err := s.tickets.redeem(rpc.Context(), job)
	if err != nil {
		return err
	}
	ctx := access.With(rpc.Context(), who)
	if err := access.Require(ctx, access.Debug); err != nil {
		return err
	}
	kind, object := kindOf(open.GetTarget())
	return s.serve(ctx, request{kind: kind, object: object, job: job, target: open.GetTarget(), forOthers: true}, rpc)
}

// firstWithin is how long a caller may take to say what it wants.
const firstWithin = 10 * time.Second

// frames is a stream of frames to a caller.
type frames interface {
	caller
	Context() context.Context
}

// firstFrame is what a caller wants.
func firstFrame(rpc frames) (*debugv1.Open, error) {
	type answer struct {
		f   *debugv1.Frame
		err error
	}
	first := make(chan answer, 1)
	go func() {
		f, err := rpc.Recv()
		first <- answer{f, err}
	}()
	late := time.NewTimer(firstWithin)
	defer late.Stop()
	select {
	case a := <-first:
		if a.err != nil {
			return nil, errCallerLeft
		}
		if open := a.f.GetOpen(); open != nil {
			return open, checkTarget(open)
		}
		return nil, status.Error(codes.InvalidArgument, "the first frame must be an open")
	case <-late.C:
		return nil, status.Errorf(codes.InvalidArgument, "no open within %s", firstWithin)
	}
}

// kindHTTP is a session for one request of HTTP.
const kindHTTP = "http"

// request is a session that somebody wants.
type request struct {
	kind      string // exec | port | socket | http
	object    string // kind with what of it may be told: "port 8080"
	job       spillway.JobID
	target    *debugv1.Target
	forOthers bool // the person has called another replica, which audits it
}

// serve is a whole session with a caller.
func (s *Service) serve(ctx context.Context, r request, c caller) error {
	l, err := s.begin(ctx, r)
	if err != nil {
		return err
	}
	w := l.tunnel.Where()
	opened := &debugv1.Opened{MachineId: w.Machine, Pool: w.Pool, Attempt: int32(w.Attempt), Replica: w.Replica}
	return l.run(ctx, c, &debugv1.Frame{Frame: &debugv1.Frame_Opened{Opened: opened}})
}

// live is a session whose target is there.
type live struct {
	s      *Service
	r      request
	tunnel Tunnel
	leave  func()
}

// begin opens a session, and puts in the audit that it did, or why not. What it returns
// must be run.
func (s *Service) begin(ctx context.Context, r request) (*live, error) {
	if !s.enter() {
		return nil, errShutDown
	}
	l, err := s.open(ctx, r)
	if err != nil {
		s.sessions.Done()
		if !r.forOthers {
			s.opt.Audit.Record(ctx, access.Entry{Action: "debug.open", Object: string(r.job), Detail: r.object + ": " + status.Convert(err).Message()})
			tell(s.opt.Events.SessionRefused, r.kind, status.Code(err))
		}
		return nil, err
	}
	if !r.forOthers {
		s.opt.Audit.Record(ctx, access.Entry{Action: "debug.open", Object: string(r.job), Detail: l.text(), OK: true})
	}
	if s.opt.Events.SessionOpened != nil {
		s.opt.Events.SessionOpened(r.kind)
	}
	return l, nil
}

func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.sessions.Add(1)
	}
	return !s.closed
}

func (l *live) text() string {
	w := l.tunnel.Where()
	return fmt.Sprintf("%s on machine %s of pool %s, attempt %d", l.r.object, w.Machine, w.Pool, w.Attempt)
}

// run carries the session to its end. first is said to the caller before all else, unless
// it is nil.
func (l *live) run(ctx context.Context, c caller, first *debugv1.Frame) error {
	defer l.s.sessions.Done()
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.s.ctx, func() { cancel(errShutDown) })()
	carried := carry{limits: l.s.opt.Limits, caller: c, tunnel: l.tunnel}
	began := time.Now()
	var err error
	if first != nil && c.Send(first) != nil {
		err = errCallerLeft
	} else {
		err = carried.run(ctx)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = errCallerLeft
	}
	if l.r.kind == kindHTTP && errors.Is(err, errCallerLeft) {
		err = nil // how connections of HTTP end
	}
	l.tunnel.Close(err)
	l.leave()
	l.told(outer, &carried, time.Since(began), err)
	return err
}

func (l *live) told(ctx context.Context, c *carry, took time.Duration, err error) {
	why := "all was said"
	if err != nil {
		why = status.Convert(err).Message()
	}
	up, down := c.up.Load(), c.down.Load()
	if !l.r.forOthers {
		l.s.opt.Audit.Record(ctx, access.Entry{
			Action: "debug.close", Object: string(l.r.job), OK: err == nil,
			Detail: fmt.Sprintf("%s: %d bytes to it, %d bytes from it, %s: %s", l.text(), up, down, took.Round(time.Millisecond), why),
		})
	}
	if l.s.opt.Events.SessionClosed != nil {
		l.s.opt.Events.SessionClosed(SessionClosed{
			Kind: l.r.kind, Code: status.Code(err), Up: up, Down: down, Duration: took, ForOthers: l.r.forOthers,
		})
	}
}

func tell(f func(string, codes.Code), kind string, code codes.Code) {
	if f != nil {
		f(kind, code)
	}
}
