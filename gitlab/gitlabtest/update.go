package gitlabtest

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type updateRequest struct {
	Info          runnerInfo `json:"info"`
	Token         string     `json:"token"`
	State         string     `json:"state"`
	FailureReason string     `json:"failure_reason"`
	ExitCode      int        `json:"exit_code"`
	Checksum      string     `json:"checksum"`
	Output        struct {
		Checksum string `json:"checksum"`
		Bytesize int    `json:"bytesize"`
	} `json:"output"`
}

// serveUpdate is PUT /jobs/:id.
func (s *Server) serveUpdate(w http.ResponseWriter, r *http.Request) {
	var update updateRequest
	if !readJSON(w, r, MaxBodyBytes, &update) {
		return
	}
	s.noteToken(r, JobToken, update.Token)
	s.note(r, func(c *Call) { c.JobID, c.State = pathID(r, "id"), update.State })
	if update.Token == "" {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "token is missing"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.authenticateJob(w, pathID(r, "id"), update.Token)
	if j == nil {
		return
	}
	status := s.update(j, &update)
	s.jobHeaders(w, j)
	answerJSON(w, status, status)
}

// authenticateJob returns the job that a job token is for, while the token is good
// for anything, or answers 403 (lib/api/ci/helpers/runner.rb). The lock is held.
func (s *Server) authenticateJob(w http.ResponseWriter, id int64, token string) *job {
	s.sweep()
	j := s.mu.jobs[id]
	switch {
	case j == nil || j.gone || j.token != token:
		message(w, http.StatusForbidden, "403 Forbidden")
		return nil
	case !j.executing():
		w.Header().Set("Job-Status", j.status)
		message(w, http.StatusForbidden, "403 Forbidden - Job is not processing on runner")
		return nil
	}
	now := s.clock()
	if j.runner != nil {
		j.runner.contactedAt = now
		if m := j.runner.managers[j.system]; m != nil && !j.waiting {
			m.contactedAt = now
		}
	}
	return j
}

func (s *Server) jobHeaders(w http.ResponseWriter, j *job) {
	w.Header().Set("Job-Status", j.status)
	if s.o.TraceEvery > 0 {
		w.Header().Set("X-GitLab-Trace-Update-Interval", strconv.Itoa(int(s.o.TraceEvery/time.Second)))
	}
}

// update does what a runner says of its job, and returns the status of the answer
// (Ci::UpdateBuildStateService). The lock is held.
func (s *Server) update(j *job, u *updateRequest) int {
	if j.waiting {
		return s.acknowledge(j, u.State)
	}
	switch u.State {
	case Running:
		return http.StatusOK
	case Success, Failed:
		return s.finish(j, u)
	default:
		return http.StatusBadRequest
	}
}

// acknowledge is update for a job that waits for its runner's word: it can be kept
// and begun, and nothing else.
func (s *Server) acknowledge(j *job, state string) int {
	switch state {
	case Pending:
		j.kept++
		j.ackBy = s.clock().Add(s.o.AckWithin)
		s.to(j, Pending, "kept")
		return http.StatusOK
	case Running:
		s.to(j, Running, "accepted")
		return http.StatusOK
	default:
		return http.StatusBadRequest
	}
}

func (s *Server) finish(j *job, u *updateRequest) int {
	if sum := cmp.Or(u.Output.Checksum, u.Checksum); sum != "" && !s.o.AcceptAnyTrace {
		if sum != checksum(j.trace) || u.Output.Bytesize > 0 && u.Output.Bytesize != len(j.trace) {
			j.trace = nil
			return http.StatusPreconditionFailed
		}
	}
	status := u.State
	if status == Failed {
		j.failure, j.exitCode = u.FailureReason, u.ExitCode
		if !slices.Contains(failureReasons, j.failure) {
			j.failure = "unknown_failure"
		}
	}
	if j.status == Canceling {
		status = Canceled
	}
	s.to(j, status, "finished")
	return http.StatusOK
}

func checksum(trace []byte) string { return fmt.Sprintf("crc32:%08x", crc32.ChecksumIEEE(trace)) }

// servePatch is PATCH /jobs/:id/trace.
func (s *Server) servePatch(w http.ResponseWriter, r *http.Request) {
	token := cmp.Or(r.Header.Get("Job-Token"), r.URL.Query().Get("token"))
	s.noteToken(r, JobToken, token)
	s.note(r, func(c *Call) { c.JobID = pathID(r, "id") })
	piece, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxPatchBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		message(w, http.StatusRequestEntityTooLarge, "413 Request Entity Too Large")
		return
	}
	if err != nil {
		return // the runner has gone away
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.authenticateJob(w, pathID(r, "id"), token)
	if j == nil {
		return
	}
	s.patch(w, j, r.Header.Get("Content-Range"), piece)
}

// patch appends to a trace (Ci::AppendBuildTraceService): only at its end, and
// whoever is elsewhere is told where that is.
func (s *Server) patch(w http.ResponseWriter, j *job, contentRange string, piece []byte) {
	from, _, _ := strings.Cut(contentRange, "-")
	start, err := strconv.Atoi(from)
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "400 Missing header Content-Range"})
		return
	}
	if start == len(j.trace) && len(j.trace)+len(piece) > MaxTraceBytes {
		j.failure = "trace_size_exceeded"
		s.to(j, Failed, "finished")
		message(w, http.StatusForbidden, "403 Forbidden")
		return
	}
	if start != len(j.trace) {
		w.Header().Set("Range", fmt.Sprintf("0-%d", len(j.trace)))
		answerJSON(w, http.StatusRequestedRangeNotSatisfiable, map[string]string{"error": "416 Range Not Satisfiable"})
		return
	}
	j.trace = append(j.trace, piece...)
	s.broadcast()
	s.jobHeaders(w, j)
	w.Header().Set("Range", fmt.Sprintf("0-%d", len(j.trace)))
	w.WriteHeader(http.StatusAccepted)
}
