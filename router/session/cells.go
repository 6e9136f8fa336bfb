package session

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// What the dispatcher does for jobs that cells hand over (package cells): on either side
// it is sure of a job only by what its machine says, and by the claim.

// handedOver reports whether a job is another cell's.
func handedOver(job *spillway.Job) bool { return job.Requirement.Origin == spillway.CellOrigin }

// aloneFor is how long a machine may go on with a job while it has no router; nil = for
// as long as it takes. Its cell can't say that a job has ended of which nobody hears.
func (d *Dispatcher) aloneFor(job *spillway.Job) *durationpb.Duration {
	if !handedOver(job) {
		return nil
	}
	return durationpb.New(d.opt.AloneFor)
}

// lostThere gives back what a machine had accepted and has lost.
func (d *Dispatcher) lostThere(ref router.JobRef, s *stream, detail string) {
	d.outcomes.release(store.Release{Ref: ref, Lost: true, Detail: head(detail, MaxDetailBytes)})
	tell(d.opt.Events.JobLost, JobLost{Ref: ref, Machine: s.machine, Pool: s.pool.Name, Detail: detail})
}

// EndJobs has machines of this replica end jobs. Unlike a cancel it changes no record: how
// each job has ended, and that it has, its machine says. It needs no store.
func (d *Dispatcher) EndJobs(ctx context.Context, ids []spillway.JobID, reason string) {
	d.put(ctx, event{kind: called, call: func(time.Time) {
		for _, id := range ids {
			ref, on, held := d.engine.Holder(id)
			if s := d.streams[on]; held && s != nil && s.registered {
				d.endOn(s, ref, reason)
			}
		}
	}})
}

// Abandon forgets a machine whose jobs another replica may answer for: they are not given
// back, but their claims end unless somebody extends them. Its conversation is ended.
func (d *Dispatcher) Abandon(ctx context.Context, id spillway.MachineID) {
	d.put(ctx, event{kind: called, call: func(now time.Time) {
		if s := d.streams[id]; s != nil {
			s.stop(errAbandoned)
			delete(d.streams, id)
		}
		d.strikeOff(now, id)
	}})
}

// SetBars replaces the jobs that an owner keeps away from its pools.
func (d *Dispatcher) SetBars(ctx context.Context, owner string, pools []string, bars []router.Bar) {
	d.put(ctx, event{kind: called, call: func(time.Time) { d.engine.SetBars(owner, pools, bars) }})
}

// noteRenewal notes whether claims can be renewed.
func (d *Dispatcher) noteRenewal(now time.Time, err error) {
	switch {
	case err == nil:
		d.upkeep.claimsFail = time.Time{}
	case d.upkeep.claimsFail.IsZero():
		d.upkeep.claimsFail = now
	}
}

// endUnclaimed ends jobs of other cells when nobody can have renewed their claims: the
// replica that hears from their cell can't reach us then, either.
func (d *Dispatcher) endUnclaimed(now time.Time) {
	since := d.upkeep.claimsFail
	if since.IsZero() || now.Sub(since) < d.opt.ClaimTTL-d.opt.RenewEvery {
		return
	}
	for _, job := range d.jobs {
		if !job.handedOver {
			continue
		}
		ref, on, held := d.engine.Holder(job.ref.ID)
		if s := d.streams[on]; held && s != nil && s.registered {
			d.endOn(s, ref, "the store can't be reached")
		}
	}
}
