package tunnel

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/agent/shell"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const (
	// Max bounds the sessions of one machine at once [sessions].
	Max = 64
	// pieceBytes is what is read from a target at a time [bytes]; at most 64 KiB.
	pieceBytes = 32 << 10
	// lastWordWithin is how long the router may take to read why a session ends, and to
	// end the tunnel; it may be held up by whoever is at its other end.
	lastWordWithin = 5 * time.Second
	// stuckFor is how long a target may leave unread what it is told while it says nothing
	// either; up to twice as long goes unnoticed. That the other side has left comes behind
	// what is not read, so that nothing else would end such a session before its job. It is
	// the idle time that a router allows by default.
	stuckFor = 10 * time.Minute
)

// Router is how the router is reached.
type Router struct {
	Client runnerv1.RunnerServiceClient
	Token  string // of the runner

	stuckFor time.Duration // 0: the constant
}

// Why a session can't be, or ends.
var (
	ErrNotHere = status.Error(codes.FailedPrecondition, "the job does not run on its machine any more")
	ErrTooMany = status.Errorf(codes.ResourceExhausted, "the machine of the job has %d sessions, and takes no more", Max)

	errEnded  = status.Error(codes.Aborted, "the job has ended")
	errStuck  = status.Error(codes.Aborted, "the target reads nothing of what it is told, and says nothing")
	errTarget = status.Error(codes.InvalidArgument, "the machine knows no such target: its agent may be older than the control plane")
)

// Serve opens the tunnel that the router asks for, and serves it in the job's place until
// it is over. It returns why the session could not be or was cut short; nil: it came to
// its end, or the other side left.
func (r Router) Serve(ctx context.Context, m *runnerv1.OpenTunnel, place *shell.Place) error {
	return r.open(ctx, m, func(s *session) error {
		s.place = place
		return s.serve(m.GetTarget())
	})
}

// Refuse tells the router why there is no session.
func (r Router) Refuse(ctx context.Context, m *runnerv1.OpenTunnel, why error) error {
	return r.open(ctx, m, func(*session) error { return why })
}

func (r Router) open(ctx context.Context, m *runnerv1.OpenTunnel, use func(*session) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rpc, err := r.Client.Tunnel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.Token))
	if err == nil {
		err = rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_TunnelId{TunnelId: m.GetTunnelId()}})
	}
	if err != nil {
		return err
	}
	s := &session{ctx: ctx, rpc: rpc, left: make(chan struct{}), stuck: make(chan struct{}), stuckFor: cmp.Or(r.stuckFor, stuckFor)}
	err = use(s)
	late := time.AfterFunc(lastWordWithin, cancel)
	defer late.Stop()
	s.end(err)
	return err
}

// session is one tunnel that is open.
type session struct {
	ctx   context.Context
	rpc   runnerv1.RunnerService_TunnelClient
	place *shell.Place

	sending  sync.Mutex    // of rpc.Send
	left     chan struct{} // closed when the other side has left, or the tunnel broke
	receives bool          // somebody closes left

	stuck    chan struct{} // closed when the target was stuck for stuckFor
	stuckFor time.Duration
	taking   atomic.Bool   // what the other side says is being given to the target
	passed   atomic.Uint64 // frames, both ways
}

// serve connects to the target and carries what passes.
func (s *session) serve(target *debugv1.Target) error {
	switch target := target.GetTarget().(type) {
	case *debugv1.Target_Exec:
		return s.exec(target.Exec)
	case *debugv1.Target_Port:
		return s.port(target.Port.GetPort())
	case *debugv1.Target_Socket:
		return s.socket(target.Socket.GetName())
	default:
		return errTarget
	}
}

// send says f to the router. It waits while the other end does not read.
func (s *session) send(f *debugv1.Frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	err := s.rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: f}})
	if err == nil {
		s.passed.Add(1)
	}
	return err
}

// begin says that the target is there, and hands what the other side says to take until
// it has left. While take waits, so does the other side.
func (s *session) begin(take func(*debugv1.Frame)) error {
	s.receives = true
	go s.receive(take)
	go s.watch()
	return s.send(&debugv1.Frame{Frame: &debugv1.Frame_Opened{Opened: &debugv1.Opened{}}})
}

func (s *session) receive(take func(*debugv1.Frame)) {
	defer close(s.left)
	for {
		m, err := s.rpc.Recv()
		if err != nil {
			return
		}
		if f := m.GetFrame(); f != nil {
			s.taking.Store(true)
			take(f)
			s.taking.Store(false)
			s.passed.Add(1)
		}
	}
}

// watch notes when the target reads nothing and says nothing.
func (s *session) watch() {
	look := time.NewTicker(s.stuckFor)
	defer look.Stop()
	for before := s.passed.Load(); ; {
		select {
		case <-s.left:
			return
		case <-s.ctx.Done():
			return
		case <-look.C:
		}
		now := s.passed.Load()
		if now == before && s.taking.Load() {
			close(s.stuck)
			return
		}
		before = now
	}
}

// end says why the session ends, unless it ended in order, and waits until the router has
// ended the tunnel: what was sent before is with it then. It is cut short by s.ctx.
func (s *session) end(err error) {
	if !s.receives {
		go s.receive(func(*debugv1.Frame) {})
	}
	s.sending.Lock()
	if err != nil {
		st := status.Convert(err)
		_ = s.rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Failed{Failed: &runnerv1.TunnelFailed{
			Code: int32(st.Code()), Detail: st.Message(),
		}}}) // it fails if the router has left, who needs no reason then
	}
	_ = s.rpc.CloseSend() // as above
	s.sending.Unlock()
	<-s.left
}
