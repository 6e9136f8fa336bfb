package jobrouter

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
)

// A question for a token that another replica polls is passed on to it by a stream, in
// the messages of the Job Router protocol: the question, then the answer, then one word
// on what became of it. So the replica that polls knows of each job whether the machine
// got it, and only a replica that dies at that moment leaves one in doubt.
const (
	relayService = "spillway.gitlab.relay.v1.Relay"
	relayMethod  = "Wait"

	wordWithdraw  = "withdraw"  // the machine doesn't wait any more: answer now
	wordDelivered = "delivered" // the machine has the job
	wordReturned  = "returned"  // the machine does surely not have it
	wordEnded     = "ended"     // it was written to the machine, whose call had ended
)

// Metadata of a relayed question.
const (
	metaLimit   = "x-spillway-wait-ms" // how long it may be held
	metaReplica = "x-spillway-replica"
)

// Times of a relayed question.
const (
	// relayMargin is how much earlier the other replica has to answer than we do.
	relayMargin = time.Second
	// withdrawGrace is how long it may take to answer once it is told to.
	withdrawGrace = 2 * time.Second
)

var relayStream = grpc.StreamDesc{StreamName: relayMethod, ClientStreams: true, ServerStreams: true}

// relayed is a question that is with another replica.
type relayed struct {
	cancel context.CancelFunc
	mu     struct {
		sync.Mutex // SendMsg isn't safe for concurrent use
		stream     grpc.ClientStream
		withdrawn  bool
	}
}

// relay asks the replica at address for w. ok: the answer is final. Otherwise w may
// still stand in line, or has been answered from here.
func (d *Desk) relay(ctx context.Context, l *line, w *waiter, address string) (answer, bool) {
	q, err := d.openRelay(ctx, l, w, address)
	if err != nil {
		l.suspectHolder()
		return answer{}, false
	}
	if !l.setWake(w, q.interrupt) {
		q.cancel()
		return answer{}, false
	}
	stop := context.AfterFunc(ctx, q.withdraw)
	defer stop()
	m, err := q.recv()
	l.setWake(w, nil)
	switch {
	case status.Code(err) == codes.PermissionDenied:
		q.cancel()
		return l.withdraw(w, answer{verdict: direct})
	case err != nil:
		q.cancel()
		if !q.isWithdrawn() {
			l.suspectHolder()
		}
		return answer{}, false
	case len(m.GetJobResponse()) > 0:
		return l.accept(w, q, m)
	default:
		defer q.cancel()
		if q.isWithdrawn() {
			return answer{}, false // it only answered because we asked it to
		}
		return l.withdraw(w, answer{lastUpdate: first(q.header(), metaLastUpdate)})
	}
}

// setWake notes how the question of w is interrupted. It is false if w is answered.
func (l *line) setWake(w *waiter, wake func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.wake = wake
	return w.stage != answered
}

// accept takes a job from the other replica for w. If somebody here was quicker, the job
// goes back.
func (l *line) accept(w *waiter, q *relayed, m *jobrouterpb.GetJobResponse) (answer, bool) {
	header := q.header()
	a, ok := l.withdraw(w, answer{
		verdict: aJob, body: m.GetJobResponse(), settle: q.settle,
		lastUpdate: first(header, metaLastUpdate), requestID: first(header, metaRequestID),
	})
	if !ok {
		q.settle(unwritten)
	}
	return a, ok
}

func (d *Desk) openRelay(ctx context.Context, l *line, w *waiter, address string) (*relayed, error) {
	token, ok := d.opt.Tokens.Reveal(l.hash)
	if !ok {
		return nil, fmt.Errorf("relay: the token is no longer ours")
	}
	conn, err := d.peers.dial(address)
	if err != nil {
		return nil, err
	}
	limit := w.deadline.Sub(d.opt.Now()) - relayMargin
	// The runner's call may end, and with it its context, while the answer is on its way.
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	out = metadata.NewOutgoingContext(out, metadata.Pairs(
		metaAuthorization, bearer+token, metaRequestID, w.requestID, metaReplica, d.opt.Replica,
		metaLimit, strconv.FormatInt(max(1, limit.Milliseconds()), 10),
	))
	stream, err := conn.NewStream(out, &relayStream, "/"+relayService+"/"+relayMethod)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("relay to %s: %w", address, err)
	}
	q := &relayed{cancel: cancel}
	q.mu.stream = stream
	if err := stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: w.body}); err != nil {
		cancel()
		return nil, fmt.Errorf("relay to %s: %w", address, err)
	}
	return q, nil
}

func (q *relayed) recv() (*jobrouterpb.GetJobResponse, error) {
	m := new(jobrouterpb.GetJobResponse)
	return m, q.mu.stream.RecvMsg(m)
}

func (q *relayed) header() metadata.MD {
	md, err := q.mu.stream.Header()
	if err != nil {
		return nil // it is for showing only
	}
	return md
}

func (q *relayed) say(word string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// An error shows in recv, or means that the other replica is gone and with it what
	// the word is for.
	_ = q.mu.stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte(word)})
}

// withdraw asks for an answer now, and breaks off if none comes.
func (q *relayed) withdraw() {
	q.mu.Lock()
	again := q.mu.withdrawn
	q.mu.withdrawn = true
	q.mu.Unlock()
	if !again {
		time.AfterFunc(withdrawGrace, q.cancel)
		q.say(wordWithdraw)
	}
}

// interrupt is withdraw for callers that hold a lock.
func (q *relayed) interrupt() { go q.withdraw() }

func (q *relayed) isWithdrawn() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.withdrawn
}

// settle tells the other replica what became of its job, and waits until it knows.
func (q *relayed) settle(d delivery) {
	q.say(map[delivery]string{arrived: wordDelivered, unwritten: wordReturned, broken: wordEnded}[d])
	timer := time.AfterFunc(withdrawGrace, q.cancel)
	defer timer.Stop()
	_, _ = q.recv() // the end of the stream
	q.cancel()
}
