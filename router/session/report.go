package session

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

// maxReported bounds the jobs that are followed for one push stream [jobs]; about 1 KiB
// for each that changes while the caller does not read.
const maxReported = 100_000

var errTooManyReported = status.Errorf(codes.ResourceExhausted, "more than %d jobs that have not ended are reported on this stream: open another one", maxReported)

// reporter tells a pusher what becomes of jobs, on its stream. It keeps the newest record
// of each job that has news, which has the last transitions along: a caller that reads
// slowly costs no more than one record for each job, and misses nothing that the job's
// history still has. What it did not hear of it reads from the store.
type reporter struct {
	changes *changes
	store   JobStore
	send    func(*jobsv1.PushResponse) error
	wake    chan struct{} // 1 slot

	mu struct {
		sync.Mutex
		followed map[spillway.JobID]*followed
		open     int                                    // of them, jobs that have not ended
		heard    map[spillway.JobID]*spillway.JobRecord // not told yet
		unread   []spillway.JobID                       // to be read from the store
		missed   bool                                   // all are to be read
		whenDone func()                                 // called once, when open is 0; nil = not asked for
	}
}

// followed is how far one job was told.
type followed struct {
	after int64
	read  bool // it has been read from the store
	ended bool
}

func newReporter(j *Jobs, send func(*jobsv1.PushResponse) error) (*reporter, error) {
	r := &reporter{changes: j.changes, store: j.store, send: send, wake: make(chan struct{}, 1)}
	r.mu.followed = make(map[spillway.JobID]*followed)
	r.mu.heard = make(map[spillway.JobID]*spillway.JobRecord)
	if err := r.changes.join(r); err != nil {
		return nil, err
	}
	return r, nil
}

// close ends what newReporter began.
func (r *reporter) close() {
	r.mu.Lock()
	ids := make([]spillway.JobID, 0, len(r.mu.followed))
	for id := range r.mu.followed {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	r.changes.leave(r, ids)
}

// follow reports jobs from a transition on; one that is followed goes on where it is.
func (r *reporter) follow(after map[spillway.JobID]int64) error {
	ids := make([]spillway.JobID, 0, len(after))
	r.mu.Lock()
	for id, sequence := range after {
		if r.mu.followed[id] == nil {
			r.mu.followed[id] = &followed{after: sequence}
			ids = append(ids, id)
		}
	}
	r.mu.open += len(ids)
	full := len(r.mu.followed) > maxReported
	r.mu.Unlock()
	if full {
		return errTooManyReported
	}
	r.changes.hear(r, ids) // before they are read, so that nothing falls in between
	r.mu.Lock()
	r.mu.unread = append(r.mu.unread, ids...)
	r.mu.Unlock()
	r.poke()
	return nil
}

// done calls f once, when each of the jobs has ended.
func (r *reporter) done(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.whenDone = f
	r.poke()
}

// offer implements listener.
func (r *reporter) offer(ch change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch.record == nil {
		r.mu.missed = true
	} else if f := r.mu.followed[ch.record.Job.ID]; f != nil && ch.record.Sequence() > f.after {
		if known := r.mu.heard[ch.record.Job.ID]; known == nil || known.Sequence() < ch.record.Sequence() {
			record := *ch.record // not the whole batch that it is part of
			record.Result.Output = nil
			r.mu.heard[record.Job.ID] = &record
		}
	}
	r.poke()
	return true
}

func (r *reporter) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run reports until ctx ends or the caller can't be told any more.
func (r *reporter) run(ctx context.Context) error {
	var pause retry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		}
		for _, record := range r.takeHeard() {
			if err := r.tell(record, false); err != nil {
				return err
			}
		}
		trouble, err := r.readSome(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if pause.note(now, trouble); trouble == nil {
			r.endIfDone()
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause.rest(now)):
			r.poke()
		}
	}
}

func (r *reporter) takeHeard() []*spillway.JobRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := make([]*spillway.JobRecord, 0, len(r.mu.heard))
	for id, record := range r.mu.heard {
		// The first of a job is what the store says: it tells where a resumed job is.
		if f := r.mu.followed[id]; f == nil || f.read {
			records = append(records, record)
			delete(r.mu.heard, id)
		}
	}
	return records
}

// readSome reads and tells jobs whose state is not known for sure, page by page. With
// trouble the store is to be asked again later; an error is the stream's.
func (r *reporter) readSome(ctx context.Context) (trouble, err error) {
	for {
		ids := r.takeUnread()
		if len(ids) == 0 {
			return nil, nil
		}
		records, trouble := r.store.GetMany(ctx, ids)
		if trouble != nil {
			r.putBack(ids)
			return trouble, nil
		}
		for i, record := range records {
			if record == nil {
				err = r.tellUnknown(ids[i])
			} else {
				err = r.tell(record, true)
			}
			if err != nil {
				return nil, err
			}
		}
		r.poke() // what was heard of them meanwhile
	}
}

func (r *reporter) takeUnread() []spillway.JobID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.missed {
		r.mu.missed, r.mu.unread = false, r.mu.unread[:0]
		for id := range r.mu.followed {
			r.mu.unread = append(r.mu.unread, id)
		}
	}
	n := min(len(r.mu.unread), MaxIDsPerCall)
	ids := r.mu.unread[:n:n]
	r.mu.unread = r.mu.unread[n:]
	return ids
}

func (r *reporter) putBack(ids []spillway.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.unread = append(ids, r.mu.unread...)
}

// tell reports a record's transitions after the last that was told. present: it was read
// from the store now, and is not a change that is told late.
func (r *reporter) tell(record *spillway.JobRecord, present bool) error {
	news, gap, over := r.advance(record, present)
	if len(news) > 0 {
		report := &jobsv1.JobReport{Transitions: transitionsToProto(news), Gap: gap}
		if record.State.Terminal() {
			report.Result = resultToProto(&record.Result)
			report.Result.Output = nil
		}
		if err := r.send(&jobsv1.PushResponse{JobId: string(record.Job.ID), Report: report}); err != nil {
			return err
		}
	}
	if over {
		r.forget(record.Job.ID)
	}
	return nil
}

// advance notes that a record is told. It returns what of it is new, and whether nothing
// can follow.
func (r *reporter) advance(record *spillway.JobRecord, present bool) (news []spillway.JobTransition, gap, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.mu.followed[record.Job.ID]
	if f == nil {
		return nil, false, false
	}
	now := record.Sequence()
	switch first := present && !f.read; {
	case now > f.after, first && now < f.after:
		news, gap = since(record, f.after)
	case now < f.after:
		return nil, false, false // an older one, told late
	}
	f.after, f.read = now, f.read || present
	if ended := record.State.Terminal(); ended != f.ended {
		if f.ended = ended; ended {
			r.mu.open--
		} else {
			r.mu.open++ // out of quarantine
		}
	}
	return news, gap, f.ended && !record.Quarantined
}

// forget ends following a job. It is unheard first: whoever has it followed again finds
// it followed until nothing tells of it any more.
func (r *reporter) forget(id spillway.JobID) {
	r.changes.unhear(r, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.followed, id)
	delete(r.mu.heard, id)
}

func (r *reporter) tellUnknown(id spillway.JobID) error {
	r.mu.Lock()
	f := r.mu.followed[id]
	known := f != nil && f.ended
	if f != nil && !f.ended {
		f.ended = true
		r.mu.open--
	}
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	r.forget(id)
	if known {
		return nil // its end was told, and it has been forgotten since
	}
	return r.send(&jobsv1.PushResponse{JobId: string(id), Report: &jobsv1.JobReport{Unknown: true}})
}

// endIfDone calls what done was given, once.
func (r *reporter) endIfDone() {
	r.mu.Lock()
	f := r.mu.whenDone
	if r.mu.open > 0 || len(r.mu.unread) > 0 || r.mu.missed {
		f = nil
	}
	r.mu.Unlock()
	if f != nil {
		f()
	}
}

// positions reads where somebody wants to go on.
func positions(list []*jobsv1.JobPosition) (map[spillway.JobID]int64, error) {
	if len(list) > MaxIDsPerCall {
		return nil, status.Errorf(codes.InvalidArgument, "%d positions of jobs, at most %d are allowed", len(list), MaxIDsPerCall)
	}
	after := make(map[spillway.JobID]int64, len(list))
	for _, p := range list {
		ids, err := jobIDs([]string{p.GetJobId()})
		if err != nil {
			return nil, err
		}
		if p.GetAfterSequence() < 0 {
			return nil, status.Errorf(codes.InvalidArgument, "after_sequence %d of job %s: 0 is before the first", p.GetAfterSequence(), p.GetJobId())
		}
		after[ids[0]] = p.GetAfterSequence()
	}
	return after, nil
}
