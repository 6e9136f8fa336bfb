package gitlabtest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lookEvery is how often Wait lets the clock do what is due.
const lookEvery = 20 * time.Millisecond

// Job returns a job as it is now.
func (s *Server) Job(id int64) (JobView, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	j := s.mu.jobs[id]
	if j == nil {
		return JobView{}, false
	}
	return j.view(), true
}

// Jobs returns all jobs, by id.
func (s *Server) Jobs() []JobView {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	views := make([]JobView, 0, len(s.mu.byID))
	for _, j := range s.mu.byID {
		views = append(views, j.view())
	}
	return views
}

// JobToken is the token that the runner of a job gets.
func (s *Server) JobToken(id int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.jobs[id].token
}

// Wait returns when a job has a status. It is an error when the job can't get it
// any more, and when ctx ends; both texts have the job in them.
func (s *Server) Wait(ctx context.Context, id int64, status string) (JobView, error) {
	return s.WaitFor(ctx, id, "status "+status, func(v JobView) bool { return v.Status == status })
}

// WaitFor returns when a job is as ok wants it; what says how that is.
func (s *Server) WaitFor(ctx context.Context, id int64, what string, ok func(JobView) bool) (JobView, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		v, changed, found := s.watch(id)
		switch {
		case !found:
			return v, fmt.Errorf("there is no job %d", id)
		case ok(v):
			return v, nil
		case v.Status == Success || v.Status == Failed || v.Status == Canceled:
			return v, fmt.Errorf("job %d will not have %s any more: %+v", id, what, v)
		}
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return v, fmt.Errorf("wait for %s of job %d, which is %+v: %w", what, id, v, context.Cause(ctx))
		}
	}
}

func (s *Server) watch(id int64) (v JobView, changed <-chan struct{}, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	j := s.mu.jobs[id]
	if j == nil {
		return JobView{ID: id}, nil, false
	}
	return j.view(), s.mu.changed, true
}

// Cancel cancels a job as its user does: a running one whose runner can do it
// gracefully is canceling until the runner has ended it.
func (s *Server) Cancel(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(s.mu.jobs[id])
}

func (s *Server) cancel(j *job) {
	switch {
	case j.over():
	case j.status == Running && j.graceful:
		s.to(j, Canceling, "cancel")
	default:
		s.to(j, Canceled, "cancel")
	}
}

// FailPipeline makes the pipeline of a job failed and leaves its jobs as they are:
// jobs of such a pipeline stay in the lists of pending jobs.
func (s *Server) FailPipeline(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[id].pipeline.forced = Failed
}

// DeleteJob takes a job away: it is in no list, and its own page is 404.
func (s *Server) DeleteJob(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[id].gone = true
	delete(s.mu.waiting, id)
	s.broadcast()
}

// Ghost leaves a job in the lists, but its own page is 404 and no runner gets it.
func (s *Server) Ghost(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[id].ghost = true
}

// PauseRunner makes a runner get no new jobs, or lets it again.
func (s *Server) PauseRunner(id int64, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.runners[id]
	r.paused = paused
	r.queue = s.newQueueValue()
	s.broadcast()
}

// SetRunner changes what a runner takes.
func (s *Server) SetRunner(id int64, change func(*RunnerSpec)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.runners[id]
	change(&r.spec)
	r.queue = s.newQueueValue()
	s.broadcast()
}

// DeleteRunner takes a runner away: its token is worth nothing any more.
func (s *Server) DeleteRunner(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.runners[id]
	delete(s.mu.runners, id)
	delete(s.mu.byToken, r.token)
	s.broadcast()
}

// RemoveManager takes a machine away from a runner's list, as GitLab does with one
// that was silent for long.
func (s *Server) RemoveManager(runner int64, system string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.runners[runner].managers, system)
}

// Managers returns the system ids of a runner's machines, sorted.
func (s *Server) Managers(runner int64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var systems []string
	for system := range s.mu.runners[runner].managers {
		systems = append(systems, system)
	}
	slices.Sort(systems)
	return systems
}

// expire does what GitLab does with a job that nobody acknowledged
// (Ci::RetryWaitingJobService): it fails, and a new job takes its place unless that
// was done too often. The lock is held.
func (s *Server) expire(j *job) {
	j.failure = "runner_provisioning_timeout"
	var again *job
	if j.retries < s.o.AckRetries {
		spec := j.JobSpec
		spec.Pipeline = j.pipeline.id
		again = s.newJob(spec)
		again.retries, again.retryOf, j.retriedAs = j.retries+1, j, again
	}
	s.to(j, Failed, "unacknowledged")
	if again != nil {
		s.push(again, "enqueued")
	}
}
