package jobrouter

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// jobBody is a job as GitLab writes it, in an order and with blanks that no encoder of
// ours would write.
func jobBody(id int64) []byte {
	return fmt.Appendf(nil, `{ "token" : "%s-%d","id":%d, "job_info":{"project_id": 7,"queue_size":3,"time_in_queue_seconds":2},`+
		`"git_info":{"protected":true}, "runner_info":{"timeout":3600},"variables":[{"key":"K","value":"<&>"}],"steps":[{"script":["%s"]}] }`,
		jobSecret, id, id, scriptWords)
}

// fakeGitLab hands jobs out as GitLab does: in two phases, to one at a time.
type fakeGitLab struct {
	mu struct {
		sync.Mutex
		queue   []int64
		out     map[int64]time.Time // handed out and not acknowledged: since when it knows nothing
		running map[int64]bool
		asked   []asked
		kept    []int64
		failed  map[int64]string
		answer  func(asked) (gitlab.JobAnswer, error) // instead of the queue, if it returns a status or an error
		hold    chan struct{}                         // a question waits until it is closed
		keep    func(int64) error
		watch   func(asked) // sees each question
		version int
	}
}

type asked struct {
	at                  time.Time
	token, system, last string
	replica             string
	twoPhase            bool
	features            string
}

func newFakeGitLab() *fakeGitLab {
	g := &fakeGitLab{}
	g.mu.out, g.mu.running, g.mu.failed = map[int64]time.Time{}, map[int64]bool{}, map[int64]string{}
	return g
}

func (g *fakeGitLab) enqueue(ids ...int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.queue = append(g.mu.queue, ids...)
	g.mu.version++
}

func (g *fakeGitLab) answerWith(f func(asked) (gitlab.JobAnswer, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.answer = f
}

func (g *fakeGitLab) holdUntil(c chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.hold = c
}

func (g *fakeGitLab) keepWith(f func(int64) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.keep = f
}

func (g *fakeGitLab) questions() []asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.mu.asked)
}

func (g *fakeGitLab) keeps() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.mu.kept)
}

func (g *fakeGitLab) failure(id int64) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.failed[id]
}

func (g *fakeGitLab) RequestJob(ctx context.Context, body []byte, header http.Header) (gitlab.JobAnswer, error) {
	r, err := route.ParseRequest(body)
	if err != nil {
		return gitlab.JobAnswer{Status: http.StatusBadRequest}, nil
	}
	q := asked{
		at: time.Now(), token: header.Get("Runner-Token"), system: r.System, last: r.LastUpdate,
		replica: header.Get("X-Spillway-Replica"), twoPhase: r.TwoPhase, features: string(r.Features),
	}
	g.mu.Lock()
	g.mu.asked = append(g.mu.asked, q)
	answer, hold, watch := g.mu.answer, g.mu.hold, g.mu.watch
	g.mu.Unlock()
	if watch != nil {
		watch(q)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return gitlab.JobAnswer{}, fmt.Errorf("%w: %w", gitlab.ErrUnavailable, ctx.Err())
		}
	}
	if answer != nil {
		if a, err := answer(q); a.Status != 0 || err != nil {
			return a, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.queue) == 0 {
		return gitlab.JobAnswer{Status: http.StatusNoContent, LastUpdate: "v" + strconv.Itoa(g.mu.version)}, nil
	}
	id := g.mu.queue[0]
	g.mu.queue = g.mu.queue[1:]
	if q.twoPhase {
		g.mu.out[id] = time.Now()
	} else {
		g.mu.running[id] = true
	}
	return gitlab.JobAnswer{Status: http.StatusCreated, Body: jobBody(id), RequestID: "correlation-" + strconv.FormatInt(id, 10)}, nil
}

func (g *fakeGitLab) KeepPending(_ context.Context, id int64, token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.kept = append(g.mu.kept, id)
	if g.mu.keep != nil {
		if err := g.mu.keep(id); err != nil {
			return err
		}
	}
	since, ok := g.mu.out[id]
	switch {
	case token != fmt.Sprintf("%s-%d", jobSecret, id):
		return gitlab.ErrForbidden
	case !ok || time.Since(since) > ackWithin:
		return gitlab.ErrConflict
	}
	g.mu.out[id] = time.Now()
	return nil
}

func (g *fakeGitLab) FailJob(_ context.Context, id int64, _, reason, trace string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.running[id] && g.mu.out[id].IsZero() {
		return gitlab.ErrConflict
	}
	delete(g.mu.out, id)
	g.mu.failed[id] = reason + ": " + trace
	return nil
}

// run is what a runner says when it begins a job.
func (g *fakeGitLab) run(id int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, ok := g.mu.out[id]
	if !ok || time.Since(since) > ackWithin || g.mu.running[id] {
		return gitlab.ErrConflict
	}
	delete(g.mu.out, id)
	g.mu.running[id] = true
	return nil
}

// answerOnce answers one question with a job, and the next ones as ever.
func answerOnce(body []byte) func(asked) (gitlab.JobAnswer, error) {
	var once sync.Once
	return func(asked) (a gitlab.JobAnswer, err error) {
		once.Do(func() { a = gitlab.JobAnswer{Status: http.StatusCreated, Body: body} })
		return a, nil
	}
}

func forbidden(asked) (gitlab.JobAnswer, error) {
	return gitlab.JobAnswer{Status: http.StatusForbidden}, nil
}
