package gitlabtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Spoil is a way for an answer to be wrong.
type Spoil string

// The ways.
const (
	HTML      Spoil = "html"      // 200 with a page for people, as a proxy's login does
	Garbage   Spoil = "garbage"   // 200 with what is no JSON
	Huge      Spoil = "huge"      // 200 with HugeBytes of JSON
	Truncated Spoil = "truncated" // the first half of the answer, then the connection is closed
	Closed    Spoil = "closed"    // the connection is closed without an answer
)

// Fault makes calls go wrong. Its parts are done in their order.
type Fault struct {
	Route string                   // "" = every one
	Match func(*http.Request) bool // nil = every request
	Times int                      // how many calls; 0 = until it is taken away
	Delay time.Duration            // wait before anything else
	// Late: the call takes effect first, and only its answer is lost.
	Late bool
	// Status answers with it, with Header and Body. 0 and no Spoil: the call is only
	// delayed.
	Status int
	Header http.Header
	Body   string
	Spoil  Spoil

	left int
}

// Limited is a fault that answers 429 as GitLab's throttle does.
func Limited(route string, times int, retryAfter time.Duration) Fault {
	seconds := strconv.Itoa(int(retryAfter / time.Second))
	return Fault{
		Route: route, Times: times, Status: http.StatusTooManyRequests, Body: "Retry later\n",
		Header: http.Header{"Retry-After": {seconds}, "Content-Type": {"text/plain"}},
	}
}

// Fail installs a fault and returns what takes it away. The newest one that fits a
// call is taken.
func (s *Server) Fail(f Fault) (remove func()) {
	f.left = f.Times
	added := &f
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults = append(s.mu.faults, added)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(added)
	}
}

func (s *Server) remove(f *Fault) {
	for i, other := range s.mu.faults {
		if other == f {
			s.mu.faults = append(s.mu.faults[:i:i], s.mu.faults[i+1:]...)
			return
		}
	}
}

func (s *Server) fault(route string, r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.mu.faults) - 1; i >= 0; i-- {
		f := s.mu.faults[i]
		if f.Route != "" && f.Route != route || f.Match != nil && !f.Match(r) {
			continue
		}
		if f.Times > 0 {
			if f.left--; f.left == 0 {
				s.remove(f)
			}
		}
		return f
	}
	return nil
}

func (f *Fault) serve(w http.ResponseWriter, r *http.Request, real http.Handler) {
	pause(r.Context(), f.Delay)
	if f.Status == 0 && f.Spoil == "" {
		real.ServeHTTP(w, r)
		return
	}
	var taken *recorder
	if f.Late || f.Spoil == Truncated {
		taken = &recorder{header: http.Header{}, code: http.StatusOK}
		real.ServeHTTP(taken, r)
	}
	switch f.Spoil {
	case HTML:
		write(w, http.StatusOK, "text/html; charset=utf-8", "<!DOCTYPE html>\n<html><body>You need to sign in.</body></html>\n")
	case Garbage:
		write(w, http.StatusOK, "application/json", "{]\x00")
	case Huge:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(`"`), io.LimitReader(endless{}, HugeBytes), strings.NewReader(`"`)))
	case Truncated:
		truncate(w, taken)
	case Closed:
		panic(http.ErrAbortHandler)
	default:
		for name, values := range f.Header {
			w.Header()[name] = values
		}
		write(w, f.Status, f.Header.Get("Content-Type"), f.Body)
	}
}

func truncate(w http.ResponseWriter, whole *recorder) {
	for name, values := range whole.header {
		w.Header()[name] = values
	}
	body := whole.body.Bytes()
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(whole.code)
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func write(w http.ResponseWriter, status int, contentType, body string) {
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// endless is a text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
