package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"

	"github.com/spillway-ci/spillway/config"
)

// Limits of the HTTP listener: every answer is small and every request has no
// body.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second // a scrape of a large fleet over a slow link
	idleTimeout       = 2 * time.Minute  // longer than a scrape interval
	maxHeaderBytes    = 16 << 10
	maxScrapes        = 4 // at once: each builds the whole page
	// checkTimeout is shorter than the second that probes usually allow.
	checkTimeout = 900 * time.Millisecond
)

// Check is one thing without which the control plane is not ready. Run returns
// nil if it is fine, promptly when ctx ends.
type Check struct {
	Name string // "store"
	Run  func(ctx context.Context) error
}

// NewHTTPHandler serves /metrics, /healthz (the process answers) and /readyz
// (every check is fine).
func NewHTTPHandler(m *Metrics, checks []Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: writeTimeout - 5*time.Second,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	var looks singleflight.Group
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		// All that ask at a time get one answer: anybody may, and each look takes a connection
		// to the store.
		found, _, _ := looks.Do("", func() (any, error) { return lookAt(context.WithoutCancel(r.Context()), checks), nil })
		is := found.(readiness)
		answer(w, is.code, is.body)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // the asker has gone: nothing to do about it
}

// readiness is an answer of /readyz.
type readiness struct {
	code int
	body string
}

// lookAt runs all checks at once and says line by line which one fails.
func lookAt(ctx context.Context, checks []Check) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	lines := make([]string, len(checks))
	failed := make([]bool, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			lines[i] = "ok " + c.Name
			if err := c.Run(ctx); err != nil {
				failed[i] = true
				lines[i] = fmt.Sprintf("fail %s: %s", c.Name, config.Redact(err.Error()))
			}
		})
	}
	wg.Wait()
	code := http.StatusOK
	for _, f := range failed {
		if f {
			code = http.StatusServiceUnavailable
		}
	}
	if len(lines) == 0 {
		lines = []string{"ok"}
	}
	return readiness{code, strings.Join(lines, "\n") + "\n"}
}

func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
