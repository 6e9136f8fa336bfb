package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/admission"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

// Service is the AdmissionService: one stream for each instance of a controller.
type Service struct {
	admissionv1.UnimplementedAdmissionServiceServer

	reviewer *Reviewer
}

// NewService serves the streams of controllers to r; nil: none is configured.
func NewService(r *Reviewer) *Service { return &Service{reviewer: r} }

var (
	errDoesNotRead = status.Error(codes.ResourceExhausted, "this controller does not read what it is sent")
	errGoingAway   = status.Error(codes.Unavailable, "this control plane is going away")
)

// stream is one instance's connection.
type stream struct {
	controller admission.Controller
	instance   string
	out        chan *admissionv1.RouterMessage
	ended      chan error // has the status once it was ended from here
	once       sync.Once
}

// put queues a message; false if the instance does not read.
func (s *stream) put(m *admissionv1.RouterMessage) bool {
	select {
	case s.out <- m:
		return true
	default:
		return false
	}
}

func (s *stream) end(err error) { s.once.Do(func() { s.ended <- err }) }

// Connect carries one instance's conversation. The handler waits; what is read and what
// is written have a goroutine each, since neither may hold the other up, and both end
// when the handler returns.
func (v *Service) Connect(rpc admissionv1.AdmissionService_ConnectServer) error {
	if v.reviewer == nil {
		return status.Error(codes.NotFound, "no admission controller is configured: see admission.controllers")
	}
	ctx, cancel := context.WithCancel(rpc.Context())
	defer cancel()
	said, broken := make(chan *admissionv1.ControllerMessage), make(chan error, 2)
	go read(ctx, rpc, said, broken)
	hello, err := firstWord(ctx, said, broken)
	if err != nil {
		tell(v.reviewer.opt.Events.ControllerDisconnected, ControllerDisconnected{
			Controller: head(hello.GetController(), admission.MaxNameBytes), Instance: head(hello.GetInstance(), maxInstanceBytes), Err: err,
		})
		return err
	}
	s := &stream{instance: hello.GetInstance(), out: make(chan *admissionv1.RouterMessage, outboxMessages), ended: make(chan error, 1)}
	id, err := v.reviewer.welcome(ctx, s, hello)
	connected := err == nil
	if connected {
		go write(ctx, rpc, s.out, broken)
		err = v.converse(ctx, s, id, said, broken)
		v.reviewer.do(context.WithoutCancel(ctx), func(now time.Time) { v.reviewer.end(now, id, nil) })
	}
	tell(v.reviewer.opt.Events.ControllerDisconnected, ControllerDisconnected{Controller: hello.GetController(), Instance: s.instance, Connected: connected, Err: err})
	return err
}

func read(ctx context.Context, rpc admissionv1.AdmissionService_ConnectServer, said chan<- *admissionv1.ControllerMessage, broken chan<- error) {
	for {
		m, err := rpc.Recv()
		if err != nil {
			broken <- err
			return
		}
		select {
		case said <- m:
		case <-ctx.Done():
			return
		}
	}
}

func write(ctx context.Context, rpc admissionv1.AdmissionService_ConnectServer, out <-chan *admissionv1.RouterMessage, broken chan<- error) {
	for {
		select {
		case m := <-out:
			if err := rpc.Send(m); err != nil {
				broken <- err
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// firstWord waits for the Hello.
func firstWord(ctx context.Context, said <-chan *admissionv1.ControllerMessage, broken <-chan error) (*admissionv1.Hello, error) {
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	select {
	case m := <-said:
		return m.GetHello(), checkHello(m.GetHello())
	case err := <-broken:
		return nil, endedWith(err)
	case <-late.C:
		return nil, status.Errorf(codes.InvalidArgument, "no hello within %s", helloTimeout)
	case <-ctx.Done():
		return nil, endedWith(ctx.Err())
	}
}

func checkHello(h *admissionv1.Hello) error {
	bad := func(format string, args ...any) error {
		return status.Error(codes.InvalidArgument, "hello: "+fmt.Sprintf(format, args...))
	}
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "the first message must be a hello")
	case len(h.GetController()) > admission.MaxNameBytes:
		return bad("a controller's name has at most %d bytes", admission.MaxNameBytes)
	case h.GetInstance() == "" || len(h.GetInstance()) > maxInstanceBytes || !clean(h.GetInstance()):
		return bad("name the instance in 1 to %d printable bytes", maxInstanceBytes)
	case len(h.GetVersion()) > maxVersionBytes || !clean(h.GetVersion()):
		return bad("a version has at most %d printable bytes", maxVersionBytes)
	case h.GetMaxBatch() < 0 || h.GetMaxBatch() > admission.MaxBatch:
		return bad("max_batch %d: use 0 to %d", h.GetMaxBatch(), admission.MaxBatch)
	}
	return nil
}

// head is the beginning of what somebody says who may say anything.
func head(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// clean reports whether s is one printable line.
func clean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// welcome makes the instance known to the engine.
func (r *Reviewer) welcome(ctx context.Context, s *stream, hello *admissionv1.Hello) (id admission.InstanceID, err error) {
	answer := make(chan error, 1)
	known := r.do(ctx, func(now time.Time) { answer <- r.connect(now, s, hello, &id) })
	if !known {
		return 0, errGoingAway
	}
	select {
	case err := <-answer:
		return id, err
	case <-r.done:
		return 0, errGoingAway
	}
}

func (r *Reviewer) connect(now time.Time, s *stream, hello *admissionv1.Hello, id *admission.InstanceID) error {
	for other, o := range r.streams {
		if o.instance == s.instance && o.controller.Name == hello.GetController() {
			r.end(now, other, status.Error(codes.AlreadyExists, "this instance has connected with a newer stream"))
		}
	}
	r.last++
	c, err := r.engine.Connect(now, r.last, hello.GetController(), s.instance, int(hello.GetMaxBatch()))
	switch {
	case errors.Is(err, admission.ErrUnknownController):
		return status.Errorf(codes.NotFound, "%v: see admission.controllers of the configuration", err)
	case err != nil:
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	*id, s.controller = r.last, c
	r.streams[r.last] = s
	r.changed = true
	s.put(&admissionv1.RouterMessage{Message: &admissionv1.RouterMessage_Welcome{Welcome: &admissionv1.Welcome{
		Controller: c.Name, Scope: string(c.Scope), MaxBatch: int32(c.Batch), MaxReviews: admission.MaxReviews,
		Deadline: durationpb.New(c.Deadline), DryRun: c.DryRun,
	}}})
	tell(r.opt.Events.ControllerConnected, ControllerConnected{Controller: c.Name, Instance: s.instance, Version: hello.GetVersion()})
	return nil
}

// converse takes what the instance says until its stream ends.
func (v *Service) converse(ctx context.Context, s *stream, id admission.InstanceID, said <-chan *admissionv1.ControllerMessage, broken <-chan error) error {
	for {
		select {
		case m := <-said:
			verdicts, err := readVerdicts(m)
			if err != nil {
				return err
			}
			if !v.reviewer.do(ctx, func(now time.Time) { v.reviewer.answered(now, id, m.GetVerdicts().GetBatchId(), verdicts) }) {
				return errGoingAway
			}
		case err := <-s.ended:
			return err
		case err := <-broken:
			select {
			case cause := <-s.ended: // what we did to it comes before what that did
				return cause
			default:
				return endedWith(err)
			}
		case <-v.reviewer.done:
			return errGoingAway
		}
	}
}

func readVerdicts(m *admissionv1.ControllerMessage) ([]admission.Verdict, error) {
	list := m.GetVerdicts().GetVerdicts()
	switch {
	case m.GetVerdicts() == nil:
		return nil, status.Error(codes.InvalidArgument, "after its hello, a controller says verdicts only")
	case len(list) == 0:
		return nil, status.Error(codes.InvalidArgument, "verdicts without a verdict")
	case len(list) > admission.MaxBatch:
		return nil, status.Errorf(codes.InvalidArgument, "%d verdicts at once: no review has more than %d jobs", len(list), admission.MaxBatch)
	}
	verdicts := make([]admission.Verdict, len(list))
	for i, p := range list {
		verdicts[i] = admission.Verdict{Subject: p.GetJobId(), Allow: p.GetAllow(), Reason: p.GetReason()}
	}
	return verdicts, nil
}

// answered takes verdicts in. A lie ends the stream, and changes nothing else.
func (r *Reviewer) answered(now time.Time, id admission.InstanceID, batch uint64, verdicts []admission.Verdict) {
	decided, infos, err := r.engine.Answer(now, id, batch, verdicts)
	if err != nil {
		r.end(now, id, status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	for i := range infos {
		tell(r.opt.Events.VerdictGiven, infos[i])
	}
	r.settle(decided)
}

// endedWith is the status for what ended a Recv or Send.
func endedWith(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled:
		return status.Error(codes.Canceled, "the caller left")
	}
	if _, isStatus := status.FromError(err); isStatus {
		return err
	}
	return status.Error(codes.Unavailable, "the stream broke")
}
