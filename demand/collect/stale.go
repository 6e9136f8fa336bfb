package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// maxStaleLooks bounds the pending jobs that are looked at by themselves for one list
// [jobs]. Each costs a call or two of the budget; a thousand phantoms are found out in
// minutes, and counted until then.
const maxStaleLooks = 20

// verdict is what a look at one old pending job found.
type verdict struct {
	over bool
	at   time.Time
}

// oldJobs are the pending jobs of a list that have waited for long.
type oldJobs struct {
	verdicts map[int64]verdict // of those that were looked at for earlier lists
	due      []oldJob          // at most maxStaleLooks to be looked at, the first ones first
}

// oldJob is one that is to be looked at.
type oldJob struct {
	id, project, pipeline int64
	looked                time.Time // zero = never
}

// note takes a pending job in if it has waited for long at now.
func (o *oldJobs) note(l *lister, j *gitlab.Job, now time.Time) {
	if now.Sub(firstSet(j.QueuedAt, j.CreatedAt)) < l.g.o.StaleJob {
		return
	}
	v, known := l.verdicts[j.ID]
	if known {
		o.verdicts[j.ID] = v
		if now.Sub(v.at) < l.g.o.LookAgain {
			return
		}
	}
	due := oldJob{id: j.ID, project: j.Project.ID, pipeline: j.Pipeline.ID, looked: v.at}
	if len(o.due) == maxStaleLooks && compareDue(due, o.due[maxStaleLooks-1]) >= 0 {
		return
	}
	at, again := slices.BinarySearchFunc(o.due, due, compareDue)
	if again { // a list that changes while it is read may name a job twice
		return
	}
	o.due = slices.Insert(o.due, at, due)
	o.due = o.due[:min(len(o.due), maxStaleLooks)]
}

// compareDue puts those that were never looked at first.
func compareDue(a, b oldJob) int {
	return cmp.Or(a.looked.Compare(b.looked), cmp.Compare(a.id, b.id))
}

// lookAgain looks at the jobs of a list that are due, and returns how many are found to be
// over. Lists go on naming some jobs that will never run: deleted, canceled, or left
// behind by a pipeline that has ended.
func (l *lister) lookAgain(ctx context.Context, old *oldJobs) int {
	l.verdicts = old.verdicts // what no list names any more is forgotten
	now := time.Now()
	found := 0
	for _, j := range old.due {
		before := l.verdicts[j.id].over
		over, why, err := l.lookAt(ctx, j)
		if err != nil {
			if ctx.Err() == nil {
				l.g.o.Events.trouble("looking at a job that has waited for long", err)
				l.verdicts[j.id] = verdict{over: before, at: now} // it may be about this one only: the others come first next time
			}
			break // they may fail as well, and each would cost a call
		}
		if over && !before {
			found++
			l.g.o.Events.stale(JobKey{Origin: l.g.o.URL, ID: jobID(j.id)}, why)
		}
		l.verdicts[j.id] = verdict{over: over, at: now}
	}
	return found
}

// lookAt reports whether a pending job of a list is over, and why.
func (l *lister) lookAt(ctx context.Context, j oldJob) (over bool, why string, err error) {
	l.g.calls.Add(1)
	now, err := l.g.o.API.Job(ctx, j.project, j.id)
	switch {
	case errors.Is(err, gitlab.ErrNotFound):
		return true, "GitLab knows no such job", nil
	case err != nil:
		return false, "", err
	}
	if state, ok := stateOf(now.Status); !ok || state.Terminal() {
		return true, "it is " + now.Status, nil
	} else if state != spillway.Pending {
		return false, "", nil
	}
	pipeline := now.Pipeline
	if id := cmp.Or(pipeline.ID, j.pipeline); id != 0 && !ended(pipeline.Status) {
		l.g.calls.Add(1)
		pipeline, err = l.g.o.API.Pipeline(ctx, j.project, id)
		switch {
		case errors.Is(err, gitlab.ErrNotFound):
			return true, "GitLab knows no pipeline of it", nil
		case err != nil:
			return false, "", err
		}
	}
	if ended(pipeline.Status) {
		return true, fmt.Sprintf("its pipeline is %s", pipeline.Status), nil
	}
	return false, "", nil
}

// ended reports whether a pipeline with that status starts no job any more.
func ended(status string) bool {
	switch status {
	case gitlab.StatusSuccess, gitlab.StatusFailed, gitlab.StatusCanceled, gitlab.StatusSkipped:
		return true
	default:
		return false
	}
}
