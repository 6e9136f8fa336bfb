package collect

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// listing is a list that is being read: of each page what counts is noted, and the rest
// of it dropped before the next page comes. Nothing that outlives the list is changed by
// it until the list has come whole.
type listing struct {
	l       *lister
	began   time.Time
	jobs    []listedJob
	running int // of jobs
	groups  ancestry
	old     oldJobs
}

// listedJob is what a list says of a job that waits or runs.
type listedJob struct {
	id    int64
	need  *spillway.Requirement // nil = not known; shared between jobs
	place *place                // nil for one that waits
	since instant
}

// newListing begins a list that is likely to have so many jobs.
func newListing(l *lister, jobs int) *listing {
	return &listing{
		l: l, began: time.Now(), jobs: make([]listedJob, 0, jobs), groups: ancestry{l: l},
		old: oldJobs{verdicts: map[int64]verdict{}},
	}
}

// read reads the list to its end. After an error nothing of it may be used.
func (r *listing) read(ctx context.Context) error {
	g := r.l.g
	g.calls.Add(1)
	for j, err := range g.o.API.Jobs(ctx, g.o.Scope, gitlab.StatusPending, gitlab.StatusRunning) {
		if err != nil {
			return err
		}
		r.note(ctx, &j)
	}
	return nil
}

// note takes one job in. One that doesn't count, such as one that no runner at all can
// take, is left out.
func (r *listing) note(ctx context.Context, j *gitlab.Job) {
	state, _ := stateOf(j.Status)
	noted := listedJob{id: j.ID, since: instantOf(firstSet(j.QueuedAt, j.CreatedAt))}
	switch state {
	case spillway.Running:
		noted.place = &place{runner: j.RunnerID, system: j.SystemID}
		r.running++
	case spillway.Pending:
		r.old.note(r.l, j, r.began)
		var ok bool
		if noted.need, ok = r.needOf(ctx, j); !ok {
			return
		}
	default:
		return // it was not asked for
	}
	r.jobs = append(r.jobs, noted)
}

// needOf is what a job needs, nil where that can't be found out now: it counts where its
// need is known from before. ok is false for a job that no runner can take.
func (r *listing) needOf(ctx context.Context, j *gitlab.Job) (need *spillway.Requirement, ok bool) {
	needs := r.l.g.needs
	var groups []int64
	if needs.byGroup(j) {
		if groups, ok = r.groups.of(ctx, j.Project.ID); !ok {
			return nil, true
		}
	}
	return needs.of(j, groups)
}

// drop leaves the jobs out that are over by a look at each.
func (r *listing) drop(verdicts map[int64]verdict) {
	if len(verdicts) == 0 {
		return
	}
	r.jobs = slices.DeleteFunc(r.jobs, func(j listedJob) bool { return j.place == nil && verdicts[j.id].over })
}

// sightings are the jobs as the book takes them in.
func (r *listing) sightings() iter.Seq[Sighting] {
	origin, jobs := r.l.g.o.URL, r.jobs // and nothing else of the list
	return func(yield func(Sighting) bool) {
		for i := range jobs {
			j := &jobs[i]
			s := Sighting{Job: JobKey{Origin: origin, ID: jobID(j.id)}, State: spillway.Pending, Requirement: j.need, Since: j.since.time()}
			if j.place != nil {
				s.State, s.Runner, s.System = spillway.Running, j.place.runner, j.place.system
			}
			if !yield(s) {
				return
			}
		}
	}
}

// ancestry asks for the groups of projects, each once. After the first failure it asks
// no more: the next would wait as long, and so would the list.
type ancestry struct {
	l      *lister
	groups map[int64][]int64
	failed bool
}

func (a *ancestry) of(ctx context.Context, project int64) ([]int64, bool) {
	if groups, known := a.groups[project]; known {
		return groups, true
	}
	if a.failed {
		return nil, false
	}
	groups, err := a.l.g.ancestors(ctx, project)
	if err != nil {
		a.failed = true
		return nil, false
	}
	if a.groups == nil {
		a.groups = map[int64][]int64{}
	}
	a.groups[project] = groups
	return groups, true
}
