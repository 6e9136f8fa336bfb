package gitlab

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// answering answers every request in one way.
func answering(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		discard(r)
		for name, v := range header {
			w.Header().Set(name, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

var asJSON = map[string]string{"Content-Type": "application/json"}

func TestAnswersThatAreNone(t *testing.T) {
	html := map[string]string{"Content-Type": "text/html; charset=utf-8"}
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		is   error
		says string
	}{
		{"wrong token", answering(401, asJSON, `{"message":"401 Unauthorized"}`), ErrUnauthorized, "gitlab.api_token"},
		{"missing scope", answering(403, asJSON, `{"error":"insufficient_scope","error_description":"The request requires higher privileges","scope":"api read_api"}`), ErrForbidden, "read_api"},
		{"missing right", answering(403, asJSON, `{"message":"403 Forbidden"}`), ErrForbidden, "Reporter"},
		{"gone", answering(404, asJSON, `{"message":"404 Not Found"}`), ErrNotFound, "404 Not Found"},
		{"not its business", answering(405, asJSON, `{"error":"Keyset pagination is not yet available for this type of request"}`), ErrProtocol, "Keyset"},
		{"down", answering(502, html, `<html>`), ErrUnavailable, "502"},
		{"slow", answering(408, nil, ``), ErrUnavailable, "408"},
		{"redirect", answering(302, map[string]string{"Location": "https://elsewhere.example.com/users/sign_in?x=y"}, ``), ErrProtocol, "https://elsewhere.example.com: set gitlab.url"},
		{"redirect within", answering(302, map[string]string{"Location": "/users/sign_in"}, ``), ErrProtocol, "another path"},
		{"a web page", answering(200, html, `<html>Sign in</html>`), ErrProtocol, "web page"},
		{"text", answering(200, map[string]string{"Content-Type": "text/plain"}, `ok`), ErrProtocol, "text/plain"},
		{"bad JSON", answering(200, asJSON, `{"id":`+`]`), ErrProtocol, "not JSON"},
		{"half JSON", answering(200, asJSON, `{"id":7,`), ErrProtocol, "not whole"},
		{"nothing", answering(200, asJSON, ``), ErrProtocol, "not whole"},
		{"other JSON", answering(200, asJSON, `[7]`), ErrProtocol, "JSON array"},
		{"other type inside", answering(200, asJSON, `{"id":"7"}`), ErrProtocol, `"id" is a JSON string`},
		{"two values", answering(200, asJSON, `{"id":7} {"id":8}`), ErrProtocol, "follows"},
		{"another job", answering(200, asJSON, `{"id":8}`), ErrProtocol, "job 8"},
		{"cut off", answering(200, map[string]string{"Content-Type": "application/json", "Content-Length": "100"}, `{"id":7`), ErrUnavailable, "cut off"},
		{"closed", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable, "EOF"},
		{"huge", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range MaxAnswerBytes/len(blank) + 1 {
				if _, err := io.WriteString(w, blank); err != nil {
					return
				}
			}
		}, ErrProtocol, "larger than 32 MiB"},
		{"a huge error", answering(403, asJSON, `{"message":"`+strings.Repeat("x", 1<<20)), ErrForbidden, "Reporter"},
		{"a long message", answering(400, asJSON, `{"message":"`+strings.Repeat("€", 1000)+`"}`), ErrProtocol, "…"},
		{"a GraphQL error", answering(400, asJSON, `{"errors":[{"message":"odd"}]}`), ErrProtocol, "odd"},
		{"an OAuth error", answering(400, asJSON, `{"error":"x","error_description":"odd"}`), ErrProtocol, "odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.h)
			_, err := s.Job(context.Background(), 1, 7)
			require.ErrorIs(t, err, tt.is)
			require.ErrorContains(t, err, tt.says)
			require.Less(t, len(err.Error()), 500)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

var blank = strings.Repeat(" ", 1<<20)

func TestARequestOfJustTheLimit(t *testing.T) {
	full := `{"id":7}` + strings.Repeat(" ", MaxAnswerBytes-len(`{"id":7}`))
	_, err := newStage(t, answering(200, asJSON, full)).Job(context.Background(), 1, 7)
	require.NoError(t, err)
	_, err = newStage(t, answering(200, asJSON, " "+full)).Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrProtocol)
}

func TestLimited(t *testing.T) {
	at := func(d time.Duration) string { return start.Add(d).Format(http.TimeFormat) }
	for _, tt := range []struct {
		name   string
		header map[string]string
		want   time.Duration
	}{
		{"seconds", map[string]string{"Retry-After": "42"}, 42 * time.Second},
		{"a fraction", map[string]string{"Retry-After": "1.5"}, 1500 * time.Millisecond},
		{"a date", map[string]string{"Retry-After": at(time.Minute)}, time.Minute},
		{"the reset in seconds", map[string]string{"RateLimit-Reset": strconv.FormatInt(start.Add(30*time.Second).Unix(), 10)}, 30 * time.Second},
		{"the reset as a date", map[string]string{"RateLimit-ResetTime": at(20 * time.Second)}, 20 * time.Second},
		{"the first one that is readable", map[string]string{"Retry-After": "soon", "RateLimit-Reset": "x", "RateLimit-ResetTime": at(20 * time.Second)}, 20 * time.Second},
		{"nothing", nil, defaultRetryAfter},
		{"a day", map[string]string{"Retry-After": "86400"}, MaxRetryAfter},
		{"for ever", map[string]string{"Retry-After": "1e308"}, MaxRetryAfter},
		{"infinity", map[string]string{"Retry-After": "Inf"}, MaxRetryAfter},
		{"no number", map[string]string{"Retry-After": "NaN"}, minRetryAfter},
		{"negative", map[string]string{"Retry-After": "-5"}, minRetryAfter},
		{"zero", map[string]string{"Retry-After": "0"}, minRetryAfter},
		{"the past", map[string]string{"RateLimit-Reset": "1"}, minRetryAfter},
		{"a far reset", map[string]string{"RateLimit-Reset": "99999999999"}, MaxRetryAfter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, answering(429, tt.header, "Retry later"))
			_, err := s.Job(context.Background(), 1, 7)
			var limited *Limited
			require.ErrorAs(t, err, &limited)
			require.Equal(t, &Limited{RetryAfter: tt.want}, limited)

			_, err = s.Pipeline(context.Background(), 1, 7)
			require.ErrorAs(t, err, &limited)
			require.True(t, limited.Own, "GitLab said when: it is not asked before")
			require.Equal(t, 1, s.count(""))
			s.pass(tt.want)
			_, err = s.Pipeline(context.Background(), 1, 7)
			require.Error(t, err)
			require.Equal(t, 2, s.count(""))
		})
	}
}

func TestAListWaitsAsLongAsGitLabAsks(t *testing.T) {
	left := 2
	list := func(after string) *stage {
		return newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if left > 0 {
				left--
				answering(429, map[string]string{"Retry-After": after}, "")(w, r)
				return
			}
			restList(w, r, 1, func(int64) any { return object{"id": 3} })
		}))
	}
	s := list("20")
	ids, err := s.Ancestors(context.Background(), 1)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, ids)
	require.Equal(t, []time.Duration{20 * time.Second, 20 * time.Second}, s.waits)

	left = 1
	s = list("61") // longer than a list's patience
	_, err = s.Ancestors(context.Background(), 1)
	var limited *Limited
	require.ErrorAs(t, err, &limited)
	require.Empty(t, s.waits)

	left = 3 // more often than a page is asked for
	_, err = list("1").Ancestors(context.Background(), 1)
	require.ErrorAs(t, err, &limited)
}

func TestUnknownCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(answering(200, asJSON, `{"id":7}`))
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	token := func() (string, error) { return apiToken, nil }

	c, err := New(Options{URL: server.URL, Token: token})
	require.NoError(t, err)
	_, err = c.Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "set gitlab.ca_file")

	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	c, err = New(Options{URL: server.URL, Token: token, CAFile: ca})
	require.NoError(t, err)
	_, err = c.Job(context.Background(), 1, 7)
	require.NoError(t, err)

	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	c, err = New(Options{URL: "https://localhost:" + port, Token: token, CAFile: ca})
	require.NoError(t, err)
	_, err = c.Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "certificate is not for localhost")

	require.ErrorContains(t, (&Client{base: c.base}).failed(x509.CertificateInvalidError{Reason: x509.Expired}, nil), "not valid")
}

func TestTLSToAPlainServer(t *testing.T) {
	s := newStage(t, http.NotFoundHandler(), func(o *Options) { o.URL = strings.Replace(o.URL, "http:", "https:", 1) })
	_, err := s.Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "http")
}

func TestNobodyListens(t *testing.T) {
	s := newStage(t, http.NotFoundHandler(), func(o *Options) { o.URL = "http://" + peertest.DeadAddress(t) })
	_, err := s.Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "connection refused")
}

var errLeaseLost = errors.New("the lease was lost")

// Field case X13: a canceled context reported as something else.
func TestX13_TheCauseOfACancelIsKept(t *testing.T) {
	calls := map[string]func(*stage, context.Context) error{
		"a call":        func(s *stage, ctx context.Context) error { _, err := s.Job(ctx, 1, 7); return err },
		"a list":        func(s *stage, ctx context.Context) error { _, err := s.list(ctx, instance, StatusPending); return err },
		"a job request": func(s *stage, ctx context.Context) error { _, err := s.RequestJob(ctx, []byte(`{}`), nil); return err },
		"a job update":  func(s *stage, ctx context.Context) error { return s.KeepPending(ctx, 7, "job-token") },
	}
	for name, call := range calls {
		for _, when := range []string{"before the answer", "within the answer", "before the call"} {
			t.Run(name+", "+when, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				if when == "before the call" {
					cancel(errLeaseLost)
				}
				s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					discard(r)
					if when == "within the answer" {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(map[string]int{"a job request": 201, "a job update": 400}[name] + map[bool]int{true: 200}[!strings.HasPrefix(name, "a job")])
						_, _ = io.WriteString(w, `[{"id":`)
						w.(http.Flusher).Flush()
					}
					cancel(errLeaseLost)
					<-r.Context().Done()
				}))
				err := call(s, ctx)
				require.ErrorIs(t, err, errLeaseLost)
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, ErrUnavailable)
			})
		}
	}
	t.Run("while a list waits", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		s := newStage(t, answering(503, nil, ""))
		s.wait = func(done <-chan struct{}, _ time.Duration) bool { cancel(errLeaseLost); <-done; return false }
		_, err := s.list(ctx, instance, StatusPending)
		require.ErrorIs(t, err, errLeaseLost)
	})
	t.Run("without a cause", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := newStage(t, http.NotFoundHandler()).Job(ctx, 1, 7)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, strings.Count(err.Error(), "canceled"))
	})
}

func TestACallHasALimitOfItsOwn(t *testing.T) {
	s := newStage(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		discard(r)
		<-r.Context().Done()
	}))
	err := s.send(context.Background(), call{what: "wait", method: http.MethodGet, path: "x"}, time.Millisecond, func(answer) error { return nil })
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "no whole answer within 1ms")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's time is not up")
}

// Field case X15: file descriptors leak while calls fail.
func TestX15_FailedCallsLeakNoConnections(t *testing.T) {
	var opened atomic.Int32
	answers := []http.HandlerFunc{
		answering(500, nil, "no"), answering(200, asJSON, `{"id":`), answering(403, asJSON, `{"message":"no"}`), answering(200, map[string]string{"Content-Type": "text/html"}, "<html>"),
	}
	next := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next++
		answers[next%len(answers)](w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c, err := New(Options{URL: server.URL, Token: func() (string, error) { return apiToken, nil }})
	require.NoError(t, err)
	defer c.http.CloseIdleConnections()
	for range 400 {
		_, err := c.Job(context.Background(), 1, 7)
		require.Error(t, err)
	}
	require.Less(t, opened.Load(), int32(400/len(answers)/4), "each body is read and closed, so one connection does, or a few where that is noticed late")
}
