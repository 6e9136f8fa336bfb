package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// cancelKept is how long a canceled job is remembered: for longer than a call of the
	// store takes that may still bring its attempt here.
	cancelKept = time.Minute
	// maxCanceled bounds what is remembered [jobs]; of more, the next renewal tells.
	maxCanceled = 100_000
)

// cancels is what was canceled lately. A cancel may overtake the answer of the claim, or
// of the verification, that makes the attempt ours.
type cancels struct {
	at map[spillway.JobID]time.Time
}

// followCancels hears of the jobs that any replica cancels.
func (d *Dispatcher) followCancels() {
	d.beside(func(ctx context.Context) func(time.Time) {
		for ctx.Err() == nil {
			if err := d.hearCancels(ctx); err != nil {
				d.trouble("subscribe to cancels", err)
			}
			select {
			case <-time.After(retryMost):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// hearCancels hands on what a subscription brings until it ends. Between two of them
// some may be missed, so that each begins with a look at all claims.
func (d *Dispatcher) hearCancels(ctx context.Context) error {
	heard, err := d.store.Canceled(ctx)
	if err != nil {
		return err
	}
	for ids, open := []spillway.JobID(nil), true; open; ids, open = <-heard {
		select {
		case d.answers <- func(now time.Time) { d.heardCanceled(now, ids) }:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// heardCanceled takes in what was canceled; nil when some may have been missed.
func (d *Dispatcher) heardCanceled(now time.Time, ids []spillway.JobID) {
	if ids == nil {
		d.upkeep.renewed = time.Time{}
		return
	}
	d.canceled(now, ids)
}

// canceled ends jobs on their machines that have been canceled in the store. The
// machines answer with a result, which is stale by then.
func (d *Dispatcher) canceled(now time.Time, ids []spillway.JobID) {
	for _, id := range ids {
		if ref, on, ok := d.engine.Holder(id); ok {
			d.giveUp(now, ref, on, "canceled")
		}
		if len(d.cancels.at) < maxCanceled {
			d.cancels.at[id] = now
		}
	}
}

// sweep forgets what was canceled long ago.
func (c *cancels) sweep(now time.Time) {
	for id, at := range c.at {
		if now.Sub(at) > cancelKept {
			delete(c.at, id)
		}
	}
}

// has reports whether a job was canceled lately.
func (c *cancels) has(id spillway.JobID) bool {
	_, canceled := c.at[id]
	return canceled
}

// withoutCanceled leaves out jobs that were canceled while their claim was under way.
func (c *cancels) withoutCanceled(got []router.Claimed) []router.Claimed {
	if len(c.at) == 0 {
		return got
	}
	left := make([]router.Claimed, 0, len(got))
	for i := range got {
		if !c.has(got[i].Ref.ID) {
			left = append(left, got[i])
		}
	}
	return left
}

// split moves attempts that were canceled while they were verified to those that are not
// their machine's.
func (c *cancels) split(mine []*heldJob, others []router.JobRef) ([]*heldJob, []router.JobRef) {
	left := make([]*heldJob, 0, len(mine))
	for _, job := range mine {
		if c.has(job.ref.ID) {
			others = append(others, job.ref)
		} else {
			left = append(left, job)
		}
	}
	return left, others
}
