package session

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	// maxReaped bounds one reaping [jobs]; the rest follows with the next.
	maxReaped = 1000
	// renewBatch bounds one renewal [claims].
	renewBatch = 4096
)

// upkeep is what has to be done again and again.
type upkeep struct {
	gone  map[spillway.MachineID]time.Time // machines without a stream, since when
	ended map[spillway.MachineID]time.Time // machines whose instances are no more, as we were told then

	swept    time.Time
	renewed  time.Time
	reaped   time.Time
	renewing bool
	reaping  bool
	overdue  bool // the last renewal failed: our claims may have expired, and must not be reaped before they are renewed
	lookOut  bool // lost machines are being looked for in the store

	claimsFail time.Time // since when claims can't be renewed; zero = they can
}

// sweep does what the passing of time calls for and needs no store.
func (d *Dispatcher) sweep(now time.Time) {
	release, lost := d.engine.Expire(now)
	for _, ref := range release {
		d.giveBack(ref, false, "its machine did not accept it in time")
	}
	for _, ref := range lost {
		d.giveBack(ref, true, "its machine came back without it")
	}
	d.lookUpLate()
	d.followDrains(now)
	if now.Sub(d.upkeep.swept) < sweepEvery {
		return
	}
	d.upkeep.swept = now
	d.endSilent(now)
	d.endOverdue(now)
	d.giveUpLost(now)
	d.expirePending(now)
	d.endUnclaimed(now)
	d.cancels.sweep(now)
	d.signal(now)
}

// giveBack releases an attempt that the engine has struck off its book.
func (d *Dispatcher) giveBack(ref router.JobRef, lost bool, detail string) {
	delete(d.jobs, ref.ID)
	d.tunnels.endJob(ref.ID, errAttemptOver)
	d.outcomes.release(store.Release{Ref: ref, Lost: lost, Detail: detail})
	if lost {
		tell(d.opt.Events.JobLost, JobLost{Ref: ref, Detail: detail})
	}
}

// endSilent ends the streams of machines that say nothing, so that they are
// treated like any other machine without a stream.
func (d *Dispatcher) endSilent(now time.Time) {
	for id, s := range d.streams {
		if m, ok := d.engine.Machine(id); ok && s.registered && now.Sub(m.HeardAt) > d.opt.SilentAfter {
			s.stop(status.Errorf(codes.Unavailable, "nothing heard for %s", d.opt.SilentAfter))
		}
	}
}

// endOverdue fails jobs that run for longer than they may, by more than the grace
// that their machine had to end them itself.
func (d *Dispatcher) endOverdue(now time.Time) {
	for _, job := range d.jobs {
		if !job.started || now.Sub(job.startedAt) <= job.limit {
			continue
		}
		_, on, ok := d.engine.Holder(job.ref.ID)
		m, known := d.engine.Machine(on)
		if !ok || !known {
			continue
		}
		d.outcomes.add(job, m.Pool, on, spillway.Failed, spillway.JobResult{
			State: spillway.Failed, Reason: spillway.JobExecutionTimeout,
			Detail: "it ran for more than " + job.limit.String() + ", and its machine did not end it",
		})
		d.giveUp(now, job.ref, on, "its time limit was reached")
	}
}

// giveUpLost looks for machines that have had no stream for longer than the grace
// and no heartbeat for long enough to be called silent, or whose instance has ended. A machine may have gone to
// another replica and taken its jobs along; its record tells.
func (d *Dispatcher) giveUpLost(now time.Time) {
	var lost []spillway.MachineID
	for id, since := range d.upkeep.gone {
		m, known := d.engine.Machine(id)
		s := d.streams[id]
		switch {
		case !known || s != nil && s.registered:
			delete(d.upkeep.gone, id)
		case s == nil && d.lost(now, since, id, m.HeardAt): // with a stream it may be back in a moment
			lost = append(lost, id)
		}
	}
	if len(lost) == 0 || d.upkeep.lookOut {
		return
	}
	d.upkeep.lookOut = true
	d.beside(func(ctx context.Context) func(time.Time) {
		all, err := d.store.Machines(ctx)
		return func(now time.Time) {
			d.upkeep.lookOut = false
			if err != nil {
				d.trouble("read machines", err)
				return // and look again: unknown is not lost
			}
			d.forget(now, lost, all)
		}
	})
}

// forget gives machines up. The jobs of those that no other replica has are lost;
// the machine's own record stays, for the scaler to judge.
func (d *Dispatcher) forget(now time.Time, ids []spillway.MachineID, all []router.Machine) {
	elsewhere := make(map[spillway.MachineID]bool)
	for i := range all {
		m := &all[i]
		// An id is a pool's: a machine of another one that calls itself so proves nothing.
		known, _ := d.engine.Machine(m.ID)
		if known.Pool == m.Pool && m.Replica != d.opt.Replica && m.HeardAt.After(d.upkeep.gone[m.ID]) {
			elsewhere[m.ID] = true
		}
	}
	for _, id := range ids {
		m, known := d.engine.Machine(id)
		if d.streams[id] != nil || !known {
			continue // it is back
		}
		for _, ref := range d.strikeOff(now, id) {
			if elsewhere[id] {
				continue
			}
			const detail = "its machine is gone"
			d.outcomes.release(store.Release{Ref: ref, Lost: true, Detail: detail})
			tell(d.opt.Events.JobLost, JobLost{Ref: ref, Machine: id, Pool: m.Pool, Detail: detail})
		}
	}
}

// strikeOff forgets all of a machine, and returns the attempts that it had.
func (d *Dispatcher) strikeOff(now time.Time, id spillway.MachineID) []router.JobRef {
	delete(d.upkeep.gone, id)
	delete(d.upkeep.ended, id)
	delete(d.records.acked, id)
	held := d.engine.Forget(now, id)
	for _, ref := range held {
		delete(d.jobs, ref.ID)
		d.tunnels.endJob(ref.ID, errAttemptOver)
	}
	return held
}

// keepClaims renews the claims of machines that were heard lately, and puts back
// expired ones of whatever replica.
func (d *Dispatcher) keepClaims(now time.Time) time.Duration {
	u := &d.upkeep
	if !u.renewing && now.Sub(u.renewed) >= d.opt.RenewEvery {
		u.renewed = now
		d.renew(d.claimsHeld(now))
	}
	if !u.reaping && !u.renewing && !u.overdue && now.Sub(u.reaped) >= d.opt.ReapEvery {
		u.reaped, u.reaping = now, true
		d.beside(func(ctx context.Context) func(time.Time) {
			reaped, err := d.store.Reap(ctx, maxReaped)
			return func(time.Time) { d.reapedClaims(reaped, err) }
		})
	}
	rest := sweepEvery
	if !u.renewing {
		rest = min(rest, u.renewed.Add(d.opt.RenewEvery).Sub(now))
	}
	if !u.reaping && !u.renewing && !u.overdue {
		rest = min(rest, u.reaped.Add(d.opt.ReapEvery).Sub(now))
	}
	return rest
}

func (d *Dispatcher) reapedClaims(reaped []spillway.JobRecord, err error) {
	d.upkeep.reaping = false
	if err != nil {
		d.trouble("reap", err)
	}
	for i := range reaped {
		d.counts.due = true
		tell(d.opt.Events.JobLost, JobLost{Ref: refOfRecord(&reaped[i]), Detail: "its claim expired"})
		if reaped[i].Quarantined {
			tell(d.opt.Events.JobQuarantined, JobQuarantined{Ref: refOfRecord(&reaped[i]), Detail: reaped[i].Result.Detail})
		}
	}
}

// claimsHeld is every attempt that is to be kept: on a machine that was heard
// lately, or with a result that is about to be written.
func (d *Dispatcher) claimsHeld(now time.Time) []router.JobRef {
	refs := make([]router.JobRef, 0, len(d.jobs)+len(d.outcomes.finishing))
	for _, job := range d.jobs {
		_, on, ok := d.engine.Holder(job.ref.ID)
		if m, known := d.engine.Machine(on); ok && known && now.Sub(m.HeardAt) <= d.opt.SilentAfter {
			refs = append(refs, job.ref)
		}
	}
	for _, f := range d.outcomes.finishing {
		refs = append(refs, f.ref)
	}
	return refs
}

// renew extends claims in batches; one that is no longer held is ended where it
// runs.
func (d *Dispatcher) renew(refs []router.JobRef) {
	if len(refs) == 0 {
		d.upkeep.overdue = false // nothing of ours can have expired
		return
	}
	d.upkeep.renewing = true
	d.beside(func(ctx context.Context) func(time.Time) {
		var stale []router.JobRef
		var failure error
		for len(refs) > 0 && failure == nil {
			n := min(len(refs), renewBatch)
			var part []router.JobRef
			part, failure = d.store.Renew(ctx, refs[:n], d.opt.ClaimTTL)
			stale, refs = append(stale, part...), refs[n:]
		}
		return func(now time.Time) { d.renewedClaims(now, stale, failure) }
	})
}

func (d *Dispatcher) renewedClaims(now time.Time, stale []router.JobRef, err error) {
	d.upkeep.renewing, d.upkeep.overdue = false, err != nil
	d.noteRenewal(now, err)
	if err != nil {
		d.trouble("renew", err)
		d.upkeep.renewed = now.Add(retryMost - d.opt.RenewEvery) // again in a moment, not in a third of the ttl
	}
	for _, ref := range stale {
		if held, on, ok := d.engine.Holder(ref.ID); ok && held.Attempt == ref.Attempt {
			d.giveUp(now, held, on, "superseded")
		}
	}
}
