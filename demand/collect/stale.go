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

// lookAgain looks at the pending jobs of a list that have waited for long, those that
// were never looked at first, and returns how many are found to be over. Lists go on
// naming some jobs that will never run: deleted, canceled, or left behind by a pipeline
// that has ended.
func (l *lister) lookAgain(ctx context.Context, jobs []gitlab.Job) int {
	now := time.Now()
	var due []*gitlab.Job
	listed := map[JobKey]verdict{}
	for i := range jobs {
		j := &jobs[i]
		if state, _ := stateOf(j.Status); state != spillway.Pending || now.Sub(firstSet(j.QueuedAt, j.CreatedAt)) < l.g.o.StaleJob {
			continue
		}
		v, known := l.verdicts[l.key(j)]
		if known {
			listed[l.key(j)] = v
		}
		if !known || now.Sub(v.at) >= l.g.o.LookAgain {
			due = append(due, j)
		}
	}
	l.verdicts = listed // what no list names any more is forgotten
	slices.SortFunc(due, func(a, b *gitlab.Job) int {
		return cmp.Or(listed[l.key(a)].at.Compare(listed[l.key(b)].at), cmp.Compare(a.ID, b.ID))
	})
	found := 0
	for _, j := range due[:min(len(due), maxStaleLooks)] {
		over, why, err := l.lookAt(ctx, j)
		if err != nil {
			if ctx.Err() == nil {
				l.g.o.Events.trouble("looking at a job that has waited for long", err)
			}
			break // the others would fail as well, and each would cost a call
		}
		if over && !listed[l.key(j)].over {
			found++
			l.g.o.Events.stale(l.key(j), why)
		}
		l.verdicts[l.key(j)] = verdict{over: over, at: now}
	}
	return found
}

func (l *lister) key(j *gitlab.Job) JobKey { return JobKey{Origin: l.g.o.URL, ID: jobID(j.ID)} }

// lookAt reports whether a pending job of a list is over, and why.
func (l *lister) lookAt(ctx context.Context, j *gitlab.Job) (over bool, why string, err error) {
	l.g.calls.Add(1)
	now, err := l.g.o.API.Job(ctx, j.Project.ID, j.ID)
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
	if id := cmp.Or(pipeline.ID, j.Pipeline.ID); id != 0 && !ended(pipeline.Status) {
		l.g.calls.Add(1)
		pipeline, err = l.g.o.API.Pipeline(ctx, j.Project.ID, id)
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
