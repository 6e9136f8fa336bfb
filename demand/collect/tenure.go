package collect

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// minBoardTTL is how long a board is shown at least [time]: long enough for another
	// replica to take over, so that nothing is forgotten meanwhile.
	minBoardTTL = 10 * time.Minute
	// retryBoard is when a board that could not be written is written again [time].
	retryBoard = time.Second
	// maxReplicas bounds the replicas that are remembered to hold jobs [replicas].
	maxReplicas = 256
)

// tenure is the time in which a replica has the lease. The goroutine of run owns
// it; the lister and the lookups send it their news.
type tenure struct {
	g     *GitLab
	lease spillway.Lease
	facts <-chan []byte
	began time.Time

	book     *Book
	whole    time.Time // when the last list that was believed began; zero = there was none
	believed bool      // the last list that came was
	problem  string    // why the last list failed
	looks    map[int64]look
	stale    int
	shown    uint64 // version of the book on the board
	everShow bool

	holders map[string]holder // replicas that hold jobs
	lister  *lister
	lookups *lookups
	timer   *time.Timer // of the next board
	due     time.Time   // when that is
}

// holder is what a replica that holds jobs last said of itself.
type holder struct {
	at      time.Time
	problem string
	lacks   []lack
	unnamed bool // it holds jobs and names no pool that more may wait for
}

func newTenure(g *GitLab, lease spillway.Lease, facts <-chan []byte) *tenure {
	now := time.Now()
	t := &tenure{
		g: g, lease: lease, facts: facts, began: now,
		book: NewBook(g.o.Limits), looks: map[int64]look{}, holders: map[string]holder{},
		lister: newLister(g), lookups: newLookups(g),
	}
	g.status.begin()
	return t
}

// run lists, listens and shows until the lease is lost or ctx ends.
func (t *tenure) run(ctx context.Context) {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if t.g.o.API != nil {
		wg.Go(func() { t.lister.run(inner) })
		t.lookups.start(inner, &wg)
	}
	first := t.g.o.Every
	if t.g.o.API == nil {
		first = t.g.o.Debounce // no list comes that would have it shown
	}
	t.timer = time.NewTimer(first)
	t.due = time.Now().Add(first)
	t.loop(ctx)
	t.timer.Stop()
	cancel()
	wg.Wait()
	if ctx.Err() != nil {
		t.g.release(t.lease)
	}
}

func (t *tenure) loop(ctx context.Context) {
	renew := time.NewTicker(t.g.renewEvery())
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			if !t.renew(ctx) {
				return
			}
		case data, ok := <-t.facts:
			if !ok {
				t.facts = nil // the store ends, and ctx soon
				continue
			}
			t.heard(data, time.Now())
		case news := <-t.lister.lists:
			t.listed(news)
		case news := <-t.lister.looks:
			t.looked(news)
		case answer := <-t.lookups.answers:
			t.answered(answer)
		case <-t.timer.C:
			t.show(ctx, time.Now())
		}
	}
}

// renew reports whether the lease is still ours. One that can't be renewed is kept up
// to its end: the store refuses what an old holder writes.
func (t *tenure) renew(ctx context.Context) bool {
	if lease, err := t.g.acquire(ctx); err == nil {
		if lease.Epoch != t.lease.Epoch {
			return false // it was another's in between
		}
		t.lease = lease
		return true
	}
	return t.lease.Rest(time.Now()) > 0
}

// changed has the board shown soon.
func (t *tenure) changed() { t.showBy(time.Now().Add(t.g.o.Debounce)) }

func (t *tenure) showBy(at time.Time) {
	if at.Before(t.due) {
		t.due = at
		t.timer.Reset(time.Until(at))
	}
}

// listed takes a list in.
func (t *tenure) listed(n listNews) {
	t.stale += n.stale
	if n.err != nil {
		t.problem = sentence(n.err)
		t.g.o.Events.trouble("listing GitLab's jobs", n.err)
		t.g.status.change(func(jobs, _, _ *SourceStatus) { jobs.Err = t.problem })
	} else {
		t.problem, t.believed = "", !n.snapshot.Partial
		if t.believed {
			t.whole = n.snapshot.Began
		}
		t.book.Snapshot(n.snapshot)
		took := n.snapshot.Ended.Sub(n.snapshot.Began)
		t.g.status.change(func(jobs, _, _ *SourceStatus) {
			jobs.At, jobs.Err, jobs.Jobs = n.snapshot.Began, "", n.jobs
			jobs.Partial, jobs.Why = n.snapshot.Partial, n.snapshot.Why
			if took > t.g.o.Every {
				jobs.Why = strings.TrimPrefix(jobs.Why+"; a list takes "+took.Round(time.Second).String()+", longer than the time between lists: raise gitlab.jobs.every or the requests per minute", "; ")
			}
		})
	}
	t.changed()
}

// looked takes a look at a runner in.
func (t *tenure) looked(n runnerNews) {
	t.looks[n.id] = t.looks[n.id].take(n)
	if n.err != nil {
		t.g.o.Events.trouble("looking at a pool's runner", n.err)
	}
	t.g.status.change(func(_, runners, _ *SourceStatus) {
		runners.Jobs = t.book.RunningJobs()
		if n.err != nil {
			runners.Err = sentence(n.err)
			return
		}
		runners.At, runners.Err = n.at, ""
	})
	t.changed()
}

// heard takes in what a replica has told. Nothing in it is from the future, whatever
// the sender's clock says: else it would overrule every list until then.
func (t *tenure) heard(data []byte, now time.Time) {
	m, ok := hear(data)
	if !ok {
		return
	}
	if _, known := t.holders[m.Replica]; m.Replica != "" && (known || len(t.holders) < maxReplicas) {
		t.holders[m.Replica] = holder{at: now, problem: m.Problem, lacks: m.Lacks, unnamed: len(m.Lacks) == 0 && holds(m.Jobs)}
	}
	for _, s := range m.Jobs {
		if s.Job.Origin != t.g.o.URL {
			continue
		}
		if s.At.After(now) {
			s.At = now
		}
		if s.Requirement != nil {
			s.Requirement.Origin = t.g.o.URL
			if s.Requirement.Validate() != nil {
				s.Requirement = nil
			}
		}
		if s.State == spillway.Pending && s.Requirement == nil && t.book.beyond(s.Job) {
			continue // a hook that came late: no job goes back
		}
		t.book.Saw(s)
		t.wonder(s)
	}
	if m.Hook {
		t.g.status.change(func(_, _, hooks *SourceStatus) { hooks.At, hooks.Jobs = now, hooks.Jobs+len(m.Jobs) })
	}
	t.noticed()
}

// wonder asks what a job needs that is said to wait, unless that is known. It asks even
// where the book believes a newer list: the clock of GitLab or of another replica may
// be behind, and the answer is of now.
func (t *tenure) wonder(s Sighting) {
	if s.State != spillway.Pending || t.g.o.API == nil {
		return
	}
	if _, told, known := t.book.State(s.Job); known && told {
		return
	}
	if !t.lookups.ask(s) {
		t.lister.soon() // too many at once: one list tells of all
	}
}

// answered takes the answer to a question of wonder in.
func (t *tenure) answered(a answer) {
	t.lookups.done(a)
	if a.err != nil {
		t.g.o.Events.trouble("reading what a job needs", a.err)
		return // the next list tells
	}
	t.book.Saw(a.job)
	t.noticed()
}

// noticed has the board shown if the book says something new.
func (t *tenure) noticed() {
	if t.book.Version() != t.shown {
		t.changed()
	}
}
