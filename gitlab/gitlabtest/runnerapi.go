package gitlabtest

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

// runnerInfo is what a runner says of itself.
type runnerInfo struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Revision     string            `json:"revision"`
	Platform     string            `json:"platform"`
	Architecture string            `json:"architecture"`
	Executor     string            `json:"executor"`
	Features     map[string]bool   `json:"features"`
	Labels       map[string]string `json:"labels"`
}

// runnerRequest is the body of a runner's calls; each has a part of it.
type runnerRequest struct {
	Info       runnerInfo `json:"info"`
	Token      string     `json:"token"`
	SystemID   string     `json:"system_id"`
	LastUpdate string     `json:"last_update"`
}

// legacySystem is the machine of runners that don't say a system_id.
const legacySystem = "<legacy>"

// discovery is the answer to a runner that looks for its router.
type discovery struct {
	status int
	url    string
}

// SetRouter sets what runners are told of a Job Router: its URL, or with "" that
// there is none (501).
func (s *Server) SetRouter(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.router = discovery{status: http.StatusOK, url: url}
	if url == "" {
		s.mu.router.status = http.StatusNotImplemented
	}
}

func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Runner-Token")
	s.noteToken(r, RunnerToken, token)
	s.mu.Lock()
	known, router := s.mu.byToken[token] != nil, s.mu.router
	s.mu.Unlock()
	switch {
	case !known:
		message(w, http.StatusForbidden, "403 Forbidden")
	case router.status != http.StatusOK:
		message(w, router.status, "Job Router is not available. Please contact your administrator.")
	default:
		answerJSON(w, http.StatusOK, map[string]string{"server_url": router.url})
	}
}

func (s *Server) serveVerify(w http.ResponseWriter, r *http.Request) {
	var request runnerRequest
	if !s.readRunner(w, r, &request) {
		return
	}
	s.mu.Lock()
	known := s.authenticate(&request, r)
	s.mu.Unlock()
	if known == nil {
		message(w, http.StatusForbidden, "403 Forbidden")
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"id": known.id, "token": known.token, "token_expires_at": nil})
}

func (s *Server) serveUnregister(w http.ResponseWriter, r *http.Request) {
	var request runnerRequest
	if !s.readRunner(w, r, &request) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.mu.byToken[request.Token]
	switch {
	case known == nil:
		message(w, http.StatusForbidden, "403 Forbidden")
	case request.SystemID == "":
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "system_id is missing"})
	case known.managers[request.SystemID] == nil:
		message(w, http.StatusNotFound, "404 Runner manager not found Not Found")
	default:
		delete(known.managers, request.SystemID)
		w.WriteHeader(http.StatusNoContent)
	}
}

// readRunner reads a runner's body, or answers that it can't be read.
func (s *Server) readRunner(w http.ResponseWriter, r *http.Request, request *runnerRequest) bool {
	if !readJSON(w, r, MaxRequestBytes, request) {
		return false
	}
	s.noteToken(r, RunnerToken, request.Token)
	s.note(r, func(c *Call) { c.SystemID, c.LastUpdate = request.SystemID, request.LastUpdate })
	if request.Token == "" {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "token is missing"})
		return false
	}
	return true
}

// authenticate returns the runner of a request, and notes which machine it came
// from; nil for a token that isn't known. The lock is held.
func (s *Server) authenticate(request *runnerRequest, r *http.Request) *runner {
	known := s.mu.byToken[request.Token]
	if known == nil {
		return nil
	}
	now := s.clock()
	known.contactedAt = now
	system := request.SystemID
	if system == "" {
		system = legacySystem
	}
	m := known.managers[system]
	if m == nil {
		m = &manager{id: s.newID(), system: system, createdAt: now}
		known.managers[system] = m
	}
	m.info, m.contactedAt, m.ip = request.Info, now, clientIP(r)
	return known
}

func clientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// readJSON reads a bounded body, or answers what is wrong with it.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		message(w, http.StatusRequestEntityTooLarge, "413 Request Entity Too Large")
		return false
	case err != nil:
		message(w, http.StatusBadRequest, "400 Bad Request")
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "Problems parsing JSON"})
		return false
	}
	return true
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func message(w http.ResponseWriter, status int, text string) {
	answerJSON(w, status, map[string]string{"message": text})
}

// pathID is a number in a path; 0 = none.
func pathID(r *http.Request, name string) int64 {
	id, err := strconv.ParseInt(r.PathValue(name), 10, 64)
	if err != nil {
		return 0
	}
	return id
}
