package sim

import (
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/store"
)

// look reads the records of jobs that have not ended.
func (in *inCells) look() {
	w := in.world
	if w.now.Sub(in.lookedAt) < lookEvery {
		return
	}
	in.lookedAt = w.now
	for _, name := range sortedKeys(in.origins) {
		o := in.origins[name]
		for _, ref := range sortedRefs(o.jobs) {
			if j := o.jobs[ref]; j.last == nil {
				rec, err := w.store.Job(j.local)
				switch {
				case errors.Is(err, store.ErrUnknownJob):
					in.missing(j)
				case err == nil:
					in.seen(j, &rec)
				}
			}
		}
	}
}

// seen takes in the record of a job.
func (in *inCells) seen(j *inJob, rec *spillway.JobRecord) {
	w, book := in.world, j.origin.book
	j.missingAt = time.Time{}
	f := cells.Judge(rec, w.timing().EndWithin)
	if f.Unsure > 0 {
		if j.unsureAt.IsZero() {
			j.unsureAt = w.now
		}
		if w.now.Sub(j.unsureAt) < f.Unsure {
			return
		}
	}
	if f.Queued && (j.back || book.Ends(j.ref)) {
		if _, err := w.store.Cancel(j.local); err == nil {
			in.lookedAt = time.Time{}
			w.queueChanged()
		}
		return
	}
	if f.OnHand && f.Word == cells.WordRunning {
		j.back = false
	}
	if book.Seen(j.ref, f.Word) {
		in.report(j, inReport{f.Word, rec.Result, f.Detail})
	}
}

func (in *inCells) report(j *inJob, r inReport) {
	if r.word >= cells.WordEnded {
		j.last = &r
	}
	in.tell(j.origin, j.ref, r)
}

// missing gives up a job that is not found, long after it was pushed.
func (in *inCells) missing(j *inJob) {
	w := in.world
	if j.missingAt.IsZero() {
		j.missingAt = w.now
	}
	if w.now.Sub(j.missingAt) >= max(missingFor, w.timing().EndWithin) && j.origin.book.Seen(j.ref, cells.WordLost) {
		w.rec.gone(j.local)
		in.report(j, inReport{word: cells.WordLost, detail: "the queue of this cell knows nothing of it any more"})
	}
}
