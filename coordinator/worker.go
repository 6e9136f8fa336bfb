package coordinator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// worker is one worker of this replica. Its conversation with the router may be replaced;
// who does that, reports a result or removes the worker holds its turn meanwhile.
type worker struct {
	id     spillway.MachineID
	runner string
	by     string // whose it is
	turn   chan struct{}
	gone   atomic.Bool // removed; only with the turn

	sending sync.Mutex // one message at a time, in order
	beats   *rate.Limiter
	beatGap time.Duration // how often the router hears the same again at most

	mu struct {
		sync.Mutex
		pool     string
		seat     string // the pool in which it has a seat; empty: none, or it needs none
		instance string
		link     *link         // nil: no conversation
		changed  chan struct{} // closed when something below has changed

		offered   *offer
		given     *given
		reporting *given // whose result is on its way to the router; nil: none
		suspected bool   // it says that it does not have what it was given
		drain     *runnerv1.Drain
		ended     []string // jobs that it is to end

		heardAt  time.Time
		movedAt  time.Time // when it was last seen at another replica; zero = never
		polls    int       // under way
		lastPoll int       // the newest one's number
		beat     beat      // as last sent
		beatAt   time.Time
	}
}

// offer is a job that waits here for the worker's next poll.
type offer struct {
	job     *typesv1.Job
	attempt int32
	at      time.Time
	taken   bool // by a poll that is about to answer with it
}

// given is a job that the worker was given and has not reported on.
type given struct {
	job     string
	attempt int32
	acks    chan bool // whether the result was refused as stale
}

func (g *given) running() *runnerv1.RunningJob {
	return &runnerv1.RunningJob{JobId: g.job, Attempt: g.attempt}
}

func newWorker(id spillway.MachineID, c caller, beatGap time.Duration) *worker {
	w := &worker{id: id, beatGap: beatGap, runner: c.runner, by: c.by, turn: make(chan struct{}, 1), beats: rate.NewLimiter(beatsPerSecond, beatBurst)}
	w.mu.changed = make(chan struct{})
	w.mu.heardAt = time.Now()
	return w
}

func (w *worker) takeTurn(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (w *worker) tryTurn() bool {
	select {
	case w.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *worker) endTurn() { <-w.turn }

// describe takes over what a call says of the worker.
func (w *worker) describe(c caller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.instance = c.instance
}

// attachedTo reports whether the worker is a machine of the pool, and notes that it was
// heard.
func (w *worker) attachedTo(pool string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.heardAt = now
	return w.mu.pool == pool && w.mu.link != nil && w.mu.link.isReady()
}

func (w *worker) conversation() *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.link
}

// mayMove reports why the worker can't be of another pool now. A job that it was only
// offered goes back.
func (w *worker) mayMove(pool string) error {
	w.mu.Lock()
	link, from, has := w.mu.link, w.mu.pool, w.mu.given
	w.mu.Unlock()
	if link == nil || from == pool {
		return nil
	}
	if has != nil {
		return status.Errorf(codes.FailedPrecondition, "runner %s has job %s of pool %s: report its result first, or use another runner_id", w.runner, has.job, from)
	}
	w.refuse(runnerv1.RefusalCode_REFUSAL_CODE_DRAINING)
	link.attached.Leave()
	return nil
}

// changed wakes polls; callers hold mu.
func (w *worker) change() {
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// end notes that a job is not the worker's any more; callers hold mu.
func (w *worker) end(job string) {
	if w.mu.given != nil && w.mu.given.job == job {
		w.mu.given, w.mu.suspected = nil, false
	}
	if !slices.Contains(w.mu.ended, job) {
		w.mu.ended = append(w.mu.ended, job)
	}
	if n := len(w.mu.ended); n > maxEnded {
		w.mu.ended = slices.Clone(w.mu.ended[n-maxEnded:])
	}
}

// refuse gives an offer back that no poll has taken.
func (w *worker) refuse(code runnerv1.RefusalCode) {
	w.mu.Lock()
	o, l := w.mu.offered, w.mu.link
	if o == nil || o.taken {
		w.mu.Unlock()
		return
	}
	w.mu.offered = nil
	w.mu.Unlock()
	w.say(l, refusal(o, code))
}

func refusal(o *offer, code runnerv1.RefusalCode) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
		JobId: o.job.GetId(), Attempt: o.attempt, Code: code,
	}}}
}

// say tells the router something. What is lost with the conversation is said again with
// the next one, or its job goes back.
func (w *worker) say(l *link, m *runnerv1.RunnerMessage) bool {
	if l == nil {
		return false
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	return l.attached.Send(m) == nil
}

// beat is what a heartbeat says.
type beat struct {
	busy     int32
	draining bool
	job      string
}

// word passes on what a worker says of itself; busy counts jobs that the router knows
// nothing of, too.
func (w *worker) word(now time.Time, busy int32, draining bool) {
	w.mu.Lock()
	draining = draining || w.mu.drain.GetDraining() // else the router took it for having lost the order
	m := &runnerv1.Heartbeat{Busy: busy, Draining: draining}
	b := beat{busy: busy, draining: draining}
	if g := w.mu.given; g != nil && !w.mu.suspected {
		m.Busy = max(1, busy)
		m.Running = []*runnerv1.RunningJob{g.running()}
		b.busy, b.job = m.Busy, g.job
	}
	same := b == w.mu.beat && now.Sub(w.mu.beatAt) < w.beatGap
	l := w.mu.link
	if same || !w.beats.AllowN(now, 1) {
		w.mu.Unlock()
		return
	}
	w.mu.beat, w.mu.beatAt = b, now
	w.mu.Unlock()
	w.say(l, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: m}})
}
