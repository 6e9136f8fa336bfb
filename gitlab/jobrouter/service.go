package jobrouter

import (
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/gitlab/route"
	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
	runnerrpcpb "github.com/spillway-ci/spillway/proto/gitlab/runnerrpc"
)

// Metadata of the Job Router protocol.
const (
	metaAuthorization = "authorization"
	metaRequestID     = "x-request-id"
	metaLastUpdate    = "x-gitlab-last-update"
	bearer            = "Bearer "
)

// maxMetaBytes bounds a value of metadata that is passed on [bytes]. A request's id has 32
// from a runner, and at most 255 from GitLab.
const maxMetaBytes = 255

// What a runner may be told besides OK.
var (
	errDirect = status.Error(codes.Unimplemented, "ask GitLab for jobs: this job router does not answer for this token now")
	errGoing  = status.Error(codes.Unavailable, "this replica of the job router is going away")
)

// Service is the Job Router protocol, and the way in which replicas pass questions on
// to each other, on a gRPC server.
type Service struct{ desk *Desk }

// NewService returns the service of a desk.
func NewService(d *Desk) *Service { return &Service{d} }

// Register adds it to a server, under the name that GitLab Runner has used since 18.9
// and the one of 18.8; the messages are the same.
//
// GetJob is registered as a stream that carries one message each way, which is the same
// on the wire. Only so does the handler learn whether its answer was written, and with
// it whether a job has to go to somebody else.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	for _, name := range []string{jobrouterpb.JobRouter_ServiceDesc.ServiceName, runnerrpcpb.JobRouter_ServiceDesc.ServiceName} {
		r.RegisterService(&grpc.ServiceDesc{
			ServiceName: name, HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{StreamName: "GetJob", Handler: s.getJob}},
		}, s)
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: relayService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: relayMethod, Handler: s.serveRelay, ClientStreams: true, ServerStreams: true}},
	}, s)
}

// getJob answers a runner. Its stack is a good part of what a waiting call costs, and one
// that has grown stays: what needs a deep one comes before, on another.
func (s *Service) getJob(_ any, stream grpc.ServerStream) (err error) {
	c := &call{stream: stream}
	defer s.recovered(c, &err)
	begun := make(chan error, 1)
	go s.begin(c, begun)
	if told := <-begun; c.waiter == nil {
		return told
	}
	defer c.leave()
	a := s.stillAdmitted(c.waiter, s.desk.wait(stream.Context(), c.waiter, 0))
	return c.tell(a, c.waiter.requestID)
}

// stillAdmitted takes a job back from a machine that must not be given one any more: its
// name may have been found to be another's while it waited.
func (s *Service) stillAdmitted(w *waiter, a answer) answer {
	if a.verdict != aJob {
		return a
	}
	err := s.desk.opt.Contacts.Admit(*w.who, s.desk.opt.Now())
	if err == nil {
		return a
	}
	s.refuse(w.who, err.Error(), "no job")
	a.settle(unwritten)
	return answer{}
}

// recovered ends a call that has panicked in the way that a runner takes for health.
func (s *Service) recovered(c *call, told *error) {
	if v := recover(); v != nil {
		s.desk.events.panicked(v, debug.Stack())
		*told = c.apologize()
	}
}

// begin is admit on a stack of its own.
func (s *Service) begin(c *call, begun chan<- error) {
	var told error
	defer func() { begun <- told }()
	defer s.recovered(c, &told)
	told = s.admit(c)
}

// admit reads a question and lets it wait. If the call then has no waiter, the runner has
// been told what there is to tell, or is told the error.
func (s *Service) admit(c *call) error {
	w, err := s.open(c)
	if w == nil {
		return err
	}
	leave, ok := s.desk.enter()
	if !ok {
		s.refuse(w.who, "too many questions are open", "no job")
		return c.send(answer{requestID: w.requestID})
	}
	defer func() {
		if c.waiter == nil {
			leave()
		}
	}()
	if err := s.desk.opt.Contacts.Admit(*w.who, s.desk.opt.Now()); err != nil {
		s.refuse(w.who, err.Error(), "no job")
		return c.send(answer{requestID: w.requestID})
	}
	done := s.desk.opt.Contacts.Waiting(*w.who)
	c.leave = func() { done(); leave() }
	c.waiter = w
	return nil
}

// open reads a question. Without a waiter, the error is what the caller is told: one
// that can't be answered for goes to GitLab, which knows what to say to it.
func (s *Service) open(c *call) (*waiter, error) {
	m := new(jobrouterpb.GetJobRequest)
	if err := c.stream.RecvMsg(m); err != nil {
		return nil, err
	}
	md, _ := metadata.FromIncomingContext(c.stream.Context())
	who, err := s.desk.opt.Tokens.Caller(bearerToken(first(md, metaAuthorization)), m.GetJobRequest())
	if err != nil {
		s.refuse(nil, err.Error(), "ask GitLab")
		return nil, errDirect
	}
	return newWaiter(&who, m.GetJobRequest(), passable(first(md, metaRequestID)), s.desk.features.of(who.Features)), nil
}

func (s *Service) refuse(who *route.Caller, why, told string) {
	s.desk.events.refused(RefusedInfo{Who: who, Why: why, Told: told})
}

// call is one call of a runner or of another replica, and whether it was answered.
type call struct {
	stream grpc.ServerStream
	sent   bool
	waiter *waiter // nil: it doesn't wait
	leave  func()  // ends what waiting began
}

// tell gives a runner its answer, and settles the job in it.
func (c *call) tell(a answer, requestID string) error {
	switch a.verdict {
	case direct, moved:
		return errDirect
	case going:
		return errGoing
	case nobody:
		return status.FromContextError(c.stream.Context().Err()).Err()
	case noJob, aJob:
	}
	if a.requestID == "" {
		a.requestID = requestID
	}
	err := c.send(a)
	if a.verdict == aJob {
		a.settle(c.delivery(err))
	}
	return err
}

// delivery is what became of what was sent. The call's status is written when the
// handler has returned: a call that has ended before that was not successful for the
// runner, whatever of the answer it has seen.
func (c *call) delivery(err error) delivery {
	switch {
	case err != nil:
		return unwritten
	case c.stream.Context().Err() != nil:
		return broken
	default:
		return arrived
	}
}

func (c *call) send(a answer) error {
	md := metadata.MD{}
	for key, value := range map[string]string{metaLastUpdate: a.lastUpdate, metaRequestID: a.requestID} {
		if value = passable(value); value != "" {
			md.Set(key, value)
		}
	}
	if err := c.stream.SetHeader(md); err != nil {
		return err
	}
	c.sent = true
	return c.stream.SendMsg(&jobrouterpb.GetJobResponse{JobResponse: a.body})
}

// apologize says that there is no job now, unless the call was answered.
func (c *call) apologize() error {
	if c.sent {
		return nil
	}
	return c.send(answer{})
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// passable is a value of metadata if it can be passed on, and empty otherwise: gRPC takes
// printable ASCII, and fails the whole answer for anything else.
func passable(value string) string {
	if len(value) > maxMetaBytes || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return value
}

// bearerToken is the token of an Authorization header, or empty.
func bearerToken(header string) string {
	token, ok := strings.CutPrefix(header, bearer)
	if !ok {
		return ""
	}
	return token
}
