package collect

import (
	"context"
	"strings"
	"time"
)

// show writes the board and wakes the scalers if it says something new.
func (t *tenure) show(ctx context.Context, now time.Time) {
	t.due = now.Add(t.g.o.Every)
	t.timer.Reset(t.g.o.Every)
	if !t.mayShow(ctx, now) {
		return
	}
	version, board := t.book.Version(), t.board(now)
	data, err := encodeBoard(board, MaxBoardBytes)
	if err == nil {
		err = t.g.o.Store.PutBoard(ctx, BoardName, t.lease.Epoch, data, max(minBoardTTL, 10*t.g.o.Every))
	}
	if err != nil {
		if ctx.Err() == nil {
			t.g.o.Events.trouble("showing GitLab's jobs to the other replicas", err)
		}
		t.showBy(now.Add(retryBoard))
		return
	}
	news := version != t.shown || !t.everShow
	t.shown, t.everShow = version, true
	t.g.o.Events.shown(board)
	if !news {
		return
	}
	if err := t.g.o.Store.PublishPoke(ctx); err != nil && ctx.Err() == nil {
		t.g.o.Events.trouble("waking the scalers", err)
	}
}

// mayShow reports whether this tenure knows enough to replace a board. Until then what
// the last holder has shown is nearer to the truth than an empty book; its age tells
// the rest.
func (t *tenure) mayShow(ctx context.Context, now time.Time) bool {
	if t.everShow || t.ready(now) {
		return true
	}
	if t.problem == "" && t.g.o.API != nil && t.book.began().IsZero() {
		return false // the first list is still coming
	}
	_, found, err := t.g.o.Store.Board(ctx, BoardName)
	return err == nil && !found
}

// ready: a list has come, or every replica has had the time to say what it holds.
func (t *tenure) ready(now time.Time) bool {
	if t.g.o.API != nil {
		return !t.whole.IsZero()
	}
	return now.Sub(t.began) > heldWarmup
}

// heldWarmup is how long a new holder waits for what the replicas hold [time].
const heldWarmup = 2*heldEvery + time.Second

// board is all that is known, as the replicas see it.
func (t *tenure) board(now time.Time) Board {
	b := t.book.Board(now, t.g.ages()...)
	b.Stale = t.stale
	var why []string
	if b.Why != "" {
		why = append(why, b.Why)
	}
	switch {
	case t.g.o.API == nil:
		b.At = now
		all, pools := t.heldLacks(now)
		if why = append(why, all...); len(why) == 0 {
			b.Lacks = pools
		}
		why = append(why, tellLacks(pools)...)
		b.Partial = len(why) > 0
	case b.At.IsZero():
		b.Partial = true
	}
	if t.problem != "" {
		why = append(why, "GitLab could not be asked: "+t.problem)
	}
	b.Why = strings.Join(why, "; ")
	if len(t.g.o.Runners) > 0 && t.g.o.API != nil {
		b.Runners = make(map[int64]RunnerState, len(t.g.o.Runners))
		for _, id := range t.g.o.Runners {
			b.Runners[id] = t.state(id)
		}
	}
	return b
}
