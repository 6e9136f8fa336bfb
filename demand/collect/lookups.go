package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

const (
	// maxQuestions bounds the jobs that wait to be asked about [jobs]. Beyond that a list
	// costs fewer calls.
	maxQuestions = 32
	// askers is how many are asked about at a time [jobs].
	askers = 4
	// askTimeout bounds one question [time].
	askTimeout = 30 * time.Second
)

// lookups asks GitLab what single jobs need. ask and done are its owner's.
type lookups struct {
	g         *GitLab
	asked     map[JobKey]bool // and not answered
	questions chan question
	answers   chan answer
}

type question struct {
	key         JobKey
	project, id int64
}

// answer is what GitLab says of a job that was asked about.
type answer struct {
	key JobKey
	job Sighting
	err error
}

func newLookups(g *GitLab) *lookups {
	return &lookups{
		g: g, asked: map[JobKey]bool{},
		questions: make(chan question, maxQuestions), answers: make(chan answer),
	}
}

// ask has a job asked about, once at a time. It reports false when too many are.
func (l *lookups) ask(s Sighting) bool {
	id, numeric := s.Job.ID.Numeric()
	if !numeric || s.Project <= 0 {
		return false // a list may know it
	}
	if l.asked[s.Job] {
		return true
	}
	select {
	case l.questions <- question{key: s.Job, project: s.Project, id: id}:
		l.asked[s.Job] = true
		return true
	default:
		return false
	}
}

func (l *lookups) done(a answer) { delete(l.asked, a.key) }

// start answers questions until ctx ends.
func (l *lookups) start(ctx context.Context, wg *sync.WaitGroup) {
	for range askers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case q := <-l.questions:
					if !send(ctx, l.answers, l.answer(ctx, q)) {
						return
					}
				}
			}
		})
	}
}

// answer reads one job. What it says was true when it was asked, at the earliest.
func (l *lookups) answer(ctx context.Context, q question) answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a := answer{key: q.key, job: Sighting{Job: q.key, State: spillway.Canceled, Project: q.project, At: time.Now()}}
	l.g.calls.Add(1)
	j, err := l.g.o.API.Job(ctx, q.project, q.id)
	switch {
	case errors.Is(err, gitlab.ErrNotFound):
		return a // deleted, or not for our eyes: nothing that we could count
	case err != nil:
		a.err = err
		return a
	}
	state, ok := stateOf(j.Status)
	if !ok {
		return a // it doesn't wait for a runner
	}
	a.job.State, a.job.Runner, a.job.System = state, j.RunnerID, j.SystemID
	a.job.Since = firstSet(j.QueuedAt, j.CreatedAt)
	if state != spillway.Pending {
		return a
	}
	var groups []int64
	if l.g.needs.byGroup(&j) {
		if groups, a.err = l.g.ancestors(ctx, q.project); a.err != nil {
			return a
		}
	}
	if a.job.Requirement, ok = l.g.needs.of(&j, groups); !ok {
		a.job.State = spillway.Canceled // no runner can take it
	}
	return a
}
