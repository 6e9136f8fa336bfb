package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/store"
)

// endWhatShall has machines end what is covered no more. It needs no store: machines of
// this replica hear of it in any case.
func (r *Receiver) endWhatShall(now time.Time) {
	var orders []spillway.JobID
	for _, o := range r.origins {
		_, toEnd := o.book.Open()
		for _, ref := range toEnd {
			j := r.job(o, ref)
			if now.Sub(j.orderedAt) >= orderEvery {
				j.orderedAt, r.lookedAt = now, time.Time{}
				orders = append(orders, j.local)
			}
		}
	}
	r.order(orders)
}

// look reads the records of jobs that have changed, and now and then all of them.
func (r *Receiver) look(now time.Time) {
	if r.looking || now.Sub(r.lookedAt) < lookEvery {
		return
	}
	var jobs []*inJob
	for _, j := range r.byLocal {
		if j.last == nil && len(jobs) < store.MaxPage {
			jobs = append(jobs, j)
		}
	}
	r.lookedAt = now
	if len(jobs) == 0 {
		return
	}
	r.looking = true
	ids := make([]spillway.JobID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.local
	}
	r.beside(func(ctx context.Context) func() {
		records, err := r.store.GetMany(ctx, ids)
		if err != nil {
			r.trouble("read handed-over jobs", err)
		}
		return func() {
			r.looking = false
			for i := range records {
				if r.byLocal[ids[i]] == jobs[i] {
					r.seen(time.Now(), jobs[i], records[i])
				}
			}
		}
	})
}

// seen takes in the record of a job; nil when there is none.
func (r *Receiver) seen(now time.Time, j *inJob, record *spillway.JobRecord) {
	book := j.origin.book
	if record == nil {
		r.missing(now, j)
		return
	}
	j.missingAt = time.Time{}
	f := cells.Judge(record, r.opt.EndWithin)
	if f.Unsure > 0 {
		if j.unsureAt.IsZero() {
			j.unsureAt = now
		}
		if now.Sub(j.unsureAt) < f.Unsure {
			return
		}
	}
	if f.Queued && (j.back || book.Ends(j.ref)) {
		r.takeOut(j)
		return
	}
	if f.OnHand && f.Word == cells.WordRunning {
		j.back = false
	}
	if !book.Seen(j.ref, f.Word) {
		return
	}
	m := report(j.ref, f.Word, f.Detail)
	if f.Word == cells.WordEnded {
		m.Result = resultToProto(&record.Result)
	}
	r.report(j, m)
}

// missing gives up a job that is not found: long after it was pushed it is no more, and
// whether it has run nobody knows.
func (r *Receiver) missing(now time.Time, j *inJob) {
	if j.missingAt.IsZero() {
		j.missingAt = now
	}
	if now.Sub(j.missingAt) >= max(missingFor, r.opt.EndWithin) && j.origin.book.Seen(j.ref, cells.WordLost) {
		r.report(j, report(j.ref, cells.WordLost, "the queue of this cell knows nothing of it any more"))
	}
}

// takeOut takes a job out of the queue. If a machine got it at that very moment its record
// tells.
func (r *Receiver) takeOut(j *inJob) {
	local := j.local
	r.beside(func(ctx context.Context) func() {
		if _, err := r.store.Cancel(ctx, []spillway.JobID{local}, "its cell takes it back"); err != nil {
			r.trouble("take job "+string(local)+" out of the queue", err)
			return nil
		}
		return func() { r.changed([]spillway.JobID{local}) }
	})
}
