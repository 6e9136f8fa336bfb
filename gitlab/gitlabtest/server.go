package gitlabtest

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server is a GitLab. Its methods may be called while it serves.
type Server struct {
	o     Options
	mux   *http.ServeMux
	hooks *deliverer
	mu    struct {
		sync.Mutex
		state
	}
}

// state is guarded by Server.mu.
type state struct {
	lastID    int64
	groups    map[int64]*group
	projects  map[int64]*project
	pipelines map[int64]*pipeline
	runners   map[int64]*runner
	jobs      map[int64]*job
	byID      []*job // all jobs
	queue     []*job // pending jobs that no runner has, and some that no longer are
	apiTokens map[string]apiToken
	byToken   map[string]*runner
	waiting   map[int64]*job // given out, not acknowledged
	calls     callLog
	faults    []*Fault
	ahead     time.Duration      // of the clock
	changed   chan struct{}      // closed at each change
	lists     map[listKey][]*job // of this state, until it changes
	router    discovery
}

// New returns an empty GitLab.
func New(o Options) *Server {
	s := &Server{o: o.withDefaults()}
	s.hooks = newDeliverer(s.now)
	s.mu.state = state{
		groups: map[int64]*group{}, projects: map[int64]*project{}, pipelines: map[int64]*pipeline{},
		runners: map[int64]*runner{}, jobs: map[int64]*job{}, apiTokens: map[string]apiToken{},
		byToken: map[string]*runner{}, waiting: map[int64]*job{}, lists: map[listKey][]*job{}, changed: make(chan struct{}),
		router: discovery{status: http.StatusNotImplemented},
	}
	s.mux = s.routes()
	return s
}

// Close ends the deliveries of webhooks and waits for them.
func (s *Server) Close() { s.hooks.close() }

// Advance puts the clock forward, and does what is due then.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ahead += d
	s.sweep()
}

func (s *Server) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

// clock is now, for those who hold the lock.
func (s *Server) clock() time.Time { return s.o.Now().Add(s.mu.ahead) }

// sweep does what is due. The lock is held.
func (s *Server) sweep() {
	now := s.clock()
	for _, j := range s.mu.waiting {
		if now.After(j.ackBy) {
			s.expire(j)
		}
	}
}

// broadcast wakes all who wait for a change. The lock is held.
func (s *Server) broadcast() {
	clear(s.mu.lists)
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func (s *Server) newID() int64 {
	s.mu.lastID++
	return s.mu.lastID
}

// secret returns a new token with one of GitLab's prefixes.
func secret(prefix string) string { return prefix + strings.ToLower(rand.Text())[:20] }

// Route names, for Fault.Route and Call.Route.
const (
	RouteDiscovery   = "GET /api/v4/runners/router/discovery"
	RouteVerify      = "POST /api/v4/runners/verify"
	RouteUnregister  = "DELETE /api/v4/runners/managers"
	RouteRequestJob  = "POST /api/v4/jobs/request"
	RouteUpdateJob   = "PUT /api/v4/jobs/{id}"
	RoutePatchTrace  = "PATCH /api/v4/jobs/{id}/trace"
	RouteUpload      = "POST /api/v4/jobs/{id}/artifacts"
	RouteDownload    = "GET /api/v4/jobs/{id}/artifacts"
	RouteGraphQL     = "POST /api/graphql"
	RouteProjectJobs = "GET /api/v4/projects/{id}/jobs"
	RouteJob         = "GET /api/v4/projects/{id}/jobs/{job}"
	RoutePipeline    = "GET /api/v4/projects/{id}/pipelines/{pipeline}"
	RouteProject     = "GET /api/v4/projects/{id}"
	RouteProjects    = "GET /api/v4/projects"
	RouteGroup       = "GET /api/v4/groups/{id}"
	RouteRunner      = "GET /api/v4/runners/{id}"
	RouteManagers    = "GET /api/v4/runners/{id}/managers"
	RouteRunnerJobs  = "GET /api/v4/runners/{id}/jobs"
)

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request){
		RouteDiscovery:  s.serveDiscovery,
		RouteVerify:     s.serveVerify,
		RouteUnregister: s.serveUnregister,
		RouteRequestJob: s.serveRequest,
		RouteUpdateJob:  s.serveUpdate,
		RoutePatchTrace: s.servePatch,
		RouteUpload:     s.serveUpload,
		RouteDownload:   s.serveDownload,
		RouteGraphQL:    s.serveGraphQL,
	} {
		mux.HandleFunc(pattern, handle)
	}
	for pattern, handle := range s.restRoutes() {
		mux.HandleFunc(pattern, s.withUser(handle))
	}
	return mux
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, route := s.mux.Handler(r)
	call := s.begin(r, route)
	answer := &answer{ResponseWriter: w}
	defer func() { s.end(call, answer.status) }()
	r = r.WithContext(withCall(r.Context(), call))
	if f := s.fault(route, r); f != nil {
		f.serve(answer, r, s.mux)
		return
	}
	s.mux.ServeHTTP(answer, r)
}

// answer remembers the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
