package ingress

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
)

// seats counts the sessions of a replica.
type seats struct {
	limits Limits
	mu     sync.Mutex
	all    int
	byJob  map[spillway.JobID]int
}

func newSeats(l Limits) *seats { return &seats{limits: l, byJob: map[spillway.JobID]int{}} }

// take takes a seat until leave is called.
func (s *seats) take(job spillway.JobID) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= s.limits.MaxSessions:
		return nil, status.Errorf(codes.ResourceExhausted, "this replica has %d sessions, and takes no more (debug.max_sessions)", s.all)
	case s.byJob[job] >= s.limits.MaxPerJob:
		return nil, status.Errorf(codes.ResourceExhausted, "job %s has %d sessions at this replica, and may have no more (debug.max_sessions_per_job)", job, s.byJob[job])
	}
	s.all++
	s.byJob[job]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.byJob[job]--; s.byJob[job] == 0 {
			delete(s.byJob, job)
		}
	}), nil
}
