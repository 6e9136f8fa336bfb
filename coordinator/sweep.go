package coordinator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// sweep does what the passing of time calls for.
func (s *Server) sweep(ctx context.Context, now time.Time) {
	for _, w := range s.all() {
		if w.offeredFor(now) > s.opt.offerFor() {
			w.refuse(runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)
		}
		if silent, moved := w.quiet(now, s.opt.SilentAfter); silent || moved {
			s.detach(ctx, w, silent)
		}
	}
}

func (w *worker) offeredFor(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.offered == nil {
		return 0
	}
	return now.Sub(w.mu.offered.at)
}

// quiet reports whether the worker has made no call for too long, and whether it makes
// its calls at another replica.
func (w *worker) quiet(now time.Time, silentAfter time.Duration) (silent, moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.polls > 0 {
		return false, false
	}
	moved = w.mu.movedAt.After(w.mu.heardAt) && now.Sub(w.mu.heardAt) > movePatience && w.mu.given == nil
	return now.Sub(w.mu.heardAt) > silentAfter, moved
}

// elsewhere reports whether the worker was seen at another replica since it called here.
func (w *worker) elsewhere() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.movedAt.After(w.mu.heardAt)
}

// detach ends a worker's being a machine here. The job of one that is silent goes to
// another at once, unless the worker is known to have taken it to another replica, which
// then watches over it.
func (s *Server) detach(ctx context.Context, w *worker, silent bool) {
	if !w.tryTurn() {
		return // it calls just now
	}
	defer w.endTurn()
	if again, moved := w.quiet(time.Now(), s.opt.SilentAfter); w.gone.Load() || !again && !moved {
		return
	}
	w.refuse(runnerv1.RefusalCode_REFUSAL_CODE_DRAINING)
	left := s.leave(w)
	w.mu.Lock()
	l, has, pool := w.mu.link, w.mu.given, w.mu.pool
	w.mu.Unlock()
	if l != nil {
		l.attached.Leave()
	}
	if !w.elsewhere() {
		s.stand(ctx, w) // else it has its seat at the other replica
	}
	e := WorkerDetached{Runner: w.runner, Pool: pool, Workers: left, Silent: silent}
	if has != nil && s.isOurs(ctx, w, has) {
		e.Lost = has.job
		s.dispatcher.MachinesEnded([]spillway.MachineID{w.id})
	}
	tell(s.opt.Events.WorkerDetached, e)
}

// isOurs reports whether no other replica has taken over what the worker has. What can't
// be found out is left to the router, which waits for longer.
func (s *Server) isOurs(ctx context.Context, w *worker, g *given) bool {
	work, ok, err := s.store.Work(ctx, w.id)
	if err != nil {
		tell(s.opt.Events.Trouble, Trouble{Op: "look for a silent worker", Err: err})
	}
	return err == nil && ok && work.Replica == s.opt.Replica && string(work.Job) == g.job && work.Attempt == int(g.attempt)
}

// move is what replicas tell each other of a worker.
type move struct {
	Machine spillway.MachineID `json:"machine"`
	Replica string             `json:"replica"`
	What    moveKind           `json:"what"`
}

// moveKind is what happens at the replica that tells.
type moveKind string

const (
	moveAttached moveKind = "attached" // the worker has come: whoever has it too says so
	moveHas      moveKind = "has"      // which is the answer
	movePolls    moveKind = "polls"    // it asks for a job, and is known to be elsewhere too
	moveTook     moveKind = "took"     // it was given one
)

func (s *Server) publish(ctx context.Context, m move) {
	data, err := json.Marshal(m)
	if err == nil {
		err = s.store.PublishFact(context.WithoutCancel(ctx), factTopic, data)
	}
	if err != nil { // the others find out when the worker stays silent there
		tell(s.opt.Events.Trouble, Trouble{Op: "tell other replicas of a worker", Err: err})
	}
}

// followMoves takes in what other replicas tell, until ctx ends.
func (s *Server) followMoves(ctx context.Context) {
	for ctx.Err() == nil {
		facts, err := s.store.Facts(ctx, factTopic)
		if err != nil {
			tell(s.opt.Events.Trouble, Trouble{Op: "listen to other replicas", Err: err})
		}
		for err == nil {
			data, open := <-facts
			if !open {
				break
			}
			var m move
			if json.Unmarshal(data, &m) == nil && m.Replica != s.opt.Replica {
				s.seenElsewhere(ctx, m)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(sweepMost):
		}
	}
}

// seenElsewhere: a worker calls at another replica. What it is offered here goes back, for
// it to be offered there; the rest waits, since its calls may be spread over both.
func (s *Server) seenElsewhere(ctx context.Context, m move) {
	s.mu.Lock()
	w := s.mu.workers[m.Machine]
	s.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	w.mu.movedAt = time.Now()
	polls, idle := w.mu.polls > 0, w.mu.given == nil
	w.mu.Unlock()
	if m.What == moveAttached {
		s.publish(ctx, move{w.id, s.opt.Replica, moveHas})
	}
	if m.What == moveHas || polls {
		return
	}
	w.refuse(runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)
	if m.What == moveTook && idle {
		w.word(time.Now(), 1, false) // nothing more before its next call here
	}
}
