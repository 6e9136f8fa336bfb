package coordinator

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
)

// A registered pool has at most max workers, over all replicas: each of them has a seat,
// which the store gives out. Nobody starts or ends these workers for us, so that more of
// them may come; those are refused, and become workers when a seat is free.

// seatSpare is how much longer than a worker may be silent it keeps its seat.
const seatSpare = 2

// spareError answers a worker that finds no seat.
type spareError struct {
	runner, pool string
	max          int
}

// Error says so.
func (e *spareError) Error() string { return e.GRPCStatus().Message() }

// GRPCStatus is the error as callers get it.
func (e *spareError) GRPCStatus() *status.Status {
	return status.Newf(codes.ResourceExhausted, "pool %s has its max of %d workers: runner %s is a spare; try again later, or end it", e.pool, e.max, e.runner)
}

func (o *Options) seatTTL() time.Duration { return seatSpare * o.SilentAfter }

// sit gives the worker a seat in the pool, if it is one that has a bound; the caller holds
// the turn. Whoever has a job of the pool is in it, whatever the bound.
func (s *Server) sit(ctx context.Context, w *worker, pool string, busy bool) error {
	e, ok := s.pools.entry(pool)
	if !ok || e.configured || e.Max == 0 {
		s.stand(ctx, w)
		return nil
	}
	if from := w.seat(); from != "" && from != pool {
		s.stand(ctx, w)
	}
	if busy {
		err := s.store.KeepSeats(ctx, map[string][]spillway.MachineID{pool: {w.id}}, s.opt.seatTTL())
		return s.seated(w, pool, err)
	}
	taken, err := s.store.TakeSeat(ctx, pool, w.id, e.Max, s.opt.seatTTL())
	if err == nil && !taken {
		return &spareError{runner: w.runner, pool: pool, max: e.Max}
	}
	return s.seated(w, pool, err)
}

func (s *Server) seated(w *worker, pool string, err error) error {
	if err != nil {
		return storeStatus(err)
	}
	w.setSeat(pool)
	return nil
}

// stand gives the worker's seat back, if it has one. One that can't be given back is
// free when its time is up.
func (s *Server) stand(ctx context.Context, w *worker) {
	pool := w.seat()
	if pool == "" {
		return
	}
	w.setSeat("")
	if err := s.store.LeaveSeat(context.WithoutCancel(ctx), pool, w.id); err != nil {
		tell(s.opt.Events.Trouble, Trouble{Op: "free a worker's place in its pool", Err: err})
	}
}

// keepSeats renews the seats of this replica's workers.
func (s *Server) keepSeats(ctx context.Context) {
	seats := make(map[string][]spillway.MachineID)
	for _, w := range s.all() {
		if pool := w.seat(); pool != "" {
			seats[pool] = append(seats[pool], w.id)
		}
	}
	if len(seats) == 0 {
		return
	}
	if err := s.store.KeepSeats(ctx, seats, s.opt.seatTTL()); err != nil && ctx.Err() == nil {
		tell(s.opt.Events.Trouble, Trouble{Op: "keep the workers' places in their pools", Err: err})
	}
}

// holdSpare has a spare wait as long as a poll may: it is not to call again at once.
func (s *Server) holdSpare(ctx context.Context, err error) {
	var spare *spareError
	if !errors.As(err, &spare) {
		return
	}
	wait := time.NewTimer(s.pollWait(ctx))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// seat names the pool in which the worker has a seat.
func (w *worker) seat() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.seat
}

func (w *worker) setSeat(pool string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.seat = pool
}
