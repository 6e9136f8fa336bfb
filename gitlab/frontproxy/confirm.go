package frontproxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

const (
	// confirmPatience is how long a runner's word on a job waits for a store that fails.
	// Longer would hold the trace of a job that runs; GitLab waits for two minutes.
	confirmPatience = 30 * time.Second
	// confirmRetry is how soon the store is asked again.
	confirmRetry = time.Second
	// confirmEvery is how often the word of a job that runs is put down once more, in case
	// the store has lost it: so often that it can't lapse in between.
	confirmEvery = time.Minute
)

var (
	errWordsFull = errors.New("too many words of jobs wait for the store: one is dropped")
	errTooLate   = errors.New("a job runs that was not confirmed in time")
)

// words remembers of which jobs the machine's word is in the book by our doing, and
// which are to be put there once more.
type words struct {
	mu struct {
		sync.Mutex
		// saidAt is when that was last done, in two halves: when the younger one is full the
		// older one is forgotten, which costs a call to the store for each that still runs.
		young, old map[spillway.JobID]time.Time
		due        map[spillway.JobID]struct{}
	}
}

func newWords() *words {
	w := &words{}
	w.mu.young, w.mu.due = map[spillway.JobID]time.Time{}, map[spillway.JobID]struct{}{}
	return w
}

// said notes that the word of a job is in the book.
func (w *words) said(job spillway.JobID, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.young) >= maxSeats/2 {
		w.mu.young, w.mu.old = map[spillway.JobID]time.Time{}, w.mu.young
	}
	w.mu.young[job] = at
	delete(w.mu.due, job)
}

// lastLocked is when it was last put there; zero = not as far as is remembered.
func (w *words) lastLocked(job spillway.JobID) time.Time {
	if at, known := w.mu.young[job]; known {
		return at
	}
	return w.mu.old[job]
}

func (w *words) known(job spillway.JobID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.lastLocked(job).IsZero()
}

// again has the word of a job that runs put down once more, if it is time. It reports
// whether there was room for that.
func (w *words) again(job spillway.JobID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.lastLocked(job)) < confirmEvery {
		return true
	}
	if _, waits := w.mu.due[job]; !waits && len(w.mu.due) >= maxEnds {
		return false
	}
	w.mu.due[job] = struct{}{}
	return true
}

func (w *words) waiting() []spillway.JobID {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := make([]spillway.JobID, 0, len(w.mu.due))
	for job := range w.mu.due {
		jobs = append(jobs, job)
	}
	return jobs
}

func (w *words) drop(job spillway.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.young, job)
	delete(w.mu.old, job)
	delete(w.mu.due, job)
}

// word is what a runner says of a job.
type word struct {
	state  string
	first  bool // the job has not begun: only then nothing is said of a trace
	placed bool // it says on which instance it is
}

func readWord(head []byte) (said word) {
	var output struct {
		Checksum string `json:"checksum"`
	}
	var info struct {
		Labels map[string]string `json:"labels"`
	}
	gitlab.HeadFields(head, map[string]any{"state": &said.state, "output": &output, "info": &info})
	said.first = said.state == "running" && output.Checksum == ""
	said.placed = info.Labels[route.InstanceLabel] != ""
	return said
}

// confirm puts down that a machine has a job, before GitLab hears it: as soon as GitLab
// has taken the word the job runs, and a process that is killed after that can't put it
// down any more. It reports whether the word may be passed on; otherwise it has
// answered.
//
// While the store is away, the word of a machine that says on which instance it is waits
// for it; others are never removed, or not ours. A job that has not begun is given up at
// last: its runner is told 403, and GitLab hands it out anew. One that runs is not ended
// for that: its runner is told 503, and says it again.
func (p *Proxy) confirm(w http.ResponseWriter, r *http.Request, job spillway.JobID, word word) bool {
	said, err := p.putDown(r.Context(), job)
	waits := word.placed && !p.words.known(job)
	for deadline := p.opt.Now().Add(confirmPatience); err != nil && waits && p.opt.Now().Before(deadline); {
		p.storeFailed("confirm", err)
		if !rest(r.Context(), confirmRetry) {
			return false // nobody is there any more to be answered
		}
		said, err = p.putDown(r.Context(), job)
	}
	switch {
	case err == nil && said == store.TooLate:
		p.late(job)
		sayAndClose(w, http.StatusForbidden, "the job was not acknowledged in time, and is not this machine's any more")
	case err == nil:
		return true
	case !waits:
		p.storeFailed("confirm", err)
		return true
	default:
		p.storeFailed("confirm", err)
		status := http.StatusServiceUnavailable
		if word.first {
			status = http.StatusForbidden
		}
		sayAndClose(w, status, "it can't be put down that the job runs")
	}
	return false
}

// putDown tries once.
func (p *Proxy) putDown(ctx context.Context, job spillway.JobID) (store.Confirmation, error) {
	ctx, cancel := detached(ctx, storeTimeout)
	defer cancel()
	said, err := p.opt.Book.ConfirmRouted(ctx, job)
	if err == nil && said != store.TooLate {
		p.words.said(job, p.opt.Now())
	}
	return said, err
}

func (p *Proxy) late(job spillway.JobID) {
	if p.opt.Events.Late != nil {
		p.opt.Events.Late(job)
	}
}

// rest waits, and reports whether ctx lasted for it.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// confirmAgain notes that GitLab has taken a word of a job.
func (p *Proxy) confirmAgain(job spillway.JobID) {
	if !p.words.again(job, p.opt.Now()) {
		p.storeFailed("confirm", errWordsFull)
	}
}

// repeatWords puts down what is due, until the store fails.
func (p *Proxy) repeatWords(ctx context.Context) {
	for _, job := range p.words.waiting() {
		said, err := p.putDown(ctx, job)
		switch {
		case err != nil:
			p.storeFailed("confirm", err)
			return
		case said == store.TooLate: // GitLab has it run all the same; it is in no book
			p.words.said(job, p.opt.Now())
			p.storeFailed("confirm", errTooLate)
		}
	}
}
