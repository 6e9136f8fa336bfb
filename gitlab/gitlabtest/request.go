package gitlabtest

import (
	"net/http"
	"strconv"
	"time"
)

// lastUpdateHeader tells the version of a runner's queue.
const lastUpdateHeader = "X-GitLab-Last-Update"

// serveRequest is POST /jobs/request.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) {
	var request runnerRequest
	if !s.readRunner(w, r, &request) {
		return
	}
	if wait := s.overLimit(request.Token); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		w.Header().Set("RateLimit-ResetTime", s.now().Add(wait).UTC().Format(http.TimeFormat))
		message(w, http.StatusTooManyRequests, "This endpoint has been requested too many times. Try again later.")
		return
	}
	given, version := s.take(&request, r)
	switch {
	case version == "":
		message(w, http.StatusForbidden, "403 Forbidden")
	case given == nil:
		w.Header().Set(lastUpdateHeader, version)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.note(r, func(c *Call) { c.JobID = given.ID })
		answerJSON(w, http.StatusCreated, given)
	}
}

// overLimit counts a call of a token, and returns how long it has to wait if it has
// made too many: GitLab's runner_jobs_request_api.
func (s *Server) overLimit(token string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.mu.byToken[token]
	if s.o.RequestsPerMinute < 0 || known == nil {
		return 0
	}
	now := s.clock()
	if minute := now.Truncate(time.Minute); !known.window.Equal(minute) {
		known.window, known.requests = minute, 0
	}
	known.requests++
	if known.requests <= s.o.RequestsPerMinute {
		return 0
	}
	return known.window.Add(time.Minute).Sub(now)
}

// take gives a job to a runner, or says the version of its empty queue; neither if
// the token isn't known. It holds the request as Workhorse does.
func (s *Server) take(request *runnerRequest, r *http.Request) (given *payload, version string) {
	var patience <-chan time.Time
	if s.o.LongPoll > 0 {
		timer := time.NewTimer(s.o.LongPoll)
		defer timer.Stop()
		patience = timer.C
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		given, version, changed := s.tryTake(request, r)
		if given != nil || version != request.LastUpdate || patience == nil {
			return given, version
		}
		select {
		case <-changed:
		case <-look.C:
		case <-patience:
			return nil, version
		case <-r.Context().Done():
			return nil, version
		}
	}
}

func (s *Server) tryTake(request *runnerRequest, r *http.Request) (*payload, string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	known := s.authenticate(request, r)
	if known == nil {
		return nil, "", nil
	}
	// The version is read before the queue is searched, and the queue not at all when
	// the runner has seen this version of it.
	version := known.queue
	if known.paused || request.LastUpdate == version {
		return nil, version, s.mu.changed
	}
	jobs := s.candidates(known)
	for depth, j := range jobs {
		if missing := firstMissing(j.Needs, request.Info.Features); missing != "" {
			j.failure = "runner_unsupported"
			s.to(j, Failed, "unsupported")
			continue
		}
		s.assign(j, known, request)
		return s.payload(j, len(jobs), depth), version, nil
	}
	return nil, version, s.mu.changed
}

func firstMissing(needs []string, features map[string]bool) string {
	for _, need := range needs {
		if !features[need] {
			return need
		}
	}
	return ""
}

// assign gives a job to a runner's machine. The lock is held.
func (s *Server) assign(j *job, r *runner, request *runnerRequest) {
	j.runner, j.system = r, request.SystemID
	j.graceful = request.Info.Features["cancel_gracefully"]
	if !request.Info.Features["two_phase_job_commit"] {
		s.to(j, Running, "requested")
		return
	}
	j.waiting, j.ackBy = true, s.clock().Add(s.o.AckWithin)
	s.mu.waiting[j.id] = j
	s.to(j, Pending, "assigned")
}
