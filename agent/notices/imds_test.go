package notices_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/notices"
)

// request is what of a question the threat model is about.
type request struct{ method, path, token string }

// recorder notes every question, and has some of them fail.
type recorder struct {
	mu struct {
		sync.Mutex
		all []request
	}
}

func (r *recorder) note(q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.all = append(r.mu.all, request{q.Method, q.URL.Path, q.Header.Get("X-aws-ec2-metadata-token")})
}

func (r *recorder) noted() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.all[:len(r.mu.all):len(r.mu.all)]
}

// Whatever the service does, nothing is ever asked of it without a token: no way back
// to version 1, and nothing of the instance's credentials.
func TestT14_NothingIsAskedWithoutAToken(t *testing.T) {
	isPut := func(r *http.Request) bool { return r.Method == http.MethodPut }
	for name, c := range map[string]struct {
		fails  func(*http.Request) bool
		status int
		gets   bool // whether a token was given, so that there are questions
	}{
		"works":                           {func(*http.Request) bool { return false }, 0, true},
		"gives no token: forbidden":       {isPut, http.StatusForbidden, false},
		"gives no token: version 1 only":  {isPut, http.StatusNotFound, false},
		"gives no token: method unknown":  {isPut, http.StatusMethodNotAllowed, false},
		"gives an empty token":            {isPut, http.StatusOK, false},
		"takes no token":                  {func(r *http.Request) bool { return !isPut(r) }, http.StatusUnauthorized, true},
		"says that the question is wrong": {func(r *http.Request) bool { return !isPut(r) }, http.StatusBadRequest, true},
		"is broken":                       {func(*http.Request) bool { return true }, http.StatusInternalServerError, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, seen := startIMDS(t), &recorder{}
			s.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
				seen.note(r)
				if !c.fails(r) {
					return false
				}
				w.WriteHeader(c.status)
				return true
			})
			watch(t, open(t, notices.AWS, s.URL, nil))
			require.Eventually(t, func() bool { return len(seen.noted()) >= 6 }, within, time.Millisecond)
			gets := 0
			for _, q := range seen.noted() {
				require.NotContains(t, q.path, "/iam")
				require.NotContains(t, q.path, "/user-data")
				if q.method == http.MethodPut {
					require.Equal(t, "/latest/api/token", q.path)
					continue
				}
				require.Equal(t, http.MethodGet, q.method)
				require.NotEmpty(t, q.token, "%s was asked for without a token", q.path)
				gets++
			}
			require.Equal(t, c.gets, gets > 0)
		})
	}
}
