package controller

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/admission"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

const (
	// retryFirst and retryMost bound the wait before a controller connects again: it
	// doubles, and a random half of it is left out, so that not all come back at once.
	retryFirst = 100 * time.Millisecond
	retryMost  = 15 * time.Second
	// steadyAfter is how long a connection must have lasted for the wait to begin anew. A
	// shorter one was not good: two processes with one name push each other out.
	steadyAfter = retryMost
	// sayEvery is after how long verdicts are sent although others of the review are
	// missing: a slow controller is one that does its work.
	sayEvery = time.Second
)

// stay connects again and again, sooner after a connection that was good.
func (o *Options) stay(ctx context.Context, conn *grpc.ClientConn, addr string, judge Judge) {
	pause := retryFirst
	for ctx.Err() == nil {
		var since time.Time
		err := o.converse(ctx, conn, judge, func() {
			since = time.Now()
			o.tell(addr, nil)
		})
		if ctx.Err() != nil {
			return
		}
		o.tell(addr, err)
		if !since.IsZero() && time.Since(since) >= steadyAfter {
			pause = retryFirst
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause - rand.N(pause/2)):
		}
		pause = min(2*pause, retryMost)
	}
}

func (o *Options) tell(addr string, err error) {
	if o.Told != nil {
		o.Told(addr, err)
	}
}

// converse has one connection, until it ends.
func (o *Options) converse(ctx context.Context, conn *grpc.ClientConn, judge Judge, welcome func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := admissionv1.NewAdmissionServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	// When the stream has ended, Send says EOF and Recv says why.
	_ = stream.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{
		Controller: o.Controller, Instance: o.Instance, MaxBatch: int32(o.MaxBatch), Version: o.Version,
	}}})
	// Another goroutine reads, so that a judge is interrupted when the stream ends.
	reviews := make(chan deadlined, admission.MaxReviews)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		defer close(reviews)
		cancel(read(ctx, stream, reviews, welcome))
	})
	for r := range reviews {
		judgeAll(ctx, r, judge, stream.Send)
	}
	return context.Cause(ctx)
}

// deadlined is a review, and until when verdicts on it count: by our clock, since the
// other's may differ. Zero: nobody has said.
type deadlined struct {
	*admissionv1.Review

	until time.Time
}

// read takes in what the control plane says, until the stream ends.
func read(ctx context.Context, stream admissionv1.AdmissionService_ConnectClient, reviews chan<- deadlined, welcome func()) error {
	var deadline time.Duration
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if w := m.GetWelcome(); w != nil {
			deadline = w.GetDeadline().AsDuration()
			welcome()
		}
		if m.GetReview() != nil {
			r := deadlined{Review: m.GetReview()}
			if deadline > 0 {
				r.until = time.Now().Add(deadline)
			}
			select {
			case reviews <- r:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// judgeAll judges the jobs of a review and says so, some of them at a time. What the
// function says after the deadline is left out: it may be no more than that it was
// interrupted.
func judgeAll(ctx context.Context, r deadlined, judge Judge, send func(*admissionv1.ControllerMessage) error) {
	if !r.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.until)
		defer cancel()
	}
	said := time.Now()
	var verdicts []*admissionv1.Verdict
	say := func() {
		if len(verdicts) > 0 {
			_ = send(verdictsOf(r.GetBatchId(), verdicts)) // Recv says why it failed
			verdicts, said = nil, time.Now()
		}
	}
	defer say()
	for _, job := range r.GetJobs() {
		if ctx.Err() != nil {
			return
		}
		allow, reason := judge(ctx, job)
		if ctx.Err() != nil {
			return
		}
		verdicts = append(verdicts, &admissionv1.Verdict{JobId: job.GetJobId(), Allow: allow, Reason: reason})
		if time.Since(said) >= sayEvery {
			say()
		}
	}
}

func verdictsOf(batch uint64, verdicts []*admissionv1.Verdict) *admissionv1.ControllerMessage {
	return &admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Verdicts{Verdicts: &admissionv1.Verdicts{
		BatchId: batch, Verdicts: verdicts,
	}}}
}
