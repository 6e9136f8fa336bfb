package sidecar

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

const (
	// settleFor is how long a runner that was told to stop and seems idle is waited for
	// before that is told: an idle one ends at once, and then there is nothing to look at
	// twice.
	settleFor = time.Second
	// closely is the time between two looks while something is about to happen, and
	// attentively while it may take long.
	closely     = 100 * time.Millisecond
	attentively = time.Second
	// MetricsPatience is how long a runner may leave its metrics unanswered until it is
	// taken for broken: as long as a machine may be silent.
	MetricsPatience = 45 * time.Second
	// GonePatience is how long a runner that nobody told to stop may be without a
	// process: somebody may be restarting it.
	GonePatience = 10 * time.Second
	// startAgainAfter is the time between two tries to start the runner.
	startAgainAfter = 10 * time.Second
)

// Watch watches one runner. All fields but the channels belong to the goroutine of Run.
type Watch struct {
	o       Options
	log     *slog.Logger
	process process
	client  *http.Client
	states  chan State    // 1 slot: the newest
	orders  chan Order    // 1 slot: the newest
	changed chan struct{} // our child has ended

	order Order // the newest

	name    string    // of its process; "" = none
	sure    bool      // name is true, by the last look
	since   time.Time // since when name is what it is
	sureAt  time.Time // when it was last sure
	told    string    // the process that SIGQUIT was sent to
	toldAt  time.Time
	tried   time.Time // when it was last started
	jobs    reading   // what the metrics said last
	jobsAt  time.Time // when; zero = this process has said nothing yet
	trouble trouble   // what went wrong at the last look

	elsewhereAt time.Time // when its metrics answered last though no process was found; zero = one was since

	said State
}

// trouble is what went wrong, by what was tried.
type trouble struct{ look, scrape, quit, start error }

// Open checks the options. It starts nothing.
func Open(o Options) (*Watch, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	way, err := o.process(changed)
	if err != nil {
		return nil, err
	}
	return &Watch{
		o: o, log: o.Log, process: way, client: newClient(), changed: changed,
		states: make(chan State, 1), orders: make(chan Order, 1),
	}, nil
}

// Ours reports whether the runner was started here, and so ends with us.
func (w *Watch) Ours() bool { return len(w.o.Exec) > 0 }

// States delivers what is true of the runner: after each look. Of those that nobody has
// received the newest is kept.
func (w *Watch) States() <-chan State { return w.states }

// Order has the runner stop or serve again. It does not wait: State.Order says when it is
// carried out. Only one goroutine may give orders; the newest counts.
func (w *Watch) Order(o Order) {
	select {
	case <-w.orders: // nobody has seen it, and it is void
	default:
	}
	w.orders <- o
}

// Run watches until ctx ends. A runner that is ours is started at the beginning, and
// is gone when Run returns.
func (w *Watch) Run(ctx context.Context) {
	defer w.process.close(w.o.StopGrace)
	w.since, w.sureAt = time.Now(), time.Now()
	if w.Ours() {
		w.start(ctx)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w.order = <-w.orders:
		case <-w.changed:
		case <-next.C:
		}
		w.step(ctx)
		if ctx.Err() != nil {
			return // what was cut short says nothing
		}
		state := w.state(time.Now())
		w.tell(state)
		next.Reset(w.pace(state))
	}
}

// pace is the time until the next look.
func (w *Watch) pace(s State) time.Duration {
	switch {
	case w.sure && s.Order != w.order.Number && w.trouble.quit == nil:
		return min(closely, w.o.Every)
	case !w.sure, w.name != "" && w.jobsAt.IsZero(): // it has just been started: nobody knows of it before its first word
		return min(attentively, w.o.Every)
	case s.Order != w.order.Number, s.Stopping && !s.Gone, s.Stopping && !w.order.Stop:
		return min(attentively, w.o.Every)
	default:
		return w.o.Every
	}
}

// step looks, and does what follows from it.
func (w *Watch) step(ctx context.Context) {
	w.see(ctx)
	w.trouble.quit = nil
	switch {
	case !w.sure:
	case w.name != "" && w.order.Stop && w.told != w.name:
		w.quit(ctx)
	case w.name == "" && w.order.Stop:
		w.trouble.quit = w.process.hold(ctx)
	case w.name == "" && w.told != "":
		w.start(ctx) // it ended because it was told to, and is wanted again
	}
}

// see asks for the process and the metrics. Metrics that answer prove a process: then
// one that can't be found is one that was looked for in the wrong place, and that it
// leaves a question or two unanswered later does not prove that it is gone.
func (w *Watch) see(ctx context.Context) {
	name, err := w.process.look(ctx)
	now := time.Now()
	read, scrapeErr := scrape(ctx, w.client, w.o.Metrics)
	switch {
	case err != nil: // it can't be said
	case name != "":
		w.elsewhereAt = time.Time{}
	case scrapeErr == nil:
		w.elsewhereAt = now
		name, err = w.name, errElsewhere
	case now.Sub(w.elsewhereAt) <= trustedFor:
		name, err = w.name, errElsewhere
	}
	w.trouble.look, w.trouble.scrape = err, scrapeErr
	w.sure = err == nil
	if w.sure {
		w.sureAt = now
	}
	if w.sure && name != w.name {
		w.log.Info("the runner's process", "was", w.name, "is", name)
		w.name, w.since, w.jobsAt, w.jobs.jobs = name, now, time.Time{}, 0
		w.tried, w.trouble.start = time.Time{}, nil
	}
	if scrapeErr == nil {
		w.jobs, w.jobsAt = read, now
	}
}

func (w *Watch) quit(ctx context.Context) {
	w.trouble.quit = w.process.quit(ctx, w.name)
	if w.trouble.quit == nil {
		w.log.Info("the runner was told to take no more jobs", "process", w.name)
		w.told, w.toldAt = w.name, time.Now()
	}
}

// start starts the runner, where that is possible, and not too often.
func (w *Watch) start(ctx context.Context) {
	now := time.Now()
	if !w.tried.IsZero() && now.Sub(w.tried) < startAgainAfter {
		return
	}
	w.trouble.start = w.process.start(ctx)
	w.tried = now
	w.log.Info("start the runner", "error", w.trouble.start)
}

// tell hands a state on.
func (w *Watch) tell(s State) {
	if s.Unhealthy != w.said.Unhealthy || s.Stopping != w.said.Stopping || s.Gone != w.said.Gone {
		w.log.Info("the runner", "stopping", s.Stopping, "gone", s.Gone, "unhealthy", s.Unhealthy, "running_jobs", s.Busy)
	}
	w.said = s
	select {
	case <-w.states:
	default:
	}
	w.states <- s
}
