package session

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// Limits of one stream, each tested at its edge.
const (
	// unaskedPerSecond and unaskedBurst bound the messages that a machine sends
	// without having been given a job for them [messages]: heartbeats, mostly. What a
	// job brings along is paid for by its assignment (see earn), so that a machine of
	// a thousand short jobs is not taken for a flood. After a reconnect it repeats
	// results: its capacity is added to the burst.
	unaskedPerSecond = 20
	unaskedBurst     = 100
	// messagesPerJob is what one assignment pays for: accepted, started, result, and
	// one to spare.
	messagesPerJob = 4
	// outboxSpare is what an outbox holds beside the jobs of its machine [messages].
	outboxSpare = 64
	// maxCarriedAcks bounds the acknowledgements that wait for an assignment to carry
	// them [messages]: a few KiB, far below what a message may hold.
	maxCarriedAcks = 64
)

// Runners is the RunnerService: one stream per machine.
type Runners struct {
	runnerv1.UnimplementedRunnerServiceServer

	dispatcher *Dispatcher
	auth       Authenticator
}

// NewRunners serves the streams of the runners that auth knows to d.
func NewRunners(d *Dispatcher, auth Authenticator) *Runners {
	return &Runners{dispatcher: d, auth: auth}
}

// stream is one machine's connection. What follows the blank line belongs to the
// dispatcher's goroutine.
type stream struct {
	stopper *stopper
	out     outbox
	limiter *rate.Limiter
	earned  atomic.Int64 // messages that assignments have paid for

	pool     *spillway.Pool // of its token, which others have too
	register *runnerv1.Register
	machine  spillway.MachineID
	capacity int           // jobs, within the pool's bound
	tunnels  bool          // it opens tunnels to its jobs
	carries  bool          // it reads acknowledgements in assignments
	ready    chan struct{} // closed once the machine is registered

	registered bool
	waitedAt   time.Time             // when it was last told to wait
	asideSince time.Time             // of the oldest acknowledgement that waits; zero = none
	acks       []*runnerv1.StatusAck // of these, those that an assignment may carry
	drainID    uint64                // of the newest order that it was sent
	healthAt   time.Time             // when it last said something new of its health
}

// stop ends the stream with a status. It may be called from any goroutine, and
// more than once.
func (s *stream) stop(err error) {
	s.out.close()
	s.stopper.stop(err)
}

// send queues m. A machine that doesn't read what it is sent is cut off: its
// jobs go on, and it may come back.
func (s *stream) send(m *runnerv1.RouterMessage) {
	if assign := m.GetAssign(); assign != nil {
		assign.Acks, s.acks = s.acks, nil
	} else {
		s.uncarryAcks()
	}
	s.asideSince = time.Time{}
	if !s.out.put(m) {
		s.stop(errDoesNotRead)
	}
}

// ack queues an acknowledgement, which may wait for another message, or for flush. It
// reports whether none waited before.
func (s *stream) ack(now time.Time, ack *runnerv1.StatusAck) (first bool) {
	if s.carries && len(s.acks) < maxCarriedAcks {
		s.acks = append(s.acks, ack)
	} else {
		s.putAside(ack)
	}
	if first = s.asideSince.IsZero(); first {
		s.asideSince = now
	}
	return first
}

// flush sends what waits.
func (s *stream) flush() {
	s.uncarryAcks()
	s.asideSince = time.Time{}
	s.out.flush()
}

// uncarryAcks makes messages of the acknowledgements that no assignment came for.
func (s *stream) uncarryAcks() {
	for _, ack := range s.acks {
		s.putAside(ack)
	}
	s.acks = nil
}

func (s *stream) putAside(ack *runnerv1.StatusAck) {
	if !s.out.putAside(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_StatusAck{StatusAck: ack}}) {
		s.stop(errDoesNotRead)
	}
}

// earn lets the machine send what a job brings along.
func (s *stream) earn() { s.earned.Add(messagesPerJob) }

// allow reports whether the machine may send another message now.
func (s *stream) allow() bool {
	if s.earned.Load() > 0 {
		s.earned.Add(-1) // one reader: it can't fall below zero
		return true
	}
	return s.limiter.Allow()
}

// Connect carries one machine's conversation.
func (r *Runners) Connect(rpc runnerv1.RunnerService_ConnectServer) error {
	stopper, err := newStopper(rpc.Context())
	if err != nil {
		return err
	}
	return r.converse(rpc, stopper, func() (*spillway.Pool, bool) {
		token, ok := bearer(rpc.Context())
		if !ok {
			return nil, false
		}
		return r.auth.Pool(rpc.Context(), token)
	})
}

// converse carries the conversation of a machine of the pool that it proves to be of.
func (r *Runners) converse(rpc conversation, stopper *stopper, pool func() (*spillway.Pool, bool)) (err error) {
	s := &stream{ready: make(chan struct{}), stopper: stopper}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicStatus(r.dispatcher.opt.Events, panicked)
		}
		s.out.close()
		r.narrate(s, err)
	}()
	var known bool
	if s.pool, known = pool(); !known {
		return status.Error(codes.Unauthenticated, "no valid bearer token")
	}
	if err := r.open(rpc, s); err != nil {
		return s.stopper.ended(err)
	}
	if !r.dispatcher.put(rpc.Context(), event{kind: streamOpened, stream: s}) {
		return s.stopper.ended(errGoingAway)
	}
	defer func() { r.dispatcher.put(context.Background(), event{kind: streamClosed, stream: s, err: err}) }()
	select {
	case <-s.ready:
	case <-rpc.Context().Done():
		return s.stopper.ended(rpc.Context().Err())
	case <-r.dispatcher.done:
		return errGoingAway
	}
	return s.stopper.ended(r.read(rpc, s))
}

// conversation is what a machine says and is told: a gRPC stream, or Attached.
type conversation interface {
	Context() context.Context
	Recv() (*runnerv1.RunnerMessage, error)
	Send(m *runnerv1.RouterMessage) error
}

// open learns who is there from the first message.
func (r *Runners) open(rpc conversation, s *stream) error {
	late := time.AfterFunc(r.dispatcher.opt.RegisterTimeout, func() {
		s.stopper.stop(status.Errorf(codes.InvalidArgument, "no register within %s", r.dispatcher.opt.RegisterTimeout))
	})
	first, err := rpc.Recv()
	late.Stop()
	if err != nil {
		return err
	}
	if s.register = first.GetRegister(); s.register == nil {
		return badMessage("the first message must be a register")
	}
	if err := checkRegister(s.register); err != nil {
		return err
	}
	s.machine = spillway.MachineID(s.register.GetMachineId())
	s.capacity = min(int(s.register.GetCapacity()), s.pool.CapacityPerInstance)
	s.tunnels, s.carries = s.register.GetTunnels(), s.register.GetAcksInAssign()
	s.limiter = rate.NewLimiter(unaskedPerSecond, unaskedBurst+s.capacity)
	s.out.limit = outboxSpare + messagesPerJob*s.capacity
	s.out.send, s.out.fail = rpc.Send, s.stopper.stop
	return nil
}

// read takes what the machine says until the stream ends.
func (r *Runners) read(rpc conversation, s *stream) error {
	for {
		m, err := rpc.Recv()
		if err != nil {
			return err
		}
		if !s.allow() {
			return status.Errorf(codes.ResourceExhausted, "more than %d messages a second that no job explains", unaskedPerSecond)
		}
		if err := checkMessage(m); err != nil {
			return err
		}
		if !r.dispatcher.put(rpc.Context(), event{kind: streamSaid, stream: s, message: m}) {
			return errGoingAway
		}
	}
}

// narrate tells of streams that were turned away for what they did.
func (r *Runners) narrate(s *stream, err error) {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.InvalidArgument, codes.ResourceExhausted, codes.PermissionDenied, codes.AlreadyExists, codes.Internal:
		tell(r.dispatcher.opt.Events.StreamRefused, StreamRefused{Machine: s.machine, Err: err})
	default:
	}
}

var errDoesNotRead = status.Error(codes.ResourceExhausted, "this runner does not read what it is sent")

var errAbandoned = status.Error(codes.Aborted, "another replica answers for this machine")

var errGoingAway = status.Error(codes.Unavailable, "this router is going away")
