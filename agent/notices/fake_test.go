package notices_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/notices"
)

const (
	// within bounds what happens at once on an idle machine.
	within = 80 * time.Second
	// often is how often the tests' watchers ask.
	often = 5 * time.Millisecond

	spotItem      = "/latest/meta-data/spot/instance-action"
	rebalanceItem = "/latest/meta-data/events/recommendations/rebalance"
	lifecycleItem = "/latest/meta-data/autoscaling/target-lifecycle-state"
	idItem        = "/latest/meta-data/instance-id"
)

// imds is AWS's service, version 2 only. Tests change what it holds.
type imds struct {
	*httptest.Server
	t *testing.T

	mu struct {
		sync.Mutex
		items   map[string]string
		tokens  int // given
		valid   string
		ttl     string // that it answers with
		version int    // 1: somebody has asked without a token
		asked   map[string]int
		fault   func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	}
}

func startIMDS(t *testing.T) *imds {
	t.Helper()
	s := &imds{t: t}
	s.mu.items, s.mu.asked = map[string]string{idItem: "i-0123456789abcdef0", lifecycleItem: "InService"}, map[string]int{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *imds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.mu.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asked[r.URL.Path]++
	if r.URL.Path == "/latest/api/token" {
		s.giveToken(w, r)
		return
	}
	item, known := s.mu.items[r.URL.Path]
	switch token := r.Header.Get("X-aws-ec2-metadata-token"); {
	case token == "":
		s.mu.version = 1
		w.WriteHeader(http.StatusUnauthorized)
	case token != s.mu.valid:
		w.WriteHeader(http.StatusUnauthorized)
	case !known:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(item))
	}
}

// giveToken is called with mu held.
func (s *imds) giveToken(w http.ResponseWriter, r *http.Request) {
	ttl, err := strconv.Atoi(r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"))
	if r.Method != http.MethodPut || err != nil || ttl < 1 || ttl > 21600 || r.Header.Get("X-Forwarded-For") != "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.tokens++
	s.mu.valid = "token-" + strconv.Itoa(s.mu.tokens)
	answered := s.mu.ttl
	if answered == "" {
		answered = strconv.Itoa(ttl)
	}
	w.Header().Set("X-aws-ec2-metadata-token-ttl-seconds", answered)
	_, _ = w.Write([]byte(s.mu.valid))
}

func (s *imds) set(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.items[path] = body
}

func (s *imds) breakWith(fault func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fault = fault
}

// asked counts the questions for an item that were not met by a fault.
func (s *imds) asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.asked[path]
}

// awaitQuestions waits until an item has been asked for n more times.
func (s *imds) awaitQuestions(path string, n int) {
	s.t.Helper()
	from := s.asked(path)
	require.Eventually(s.t, func() bool { return s.asked(path) >= from+n }, within, time.Millisecond)
}

// journal is a log that tests read.
type journal struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.String()
}

func (j *journal) log() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func open(t *testing.T, cloud notices.Cloud, endpoint string, j *journal) *notices.Watcher {
	t.Helper()
	o := notices.Options{Cloud: cloud, Endpoint: endpoint, Every: often}
	if j != nil {
		o.Log = j.log()
	}
	w, err := notices.Open(t.Context(), o)
	require.NoError(t, err)
	return w
}

// watch watches until the test ends.
func watch(t *testing.T, w *notices.Watcher) <-chan notices.Notice {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return w.Watch(ctx)
}

func next(t *testing.T, c <-chan notices.Notice) notices.Notice {
	t.Helper()
	select {
	case n := <-c:
		return n
	case <-time.After(within):
		require.FailNow(t, "nothing was heard")
		panic("unreachable")
	}
}

func requireNothing(t *testing.T, c <-chan notices.Notice) {
	t.Helper()
	select {
	case n := <-c:
		require.FailNow(t, "heard", "%s", n)
	default:
	}
}
