package coordinator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// Server is the PoolCoordinator of one replica.
type Server struct {
	pb.UnimplementedPoolCoordinatorServer

	opt        Options
	dispatcher *session.Dispatcher
	runners    *session.Runners
	jobs       Submitter
	store      Store
	pools      *directory

	ctx    context.Context // of the workers' conversations; ends with Run
	cancel context.CancelFunc
	calls  sync.WaitGroup // that go on beside a handler

	submitting chan struct{} // 1 slot: one job at a time is counted and added

	mu struct {
		sync.Mutex
		workers map[spillway.MachineID]*worker
		closed  bool // Run has ended
	}
}

// New returns a server of d's jobs. Nothing is watched before Run.
func New(d *session.Dispatcher, jobs Submitter, s Store, opt Options) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	server := &Server{
		opt: opt.withDefaults(), dispatcher: d, runners: session.NewRunners(d, nil), jobs: jobs, store: s, submitting: make(chan struct{}, 1),
	}
	server.pools = newDirectory(s, &server.opt)
	server.ctx, server.cancel = context.WithCancel(context.Background())
	server.mu.workers = make(map[spillway.MachineID]*worker)
	return server, nil
}

// Run watches over workers and pools until ctx ends. Then it leaves: what its workers
// have stays theirs, and they find it at another replica.
func (s *Server) Run(ctx context.Context) {
	s.calls.Go(func() { s.pools.follow(ctx) })
	s.calls.Go(func() { s.followMoves(ctx) })
	look, renew := time.NewTicker(s.opt.sweepEvery()), time.NewTicker(s.opt.SilentAfter/2)
	defer look.Stop()
	defer renew.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-look.C:
			s.sweep(ctx, now)
		case <-renew.C:
			s.keepSeats(ctx)
		}
	}
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.cancel()
	s.calls.Wait()
}

// beside runs f beside a handler, unless Run has ended.
func (s *Server) beside(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.calls.Go(f)
	return true
}

// Workers returns how many are attached to this replica.
func (s *Server) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.workers)
}

func (s *Server) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.workers))
}

// here returns the worker that calls, attached to the pool.
func (s *Server) here(ctx context.Context, c caller, pool *spillway.Pool) (*worker, error) {
	for {
		w, err := s.enter(c)
		if err != nil {
			return nil, err
		}
		if w.attachedTo(pool.Name, time.Now()) {
			return w, nil
		}
		again, err := s.attachNew(ctx, w, c, pool)
		if !again {
			return w, err
		}
	}
}

// enter finds the entry of a worker, or makes it.
func (s *Server) enter(c caller) (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := c.machine()
	w := s.mu.workers[id]
	if w == nil {
		if len(s.mu.workers) >= s.opt.MaxWorkers {
			return nil, status.Errorf(codes.ResourceExhausted, "%d workers are attached to this control plane: try another", len(s.mu.workers))
		}
		w = newWorker(id, c, s.opt.beatGap())
		s.mu.workers[id] = w
	}
	if w.by != c.by {
		return nil, errTaken(c.runner)
	}
	return w, nil
}

func errTaken(runner string) error {
	return status.Errorf(codes.PermissionDenied, "runner %s is in use by somebody else: choose a runner_id of your own", runner)
}

// leave removes an entry; callers hold its turn.
func (s *Server) leave(w *worker) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.gone.Store(true)
	delete(s.mu.workers, w.id)
	return len(s.mu.workers)
}

// attachNew attaches a worker that has no conversation with the pool, with the job that
// it has by our book. again: the entry is gone, find another.
func (s *Server) attachNew(ctx context.Context, w *worker, c caller, pool *spillway.Pool) (again bool, err error) {
	if err := w.takeTurn(ctx); err != nil {
		return false, err
	}
	defer w.endTurn()
	if w.gone.Load() {
		return true, nil
	}
	if w.attachedTo(pool.Name, time.Now()) {
		return false, nil
	}
	if err = w.mayMove(pool.Name); err != nil {
		return false, err
	}
	if err = s.attachWithWork(ctx, w, c, pool); err != nil && w.conversation() == nil {
		s.leave(w)
	}
	return false, err
}

func (s *Server) attachWithWork(ctx context.Context, w *worker, c caller, pool *spillway.Pool) error {
	work, live, err := s.work(ctx, w.id)
	switch {
	case err != nil:
		return storeStatus(err)
	case live && work.By != c.by:
		return errTaken(c.runner)
	case !live || work.Pool != pool.Name:
		work = store.Work{}
	}
	if err := s.sit(ctx, w, pool.Name, work.Attempt > 0); err != nil {
		return err
	}
	w.describe(c)
	if err := s.attach(ctx, w, pool, work, false); err != nil {
		return err
	}
	if work.Attempt > 0 && work.Replica != s.opt.Replica {
		work.Replica = s.opt.Replica
		s.keep(ctx, work)
	}
	s.publish(ctx, move{w.id, s.opt.Replica, moveAttached})
	return nil
}

// keep notes that a worker's job is here now. It matters only if the worker falls
// silent: then this replica may give the job up at once.
func (s *Server) keep(ctx context.Context, work store.Work) {
	if err := s.store.PutWork(ctx, work, spillway.MaxJobTimeout+workSpare); err != nil {
		tell(s.opt.Events.Trouble, Trouble{Op: "keep what a worker has", Err: err})
	}
}

// work is what a worker was given, if it still is that attempt.
func (s *Server) work(ctx context.Context, id spillway.MachineID) (work store.Work, live bool, err error) {
	work, ok, err := s.store.Work(ctx, id)
	if err != nil || !ok {
		return store.Work{}, false, err
	}
	records, err := s.store.GetMany(ctx, []spillway.JobID{work.Job})
	if err != nil {
		return store.Work{}, false, err
	}
	return work, isLive(&work, records[0]), nil
}

func isLive(work *store.Work, record *spillway.JobRecord) bool {
	return record != nil && !record.State.Terminal() && record.Attempt == work.Attempt &&
		(record.State == spillway.Assigned || record.State == spillway.Running)
}
