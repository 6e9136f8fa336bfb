package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	"github.com/spillway-ci/spillway/store"
)

// The kinds of settings that a Receiver's book is kept in.
const (
	inKind   = "cells-in"   // the attempts that this cell has, by their local ids
	linkKind = "cells-link" // which replica answers for an origin, by origin
)

// endReason is what a machine is told of a job that has to end.
const endReason = cells.EndedOnMachine + "its cell does not hold it any more"

// pushRetry is the wait before a push of which nothing is known is repeated.
const pushRetry = 500 * time.Millisecond

// inEntry is an attempt in the stored book.
type inEntry struct {
	Origin  string         `json:"origin"`
	ID      spillway.JobID `json:"id"`
	Attempt int            `json:"attempt"`
}

// answering says which replica answers for an origin.
type answering struct {
	Replica string `json:"replica"`
	Epoch   uint64 `json:"epoch"` // of the origin's link
	Count   uint64 `json:"count"` // grows for as long as the replica lives
}

// otherReplica is what is known of an origin that another replica answers for.
type otherReplica struct {
	answering
	changedAt time.Time // when that was last seen to change
	jobs      int
}

// claimTries bounds how often it is tried to answer for an origin when other replicas
// write at the same moment [tries].
const claimTries = 5

// claimOrigin has this replica answer for an origin, unless the origin has a newer link. It
// returns the attempts that the cell has of it.
func (r *Receiver) claimOrigin(ctx context.Context, origin string, epoch uint64) ([]cells.Ref, error) {
	for range claimTries {
		records, err := r.store.Settings(ctx, linkKind)
		if err != nil {
			r.trouble("read who answers for cells", err)
			return nil, errNoStore
		}
		var known answering
		if data, ok := records[origin]; ok && json.Unmarshal(data, &known) == nil && known.Epoch > epoch {
			return nil, errNewerLink
		}
		ours, err := r.putAnswering(ctx, origin, records[origin], answering{r.opt.Replica, epoch, known.Count + 1})
		if err != nil {
			return nil, errNoStore
		}
		if !ours {
			continue // another replica has written since: it may have a newer link
		}
		jobs, err := r.readJobs(ctx)
		if err != nil {
			return nil, errNoStore
		}
		return jobs[origin], nil
	}
	return nil, errBusy
}

var (
	errNoStore = status.Error(codes.Unavailable, "the store of this cell can't be reached now: try again")
	errBusy    = status.Error(codes.Unavailable, "other control planes of this cell answer for the origin just now: try again")
)

// putAnswering says who answers for an origin, if nobody has said anything else since it
// was read: what was true then would hide a newer link, or a replica that has taken over.
func (r *Receiver) putAnswering(ctx context.Context, origin string, was []byte, a answering) (ours bool, err error) {
	data, err := json.Marshal(a)
	if err == nil {
		ours, err = r.store.SwapSetting(ctx, linkKind, origin, was, data)
	}
	if err != nil {
		r.trouble("say who answers for cell "+origin, err)
	}
	return ours, err
}

// readJobs reads the stored book, by origin.
func (r *Receiver) readJobs(ctx context.Context) (map[string][]cells.Ref, error) {
	raw, err := r.store.Settings(ctx, inKind)
	if err != nil {
		r.trouble("read the book of handed-over jobs", err)
		return nil, err
	}
	jobs := map[string][]cells.Ref{}
	for _, data := range raw {
		var e inEntry
		if json.Unmarshal(data, &e) == nil && e.Attempt > 0 {
			jobs[e.Origin] = append(jobs[e.Origin], cells.Ref{ID: e.ID, Attempt: e.Attempt})
		}
	}
	return jobs, nil
}

// inherit has this replica answer for attempts that the stored book has.
func (r *Receiver) inherit(o *inOrigin, refs []cells.Ref) {
	o.book.Inherit(time.Now(), refs)
	for _, ref := range refs {
		r.job(o, ref)
	}
}

// readBook reads the stored book again, and says that this replica lives.
func (r *Receiver) readBook(now time.Time) {
	every := bookEvery
	for _, o := range r.origins {
		if o.beatEvery > 0 { // who answers for an origin is known before a lease is over
			every = min(every, o.beatEvery)
		}
	}
	if r.reading || now.Sub(r.readAt) < every {
		return
	}
	r.reading, r.readAt = true, now
	mine := map[string]uint64{}
	for name, o := range r.origins {
		mine[name] = o.epoch
	}
	r.beside(func(ctx context.Context) func() {
		records, jobs, err := r.readAnswering(ctx, mine)
		return func() {
			r.reading = false
			if err == nil {
				r.sortOrigins(time.Now(), records, jobs)
			}
		}
	})
}

// readAnswering reads who answers for which origin, and what the cell has of it. Where it
// is this replica, it says so again.
func (r *Receiver) readAnswering(ctx context.Context, mine map[string]uint64) (map[string]answering, map[string][]cells.Ref, error) {
	raw, err := r.store.Settings(ctx, linkKind)
	if err != nil {
		r.trouble("read who answers for cells", err)
		return nil, nil, err
	}
	records := map[string]answering{}
	for origin, data := range raw {
		var a answering
		if json.Unmarshal(data, &a) != nil {
			continue
		}
		if epoch, here := mine[origin]; here && a.Replica == r.opt.Replica && a.Epoch <= epoch {
			a.Count++
			ours, err := r.putAnswering(ctx, origin, data, a)
			if err != nil {
				return nil, nil, err
			}
			if !ours {
				continue // what is true now, the next reading finds
			}
		}
		records[origin] = a
	}
	jobs, err := r.readJobs(ctx)
	return records, jobs, err
}

// sortOrigins takes over what nobody answers for, lets go of what another replica answers
// for, and learns of jobs that another replica has taken meanwhile.
func (r *Receiver) sortOrigins(now time.Time, records map[string]answering, jobs map[string][]cells.Ref) {
	for name, a := range records {
		o := r.origins[name]
		if a.Replica == r.opt.Replica {
			if o == nil {
				o = r.newOrigin(name) // from an earlier life
				o.epoch = a.Epoch
			}
			delete(r.others, name)
			r.inherit(o, jobs[name])
			continue
		}
		if o != nil && o.link != nil && o.epoch >= a.Epoch {
			continue // the record is about to be ours
		}
		if o != nil {
			r.letGo(o)
		}
		other := r.others[name]
		if other.answering != a {
			other.answering, other.changedAt = a, now
		}
		other.jobs = len(jobs[name])
		r.others[name] = other
		if now.Sub(other.changedAt) > replicaGone && len(jobs[name]) > 0 {
			r.takeOver(name, a.Epoch)
		}
	}
}

// letGo leaves an origin to the replica that answers for it.
func (r *Receiver) letGo(o *inOrigin) {
	o.hangUp(errNewerLink)
	for _, j := range o.jobs {
		r.drop(j)
	}
	delete(r.origins, o.name)
}

// takeOver has this replica answer for an origin whose replica is gone.
func (r *Receiver) takeOver(name string, epoch uint64) {
	delete(r.others, name)
	r.beside(func(ctx context.Context) func() {
		refs, err := r.claimOrigin(ctx, name, epoch)
		if err != nil {
			return nil // and look again
		}
		return func() {
			if r.origins[name] == nil {
				o := r.newOrigin(name)
				o.epoch = epoch
				r.inherit(o, refs)
			}
		}
	})
}

// spilled takes in an attempt that is handed over.
func (r *Receiver) spilled(o *inOrigin, m *cellsv1.Spill) {
	ref := refOf(m.GetJob().GetId(), m.GetAttempt())
	job := jobOf(m.GetJob(), o.name, ref)
	if err := job.Validate(); err != nil {
		r.notTaken(o, ref, cells.WordDenied, err.Error())
		return
	}
	if m.GetJob().GetRequirement().GetOrigin() != "" {
		r.notTaken(o, ref, cells.WordDenied, "it is not the origin's own: a job is handed over once")
		return
	}
	switch o.book.Spill(time.Now(), ref, m.GetBeat()) {
	case cells.Push:
		r.push(r.job(o, ref), job)
	case cells.TooLate:
		r.notTaken(o, ref, cells.WordRefused, "it came too late")
	case cells.TooMany:
		r.notTaken(o, ref, cells.WordRefused, "this cell has enough jobs of this origin")
	case cells.Again: // it has been reported
	}
}

func (r *Receiver) notTaken(o *inOrigin, ref cells.Ref, word cells.Word, why string) {
	tell(r.opt.Events.JobTaken, JobTaken{Origin: o.name, Ref: ref, Why: why})
	if o.link != nil {
		o.link.say(&cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Report{Report: report(ref, word, why)}})
	}
}

// push writes the attempt into the stored book, and then the job into the queue.
func (r *Receiver) push(j *inJob, job spillway.Job) {
	origin, ref := j.origin, j.ref
	r.beside(func(ctx context.Context) func() {
		taken, why := r.pushUntilKnown(ctx, origin.name, ref, job)
		return func() {
			if r.origins[origin.name] != origin {
				return // another replica answers for it, and finds it in the book
			}
			if !taken {
				origin.book.Pushed(time.Now(), ref, false)
				r.drop(j)
				r.forgetStored(j.local)
				r.notTaken(origin, ref, cells.WordRefused, why)
				return
			}
			if !origin.book.Pushed(time.Now(), ref, true) && origin.book.Seen(ref, cells.WordTaken) {
				r.report(j, report(ref, cells.WordTaken, ""))
			}
			tell(r.opt.Events.JobTaken, JobTaken{Origin: origin.name, Ref: ref})
			r.lookedAt = time.Time{}
		}
	})
}

// pushUntilKnown pushes the job until it is known to be in the queue, or not to be. A push
// of which nothing is known may have been done.
func (r *Receiver) pushUntilKnown(ctx context.Context, origin string, ref cells.Ref, job spillway.Job) (taken bool, why string) {
	data, err := json.Marshal(inEntry{origin, ref.ID, ref.Attempt})
	if err == nil {
		err = r.store.PutSetting(ctx, inKind, string(job.ID), data)
	}
	if err != nil {
		r.trouble("keep job "+ref.String()+" of cell "+origin, err)
		return false, "the store of this cell can't be reached"
	}
	for ctx.Err() == nil {
		outcomes, err := r.store.Push(ctx, []spillway.Job{job})
		switch {
		case err == nil && (outcomes[0] == store.Accepted || outcomes[0] == store.Duplicate):
			return true, ""
		case err == nil && outcomes[0] == store.Full:
			return false, "the queue of this cell is full"
		case err == nil:
			return false, "another job has its id in this cell"
		case errors.Is(err, store.ErrUnavailable):
			r.trouble("push job "+ref.String()+" of cell "+origin, err)
			return false, "the store of this cell can't be reached"
		}
		r.trouble("push job "+ref.String()+" of cell "+origin, err)
		select {
		case <-ctx.Done():
		case <-time.After(pushRetry):
		}
	}
	return true, "" // as far as anybody knows
}

func (r *Receiver) forgetStored(local spillway.JobID) {
	r.beside(func(ctx context.Context) func() {
		if _, err := r.store.DropSetting(context.WithoutCancel(ctx), inKind, string(local)); err != nil {
			r.trouble("forget job "+string(local), err)
		}
		return nil
	})
}

// confirmed forgets an attempt whose end the origin knows.
func (r *Receiver) confirmed(o *inOrigin, ref cells.Ref) {
	if !o.book.Confirmed(ref) {
		return
	}
	if j := o.jobs[ref]; j != nil {
		r.drop(j)
		r.forgetStored(j.local)
	}
}

// order tells every replica, this one first, to end jobs on their machines.
func (r *Receiver) order(ids []spillway.JobID) {
	for len(ids) > 0 {
		n := min(len(ids), maxEndIDs)
		batch := ids[:n]
		ids = ids[n:]
		text := make([]string, n)
		for i, id := range batch {
			text[i] = string(id)
		}
		r.beside(func(ctx context.Context) func() {
			r.opt.EndJobs(ctx, batch, endReason)
			if err := r.store.PublishFact(ctx, endTopic, []byte(strings.Join(text, "\n"))); err != nil {
				r.trouble("tell other replicas to end jobs", err)
			}
			return nil
		})
	}
}
