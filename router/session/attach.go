package session

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// attachedMessages is what one direction of an attached machine holds [messages]. A
// machine that does not read is cut off by its outbox, as on a connection.
const attachedMessages = 16

// Attached is a machine that speaks for something else from within this process: a
// worker that only polls, or another cell. To the dispatcher it is a machine like any
// other; the first message that it sends must be a Register. Send and Recv may be
// called from one goroutine each.
type Attached struct {
	ctx      context.Context
	cancel   context.CancelFunc
	said     chan *runnerv1.RunnerMessage
	told     chan *runnerv1.RouterMessage
	left     chan struct{} // closed by Leave
	leave    sync.Once
	finished chan struct{} // closed when the conversation is over
	err      error         // why; read after finished
}

// Attach begins the conversation of a machine of a pool. It ends with ctx, with Close, or
// when the dispatcher ends it.
func (r *Runners) Attach(ctx context.Context, pool spillway.Pool) *Attached {
	a := &Attached{
		said:     make(chan *runnerv1.RunnerMessage, attachedMessages),
		told:     make(chan *runnerv1.RouterMessage, attachedMessages),
		left:     make(chan struct{}),
		finished: make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancel(ctx)
	go func() {
		defer close(a.finished)
		defer a.cancel()
		a.err = r.converse(attachedEnd{a}, &stopper{stream: attachedEnd{a}}, func() (*spillway.Pool, bool) { return &pool, true })
	}()
	return a
}

// Send says m to the router.
func (a *Attached) Send(m *runnerv1.RunnerMessage) error {
	select {
	case <-a.finished: // already over, whatever there is room for
		return a.ended()
	default:
	}
	select {
	case a.said <- m:
		return nil
	case <-a.finished:
		return a.ended()
	case <-a.ctx.Done():
		<-a.finished
		return a.ended()
	}
}

// Recv waits for what the router says next. After the end it returns why: a status, or
// io.EOF.
func (a *Attached) Recv() (*runnerv1.RouterMessage, error) {
	select {
	case m := <-a.told:
		return m, nil
	case <-a.finished:
	}
	select {
	case m := <-a.told: // said before the end
		return m, nil
	default:
		return nil, a.ended()
	}
}

// Leave is Close for a machine that has said all: what it has sent is heard first.
func (a *Attached) Leave() {
	a.leave.Do(func() { close(a.left) })
	<-a.finished
}

// Close ends the conversation and waits until it is over. The machine's jobs stay its own
// for the grace of a machine without a stream.
func (a *Attached) Close() {
	a.cancel()
	<-a.finished
}

func (a *Attached) ended() error {
	if a.err == nil {
		return io.EOF
	}
	return a.err
}

// attachedEnd is the router's end.
type attachedEnd struct{ a *Attached }

func (e attachedEnd) Context() context.Context { return e.a.ctx }

func (e attachedEnd) Recv() (*runnerv1.RunnerMessage, error) {
	select {
	case m := <-e.a.said:
		return m, nil
	case <-e.a.ctx.Done():
		return nil, e.a.ctx.Err()
	case <-e.a.left:
	}
	select {
	case m := <-e.a.said:
		return m, nil
	default:
		return nil, io.EOF
	}
}

func (e attachedEnd) Send(m *runnerv1.RouterMessage) error {
	select {
	case e.a.told <- m:
		return nil
	case <-e.a.ctx.Done():
		return e.a.ctx.Err()
	}
}

// WriteStatus ends the conversation; the stopper keeps the status.
func (e attachedEnd) WriteStatus(*status.Status) error {
	e.a.cancel()
	return nil
}
