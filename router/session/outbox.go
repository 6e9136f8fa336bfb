package session

import (
	"sync"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// outbox holds what is to be sent on one stream. put never waits; the goroutine
// that sends lives only while there is something to send, so that an idle stream
// costs one goroutine and no buffers.
type outbox struct {
	send  func(*runnerv1.RouterMessage) error // of the stream; may block on flow control
	fail  func(error)                         // is told the first error of send
	limit int                                 // messages, waiting and in hand

	mu struct {
		sync.Mutex
		waiting []*runnerv1.RouterMessage
		inHand  int  // messages that the writer has taken and not yet sent
		writing bool // the writer lives
		closed  bool
	}
}

// put queues m and has it sent. false: the outbox is full, and its other end does
// not read. A closed outbox swallows everything: what it swallows is sent again
// after a reconnect, or its job goes back to the queue.
func (o *outbox) put(m *runnerv1.RouterMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	ok := o.enqueue(m)
	o.start()
	return ok
}

// putAside queues m to be sent with the next message, or by flush: two messages in
// one system call cost little more than one.
func (o *outbox) putAside(m *runnerv1.RouterMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.enqueue(m)
}

// flush has sent what was put aside.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start()
}

// enqueue is called with mu held.
func (o *outbox) enqueue(m *runnerv1.RouterMessage) bool {
	if o.mu.closed {
		return true
	}
	if len(o.mu.waiting)+o.mu.inHand >= o.limit {
		return false
	}
	o.mu.waiting = append(o.mu.waiting, m)
	return true
}

// start is called with mu held.
func (o *outbox) start() {
	if len(o.mu.waiting) > 0 && !o.mu.writing {
		o.mu.writing = true
		go o.write()
	}
}

// close drops what waits; the writer ends with the message that it has in hand.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.closed = true
	o.mu.waiting = nil
}

// write sends until nothing waits.
func (o *outbox) write() {
	for batch := o.take(); len(batch) > 0; batch = o.take() {
		for _, m := range batch {
			if err := o.send(m); err != nil {
				o.close()
				o.fail(err)
				break
			}
			o.sent()
		}
	}
}

// take hands all that waits to the writer, and ends the writer if that is nothing.
func (o *outbox) take() []*runnerv1.RouterMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch := o.mu.waiting
	o.mu.waiting, o.mu.inHand = nil, len(batch)
	o.mu.writing = len(batch) > 0
	return batch
}

func (o *outbox) sent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.inHand--
}
