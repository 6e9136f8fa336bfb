package collect

import (
	"errors"
	"sync"
	"time"
)

// SourceStatus is how a source does.
type SourceStatus struct {
	Name  string        // queue, gitlab, gitlab/jobs, gitlab/runners or gitlab/hooks
	At    time.Time     // when what it last said was true; zero = it has said nothing yet
	Every time.Duration // how often it is asked; 0 = it speaks by itself
	Err   string        // why the last try failed; empty = it didn't
	// Partial: what it says is a lower bound, and Why.
	Partial bool
	Why     string
	Standby bool  // another replica asks
	Jobs    int   // it has seen at last
	Calls   int64 // it has cost so far, lists as one each
}

// Age is how old what it says is at now; 0 where it has said nothing.
func (s *SourceStatus) Age(now time.Time) time.Duration {
	if s.At.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.At))
}

// The names of what a GitLab source has a status of.
const (
	statusJobs    = "gitlab/jobs"
	statusRunners = "gitlab/runners"
	statusHooks   = "gitlab/hooks"
)

// statusBook is what the goroutines of a source say of themselves.
type statusBook struct {
	mu struct {
		sync.Mutex
		jobs, runners, hooks SourceStatus
	}
}

func (b *statusBook) change(f func(jobs, runners, hooks *SourceStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.mu.jobs, &b.mu.runners, &b.mu.hooks)
}

func (b *statusBook) standby(why error) {
	standby := SourceStatus{Standby: true}
	if !errors.Is(why, errStandby) {
		standby = SourceStatus{Err: sentence(why)}
	}
	b.change(func(jobs, runners, hooks *SourceStatus) { *jobs, *runners, *hooks = standby, standby, standby })
}

func (b *statusBook) begin() {
	b.change(func(jobs, runners, hooks *SourceStatus) {
		*jobs = SourceStatus{Err: ErrNothingYet.Error()}
		*runners, *hooks = SourceStatus{}, SourceStatus{}
	})
}

// Status is how the parts of the source do, on this replica.
func (g *GitLab) Status() []SourceStatus {
	var jobs, runners, hooks SourceStatus
	g.status.change(func(j, r, h *SourceStatus) { jobs, runners, hooks = *j, *r, *h })
	var out []SourceStatus
	if g.o.API != nil {
		jobs.Name, jobs.Every, jobs.Calls = statusJobs, g.o.Every, g.calls.Load()
		out = append(out, jobs)
		if len(g.o.Runners) > 0 {
			runners.Name, runners.Every = statusRunners, g.o.Every
			out = append(out, runners)
		}
	}
	if g.o.Hooks || !hooks.At.IsZero() { // another replica may listen, and tell us
		hooks.Name = statusHooks
		out = append(out, hooks)
	}
	return out
}
