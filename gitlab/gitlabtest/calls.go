package gitlabtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"
)

// Kinds of tokens in the call log.
const (
	RunnerToken = "runner"
	JobToken    = "job"
	APIToken    = "api"
)

// Call is one request, for tests that ask who did what and when.
type Call struct {
	At, Ended    time.Time // Ended is zero while it runs
	Method, Path string
	Query        string
	Route        string // one of the Route constants, or another pattern; "" = no such path
	// TokenKind is empty for a call without a token. TokenHash is the token's SHA-256
	// in hex: a log shows no token.
	TokenKind, TokenHash string
	SystemID             string // of a runner
	LastUpdate           string // that the runner echoed
	JobID                int64  // that was given, updated or patched
	State                string // that was put
	Status               int    // of the answer; 0 = none was given
	Header               http.Header
}

// HashToken is the TokenHash of a token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Calls returns the log, the oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.calls.copy()
}

// CallsTo returns the calls of one route, the oldest first.
func (s *Server) CallsTo(route string) []Call {
	return slices.DeleteFunc(s.Calls(), func(c Call) bool { return c.Route != route })
}

// ForgetCalls empties the log.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.calls = callLog{}
}

// callLog keeps the newest MaxCalls calls.
type callLog struct {
	ring []*Call
	next int
}

func (l *callLog) add(c *Call) {
	if len(l.ring) < MaxCalls {
		l.ring = append(l.ring, c)
		return
	}
	l.ring[l.next] = c
	l.next = (l.next + 1) % MaxCalls
}

func (l *callLog) copy() []Call {
	calls := make([]Call, 0, len(l.ring))
	for i := range l.ring {
		calls = append(calls, *l.ring[(l.next+i)%len(l.ring)])
	}
	return calls
}

type callKey struct{}

func withCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func (s *Server) begin(r *http.Request, route string) *Call {
	header := r.Header.Clone()
	for _, secret := range []string{"Authorization", "Private-Token", "Runner-Token", "Job-Token"} {
		header.Del(secret)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	c := &Call{At: s.clock(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Route: route, Header: header}
	s.mu.calls.add(c)
	return c
}

func (s *Server) end(c *Call, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Ended, c.Status = s.clock(), status
}

// note adds to a call's entry what its handler has found out.
func (s *Server) note(r *http.Request, add func(*Call)) {
	c, ok := r.Context().Value(callKey{}).(*Call)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	add(c)
}

func (s *Server) noteToken(r *http.Request, kind, token string) {
	if token == "" {
		return
	}
	s.note(r, func(c *Call) { c.TokenKind, c.TokenHash = kind, HashToken(token) })
}
