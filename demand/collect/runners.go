package collect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
)

const (
	// maxRunnerLooks bounds the runners that are looked at after one list [runners]; each
	// costs two calls of the budget. Where there are more, they take turns.
	maxRunnerLooks = 10
	// runnerTimeout bounds one look [time].
	runnerTimeout = 30 * time.Second
)

// runnerNews is what a look at a runner found.
type runnerNews struct {
	id      int64
	at      time.Time
	runner  gitlab.Runner
	deleted bool
	err     error
}

// lookAtRunners looks at the pools' runners; false when ctx has ended.
func (l *lister) lookAtRunners(ctx context.Context) bool {
	runners := l.g.o.Runners
	for range min(len(runners), maxRunnerLooks) {
		id := runners[l.next%len(runners)]
		l.next++
		news := l.lookAtRunner(ctx, id)
		if !send(ctx, l.looks, news) {
			return false
		}
		var limited *gitlab.Limited
		if errors.As(news.err, &limited) {
			break
		}
	}
	return true
}

func (l *lister) lookAtRunner(ctx context.Context, id int64) runnerNews {
	ctx, cancel := context.WithTimeout(ctx, runnerTimeout)
	defer cancel()
	news := runnerNews{id: id, at: time.Now()}
	l.g.calls.Add(1)
	news.runner, news.err = l.g.o.API.Runner(ctx, id)
	if errors.Is(news.err, gitlab.ErrNotFound) {
		news.deleted, news.err = true, nil
	}
	return news
}

// look is what is known of a runner besides what it runs.
type look struct {
	at      time.Time // of the last good look; zero = there was none
	runner  gitlab.Runner
	deleted bool
	problem string
}

// take adds news to what is known. A look that failed changes nothing but the problem.
func (k look) take(n runnerNews) look {
	if n.err != nil {
		k.problem = sentence(n.err)
		return k
	}
	return look{at: n.at, runner: n.runner, deleted: n.deleted}
}

// state is the runner as the board shows it. Its age is that of the list that says what
// it runs, since that proves a machine idle or busy: whole, that list was of all that
// the runner may run.
func (t *tenure) state(id int64) RunnerState {
	k := t.looks[id]
	jobs, bySystem := t.book.Running(id)
	s := RunnerState{At: t.whole, Deleted: k.deleted, Problem: k.problem, Running: jobs, BySystem: bySystem}
	if k.at.IsZero() {
		if s.Problem == "" {
			s.Problem = "it has not been looked at yet"
		}
		return s
	}
	homeless, _ := t.book.Running(0) // jobs that run on nobody knows which runner may be this one's
	s.Whole = t.believed && homeless == 0 && (k.deleted || t.g.o.Covers(k.runner))
	if k.deleted {
		return s
	}
	s.Paused, s.Declares = k.runner.Paused, declares(t.g.o.URL, &k.runner)
	s.Systems = make([]string, 0, len(k.runner.Managers))
	for _, m := range k.runner.Managers {
		s.Systems = append(s.Systems, m.SystemID)
	}
	slices.Sort(s.Systems)
	return s
}
