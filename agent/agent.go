package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/agent/notices"
	"github.com/spillway-ci/spillway/agent/shell"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const (
	// reconnectFirst and reconnectMax are the longest waits before the first and
	// before any later attempt to connect. Each wait is drawn between 0 and that
	// (full jitter), so that the machines of a router that was restarted do not
	// come back as one crowd.
	reconnectFirst = 100 * time.Millisecond
	reconnectMax   = 10 * time.Second
	// stableAfter is how long a link must have been registered for the next wait to
	// be short again: a router that takes machines in and throws them out at once
	// must not be asked ten times a second.
	stableAfter = 10 * time.Second
	// minHeartbeat and maxHeartbeat bound what the router may ask for.
	minHeartbeat = 10 * time.Millisecond
	maxHeartbeat = time.Minute
	// resendAfter is when a result that was not acknowledged is sent again on the
	// same link: the router's store may have been away.
	resendAfter = 30 * time.Second
	// lingerForAcks is how long a machine that leaves waits for the last
	// acknowledgements. Without them the router takes the jobs for lost and has
	// them run again.
	lingerForAcks = 30 * time.Second
	// partWithin is how long the last messages may take to be written. Less would cut off
	// a slow network; a router that reads nothing must not keep a machine that leaves.
	partWithin = 10 * time.Second
)

// agent is the state of one machine. All fields but the channels belong to the
// goroutine of run.
type agent struct {
	o      Options
	log    *slog.Logger
	held   map[attempt]*heldJob
	beside *beside // the runner that this machine speaks for; nil: it runs jobs itself

	link         *link     // nil while there is none
	registeredAt time.Time // of this link; zero before Registered
	pool         string
	beatEvery    time.Duration
	sequence     uint64 // of the last heartbeat
	backoff      *backoff.ExponentialBackOff

	ordered   bool           // the router told us to drain
	terminate bool           // and then to leave
	own       bool           // we were told from outside to drain and leave
	cut       bool           // jobs are being cut short; we leave when their processes are gone
	verdict   error          // what run returns
	notice    notices.Notice // the gravest that was heard of our instance
	unhealthy string         // why we are broken by our own check; empty = we are not
	lingering bool           // we wait for acknowledgements, and then leave without them
	lingered  bool           // we did

	connect    *time.Timer
	beat       *time.Timer
	drainLimit *time.Timer
	linger     *time.Timer
	forget     *time.Timer // when an order from before the registration is void
	lonely     *time.Timer // when a job ends that may not go on without a router
	aloneSince time.Time   // since when there is no router; zero = there is one

	inbox     chan *runnerv1.RouterMessage
	linkEnded chan error
	started   chan jobStart
	ended     chan jobEnd
	jobs      sync.WaitGroup
	tunnels   atomic.Int32 // sessions with jobs
}

// jobStart is what the goroutine of a job says first.
type jobStart struct {
	ref   attempt
	place *shell.Place
}

// jobEnd is what the goroutine of a job says last.
type jobEnd struct {
	ref     attempt
	outcome shell.Outcome
	err     error // it was not started
}

// Run is one machine's life. It returns nil when the machine has left in order:
// after Options.Drain was closed or the router told it to, with all jobs ended.
// When ctx ends first, jobs are cut short, and the context's cause is returned.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	a := newAgent(o)
	defer a.stopTimers()
	a.run(ctx)
	a.heartbeat() // the last word
	a.closeLink()
	a.jobs.Wait()
	return a.verdict
}

func newAgent(o Options) *agent {
	a := &agent{
		o:    o,
		log:  o.Log.With("machine", o.MachineID),
		held: map[attempt]*heldJob{},
		backoff: &backoff.ExponentialBackOff{ // ± 100 % of half the longest wait: 0 to the longest
			InitialInterval: reconnectFirst / 2, MaxInterval: reconnectMax / 2, Multiplier: 2, RandomizationFactor: 1,
		},
		beatEvery:  spillway.DefaultHeartbeatEvery,
		connect:    time.NewTimer(0),
		beat:       stoppedTimer(),
		drainLimit: stoppedTimer(),
		linger:     stoppedTimer(),
		forget:     stoppedTimer(),
		lonely:     stoppedTimer(),
		inbox:      make(chan *runnerv1.RouterMessage), // unbuffered: a link's end comes after all it read
		linkEnded:  make(chan error, 1),
		started:    make(chan jobStart),
		ended:      make(chan jobEnd),
	}
	if o.Beside != nil {
		a.beside = &beside{Beside: o.Beside}
		a.connect.Reset(registerBlind)
	}
	return a
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (a *agent) stopTimers() {
	for _, t := range []*time.Timer{a.connect, a.beat, a.drainLimit, a.linger, a.forget, a.lonely} {
		t.Stop()
	}
}

// run is the one owner of a's state.
func (a *agent) run(ctx context.Context) {
	background := context.WithoutCancel(ctx) // jobs and link end in order, not by ctx
	ctxDone, drain := ctx.Done(), a.o.Drain
	states := a.news()
	for !a.mayLeave() {
		select {
		case <-ctxDone:
			ctxDone = nil
			a.cutShort(context.Cause(ctx))
		case <-drain:
			drain = nil
			a.drainSelf()
		case n := <-a.o.Notices:
			a.noticed(n)
		case why := <-a.o.Health:
			a.felt(why)
		case s := <-states:
			a.saw(s)
		case <-a.forget.C:
			a.steer(false)
		case <-a.drainLimit.C:
			a.endOfDrain()
		case <-a.linger.C:
			a.lingered = true
		case <-a.lonely.C:
			a.endAlone(time.Now())
		case <-a.connect.C:
			a.link = startLink(background, &a.o, a.registerMessage(), a.inbox, a.linkEnded)
		case <-a.beat.C:
			a.heartbeat()
		case err := <-a.linkEnded:
			a.linkIsGone(err)
		case m := <-a.inbox:
			a.receive(background, m)
		case start := <-a.started:
			a.jobStarted(start)
		case end := <-a.ended:
			a.jobEnded(end)
		}
	}
}

// receive does what one message of the router says.
func (a *agent) receive(ctx context.Context, m *runnerv1.RouterMessage) {
	switch m := m.GetMessage().(type) {
	case *runnerv1.RouterMessage_Registered:
		a.registered(m.Registered)
	case *runnerv1.RouterMessage_Assign:
		a.assign(ctx, m.Assign)
	case *runnerv1.RouterMessage_CancelJob:
		a.cancelJob(m.CancelJob)
	case *runnerv1.RouterMessage_Drain:
		a.obeyDrain(m.Drain)
	case *runnerv1.RouterMessage_StatusAck:
		a.acknowledged(m.StatusAck)
	case *runnerv1.RouterMessage_OpenTunnel:
		a.openTunnel(m.OpenTunnel)
	case *runnerv1.RouterMessage_Wait:
		a.log.Debug("no job for now", "reason", m.Wait.GetReason(), "retry_after", m.Wait.GetRetryAfter().AsDuration())
	case *runnerv1.RouterMessage_Signal:
		a.log.Debug("signal", "total_jobs", m.Signal.GetTotalJobs(), "total_runners", m.Signal.GetTotalRunners())
	default: // a newer router's; what it needs an answer to, it does not send to our version
		a.log.Debug("unknown message ignored")
	}
}

// registered begins the conversation: what the router holds against us, and then
// all that it may have missed.
//
// An order to drain is forgotten here: it was this router's predecessor's, and
// the router repeats it if it still stands. Keeping it would leave a machine idle
// for ever whose router has no such order on record.
func (a *agent) registered(r *runnerv1.Registered) {
	a.registeredAt = time.Now()
	a.foundRouter()
	a.pool = r.GetPool()
	if a.beside != nil && a.ordered {
		a.forget.Reset(repeatedWithin)
	}
	a.ordered, a.terminate = false, false
	if every := r.GetHeartbeatEvery().AsDuration(); every > 0 {
		a.beatEvery = min(max(every, minHeartbeat), maxHeartbeat)
	}
	a.log.Info("registered", "router", a.o.Router, "pool", a.pool, "heartbeat_every", a.beatEvery)
	for _, job := range r.GetSuperseded() {
		a.drop(attempt{job.GetJobId(), job.GetAttempt()}, "superseded")
	}
	a.heartbeat()
	// Who has lost a router has lost it together with others, and comes back with them: not
	// also every heartbeat from then on.
	a.beat.Reset(rand.N(a.beatEvery))
}

// heartbeat tells how many jobs run, and results that are due come along with it.
func (a *agent) heartbeat() {
	if a.registeredAt.IsZero() {
		return
	}
	a.deliverResults()
	a.sequence++
	running := a.running()
	a.send(heartbeatMessage(&runnerv1.Heartbeat{
		Busy:     int32(a.busy()),
		Draining: a.draining(),
		Running:  running,
		Sequence: a.sequence,

		Interruption: a.interruption(),
		Unhealthy:    a.complaint(),
	}))
	a.beat.Reset(a.beatEvery)
}

// send queues m. Without a link nothing is lost: Register and what follows it
// tell the whole state.
func (a *agent) send(m *runnerv1.RunnerMessage) {
	if a.link == nil {
		return
	}
	select {
	case a.link.out <- m:
	default:
		a.link.cancel(errSlowRouter)
	}
}

// linkIsGone waits for the next attempt, or gives up if it would be in vain.
func (a *agent) linkIsGone(err error) {
	stable := !a.registeredAt.IsZero() && time.Since(a.registeredAt) >= stableAfter
	a.link, a.registeredAt = nil, time.Time{}
	a.lostRouter(time.Now())
	a.beat.Stop()
	if a.beside != nil {
		a.beside.owed = 0 // the next router gives the order again
	}
	for _, h := range a.held {
		h.sentAt = time.Time{}
	}
	if errors.Is(err, ErrUnauthenticated) {
		a.leaveRefused(err)
		return
	}
	if stable {
		a.backoff.Reset()
	}
	wait := a.backoff.NextBackOff()
	a.connect.Reset(wait)
	a.log.Warn("not connected", "router", a.o.Router, "error", err, "retry_in", wait)
}

// closeLink sends what is queued, ends the stream and waits for that.
func (a *agent) closeLink() {
	if a.link == nil {
		return
	}
	if a.registeredAt.IsZero() {
		a.link.cancel(errRouterClosed) // it may still be dialling: nothing is owed there
	}
	close(a.link.out)
	limit := time.AfterFunc(partWithin, func() { a.link.cancel(errUnread) })
	defer limit.Stop()
	for {
		select {
		case <-a.inbox: // too late; the router sees us leave
		case err := <-a.linkEnded:
			a.log.Debug("link ended", "error", err)
			return
		}
	}
}
