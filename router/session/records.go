package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// records is what the other replicas, and the scaler, are to be told of our
// machines. A machine's record is written as a whole, so it is enough to remember
// whose is out of date. What an order waits for (an acknowledgement, the first
// heartbeat after it, a new or a lost stream) goes out within RecordsDelay; what
// changes with each job is written at most once in RecordsEvery, or a busy fleet
// would spend its time on that.
type records struct {
	now   map[spillway.MachineID]struct{} // out of date, urgent
	soon  map[spillway.MachineID]struct{} // out of date, not urgent
	acked map[spillway.MachineID]struct{} // acknowledged a drain, no heartbeat since
	news  bool                            // soon has more than that machines were heard

	urgentSince time.Time // of the oldest in now; zero = none
	soonSince   time.Time // of the oldest in soon
	writtenAt   time.Time // when soon was last written
	writing     bool
	retry       retry
}

func (r *records) init() {
	r.now = make(map[spillway.MachineID]struct{})
	r.soon = make(map[spillway.MachineID]struct{})
	r.acked = make(map[spillway.MachineID]struct{})
}

// urgent: somebody waits for this change.
func (r *records) urgent(id spillway.MachineID) { r.now[id] = struct{}{} }

// changed: a job came or went. A machine that drains is watched by the scaler.
func (r *records) changed(id spillway.MachineID) {
	if _, acked := r.acked[id]; acked {
		r.urgent(id)
		return
	}
	r.soon[id], r.news = struct{}{}, true
}

// heartbeat: the first one after an acknowledged drain proves that it is obeyed. news is
// whether it says more than that the machine is there.
func (r *records) heartbeat(id spillway.MachineID, draining, news bool) {
	if draining {
		r.acked[id] = struct{}{}
		r.urgent(id)
		return
	}
	delete(r.acked, id)
	r.soon[id] = struct{}{}
	r.news = r.news || news
}

// due returns how long the next write has to wait.
func (r *records) due(now time.Time, opt *Options) time.Duration {
	since := func(at *time.Time, n int) {
		if n == 0 {
			*at = time.Time{}
		} else if at.IsZero() {
			*at = now
		}
	}
	since(&r.urgentSince, len(r.now))
	since(&r.soonSince, len(r.soon))
	rest := sweepEvery
	if !r.urgentSince.IsZero() {
		rest = min(rest, r.urgentSince.Add(opt.RecordsDelay).Sub(now))
	}
	if !r.soonSince.IsZero() {
		at := r.soonSince.Add(opt.RecordsDelay)
		if paced := r.writtenAt.Add(opt.RecordsEvery); paced.After(at) {
			at = paced
		}
		rest = min(rest, at.Sub(now))
	}
	return max(rest, r.retry.rest(now))
}

// writeRecords writes what is due, one call at a time.
func (d *Dispatcher) writeRecords(now time.Time) time.Duration {
	r := &d.records
	if r.writing {
		return sweepEvery
	}
	if rest := r.due(now, &d.opt); rest > 0 || len(r.now)+len(r.soon) == 0 {
		return max(rest, time.Millisecond)
	}
	put, news := d.takeRecords(now)
	if len(put) == 0 {
		return sweepEvery
	}
	r.writing = true
	d.beside(func(ctx context.Context) func(time.Time) {
		err := d.store.PutMachines(context.WithoutCancel(ctx), put)
		return func(now time.Time) { d.recordsWritten(now, put, news, err) }
	})
	return sweepEvery
}

// takeRecords returns the machines that are out of date, as they are now: what is
// not urgent goes along when it is its turn. news is whether they have changed.
func (d *Dispatcher) takeRecords(now time.Time) (put []router.Machine, news bool) {
	r := &d.records
	news = len(r.now) > 0
	take := func(ids map[spillway.MachineID]struct{}, put []router.Machine) []router.Machine {
		for id := range ids {
			if m, ok := d.engine.Machine(id); ok {
				put = append(put, m)
			}
		}
		clear(ids)
		return put
	}
	for id := range r.now {
		delete(r.soon, id)
	}
	put = take(r.now, make([]router.Machine, 0, len(r.now)+len(r.soon)))
	if now.Sub(r.writtenAt) >= d.opt.RecordsEvery {
		put = take(r.soon, put)
		news, r.news = news || r.news, false
		r.writtenAt = now
		r.soonSince = time.Time{}
	}
	r.urgentSince = time.Time{}
	return put, news
}

// recordsWritten queues again what failed.
func (d *Dispatcher) recordsWritten(now time.Time, put []router.Machine, news bool, err error) {
	r := &d.records
	r.writing = false
	r.retry.note(now, err)
	if err == nil {
		tell(d.opt.Events.RecordsWritten, RecordsWritten{Machines: len(put), News: news})
		return
	}
	d.trouble("write machines", err)
	for i := range put {
		if _, known := d.engine.Machine(put[i].ID); known {
			r.urgent(put[i].ID)
		}
	}
}
