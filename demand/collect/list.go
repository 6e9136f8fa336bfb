package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
)

const (
	// apiSource is the name of the view that lists make.
	apiSource = "api"
	// listTimeout bounds one list with all that is read for it [time]. It must be shorter
	// than DefaultRemember.
	listTimeout = 10 * time.Minute
	// leastGap is between the beginnings of two lists at least [time], and three times
	// what one takes, however many news there are.
	leastGap = time.Second
	// refusedGap is between two lists where GitLab refuses the token [time]: asking more
	// often gets an address blocked.
	refusedGap = time.Minute
)

// lister lists jobs and looks at runners, one call after the other. It belongs to one
// goroutine of a tenure.
type lister struct {
	g        *GitLab
	verdicts map[int64]verdict // by the job's id
	jobs     int               // of the last list
	next     int               // index into Runners of the one to be looked at next
	early    chan struct{}
	lists    chan listNews
	looks    chan runnerNews
}

// listNews is what came of a list.
type listNews struct {
	snapshot Snapshot
	jobs     int // of snapshot
	stale    int // jobs found to be over since the last news
	err      error
}

func newLister(g *GitLab) *lister {
	return &lister{
		g: g, verdicts: map[int64]verdict{}, early: make(chan struct{}, 1),
		lists: make(chan listNews), looks: make(chan runnerNews),
	}
}

// soon asks for a list before its time.
func (l *lister) soon() {
	select {
	case l.early <- struct{}{}:
	default:
	}
}

// run lists until ctx ends.
func (l *lister) run(ctx context.Context) {
	for {
		began := time.Now()
		news := l.list(ctx)
		if !send(ctx, l.lists, news) || !l.lookAtRunners(ctx) {
			return
		}
		if !l.pause(ctx, began, news.err) {
			return
		}
	}
}

func send[T any](ctx context.Context, c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits until the next list is due: for as long as GitLab asks, where it does.
func (l *lister) pause(ctx context.Context, began time.Time, err error) bool {
	gap := l.g.o.Every
	least := min(gap, max(leastGap, 3*time.Since(began)))
	var limited *gitlab.Limited
	switch {
	case errors.As(err, &limited):
		gap = max(gap, time.Since(began)+limited.RetryAfter)
		least = gap
	case errors.Is(err, gitlab.ErrUnauthorized), errors.Is(err, gitlab.ErrForbidden):
		gap = max(gap, refusedGap)
		least = gap
	}
	if !sleep(ctx, least-time.Since(began)) {
		return false
	}
	timer := time.NewTimer(gap - time.Since(began))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.early:
	case <-timer.C:
	}
	return true
}

// list asks for every job that waits or runs.
func (l *lister) list(ctx context.Context) listNews {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	busy := l.busy(ctx)
	read := newListing(l, l.jobs+l.jobs/8) // lists are as long as the one before, or a little longer
	if err := read.read(ctx); err != nil {
		return listNews{err: err}
	}
	stale := l.lookAgain(ctx, &read.old)
	read.drop(l.verdicts)
	l.jobs = len(read.jobs)
	snap := Snapshot{Source: apiSource, Began: read.began, Ended: time.Now(), Jobs: read.sightings()}
	if busy > 0 && read.running == 0 {
		if still := l.busy(ctx); still > 0 {
			snap.Partial = true
			snap.Why = fmt.Sprintf("GitLab lists no running job, while the machines say that %d run", still)
		}
	}
	return listNews{snapshot: snap, jobs: l.jobs, stale: stale}
}

// busy is the jobs that run by others' word, 0 where nobody knows.
func (l *lister) busy(ctx context.Context) int {
	if l.g.o.Busy == nil || l.g.o.Scope.Kind != gitlab.Instance {
		return 0
	}
	jobs, err := l.g.o.Busy(ctx)
	if err != nil {
		l.g.o.Events.trouble("counting the jobs that run by the machines' word", err)
		return 0
	}
	return jobs
}

// ancestors reads the groups of a project. Most answers come from the client's memory.
func (g *GitLab) ancestors(ctx context.Context, project int64) ([]int64, error) {
	groups, err := g.o.API.Ancestors(ctx, project)
	if err != nil && ctx.Err() == nil {
		g.o.Events.trouble("reading the groups of a project", err)
	}
	return groups, err
}
