package notices_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/notices"
)

func TestAWSFromNothingToTheEnd(t *testing.T) {
	s := startIMDS(t)
	w := open(t, notices.AWS, s.URL, nil)
	id, err := w.InstanceID(t.Context())
	require.NoError(t, err)
	require.Equal(t, "i-0123456789abcdef0", id)
	heard := watch(t, w)
	s.awaitQuestions(rebalanceItem, 3)
	requireNothing(t, heard)

	s.set(rebalanceItem, `{"noticeTime": "2030-10-27T08:22:00Z"}`)
	require.Equal(t, notices.Notice{Kind: notices.Rebalance}, next(t, heard))
	s.set(lifecycleItem, "Terminated\n")
	require.Equal(t, notices.Notice{Kind: notices.Terminating}, next(t, heard))
	s.set(spotItem, `{"action": "terminate", "time": "2030-10-27T08:24:00Z"}`)
	at := time.Date(2030, 10, 27, 8, 24, 0, 0, time.UTC)
	require.Equal(t, notices.Notice{Kind: notices.Spot, Deadline: at}, next(t, heard))
	s.awaitQuestions(rebalanceItem, 3)
	requireNothing(t, heard) // the same again is no news
	require.Zero(t, s.mu.version, "version 1 is never spoken")
	require.Equal(t, 1, s.mu.tokens, "one token is enough for six hours")
}

func TestAWSReadsWhatItsPagesPromise(t *testing.T) {
	unknown := notices.Notice{Kind: notices.Spot}
	for name, c := range map[string]struct {
		path, body string
		want       notices.Notice
	}{
		"stop":           {spotItem, `{"action": "stop", "time": "x"}`, unknown},
		"hibernate":      {spotItem, `{"action": "hibernate"}`, unknown},
		"warm pool ends": {lifecycleItem, "Warmed:Terminated", notices.Notice{Kind: notices.Terminating}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startIMDS(t)
			s.set(c.path, c.body)
			require.Equal(t, c.want, next(t, watch(t, open(t, notices.AWS, s.URL, nil))))
		})
	}
}

// What can't be read is not taken for a notice, and does not hide another one.
func TestAWSWithAnswersThatMakeNoSense(t *testing.T) {
	for name, body := range map[string]string{
		"no json": "soon", "other action": `{"action": "dance", "time": "2030-10-27T08:24:00Z"}`, "empty": "",
		"too long": `{"action": "stop"` + strings.Repeat(" ", 5000) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			s, j := startIMDS(t), &journal{}
			s.set(spotItem, body)
			heard := watch(t, open(t, notices.AWS, s.URL, j))
			s.awaitQuestions(rebalanceItem, 2)
			requireNothing(t, heard)
			require.Equal(t, 1, strings.Count(j.text(), "not told of interruptions"), "once: %s", j.text())
			s.set(rebalanceItem, `{"noticeTime": "2030-10-27T08:22:00Z"}`)
			require.Equal(t, notices.Rebalance, next(t, heard).Kind)
		})
	}
}

func TestAWSTokenThatIsNotValidAnyMoreIsReplaced(t *testing.T) {
	s := startIMDS(t)
	heard := watch(t, open(t, notices.AWS, s.URL, nil))
	s.awaitQuestions(spotItem, 1)
	s.mu.Lock()
	s.mu.valid = "another instance's"
	s.mu.Unlock()
	s.set(spotItem, `{"action": "terminate"}`)
	require.Equal(t, notices.Spot, next(t, heard).Kind)
}

func TestAWSTokenIsRenewedBeforeItEnds(t *testing.T) {
	s := startIMDS(t)
	s.mu.ttl = "1"
	watch(t, open(t, notices.AWS, s.URL, nil))
	s.awaitQuestions("/latest/api/token", 3)
}

// A service that takes no token is not asked for ever at full speed.
func TestAWSThatRefusesEveryToken(t *testing.T) {
	s := startIMDS(t)
	s.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	w := open(t, notices.AWS, s.URL, nil)
	heard := watch(t, w)
	s.awaitQuestions("/latest/api/token", 6)
	requireNothing(t, heard)
	s.breakWith(nil)
	s.set(spotItem, `{"action": "terminate"}`)
	require.Equal(t, notices.Spot, next(t, heard).Kind)
}

func TestAWSThatIsBrokenForAWhile(t *testing.T) {
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request){
		"5xx":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"turned off":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"cut off":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"endless":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"slow":          func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no token text": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a b")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := startIMDS(t), &journal{}
			var met atomic.Int64
			s.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
				met.Add(1)
				fault(w, r)
				return true
			})
			heard := watch(t, open(t, notices.AWS, s.URL, j))
			require.Eventually(t, func() bool {
				return met.Load() >= 2 && strings.Contains(j.text(), "not told of interruptions")
			}, within, time.Millisecond)
			requireNothing(t, heard)
			s.set(spotItem, `{"action": "terminate"}`)
			s.breakWith(nil)
			require.Equal(t, notices.Spot, next(t, heard).Kind)
			require.Eventually(t, func() bool { return strings.Contains(j.text(), "answers again") }, within, time.Millisecond)
			before, _, _ := strings.Cut(j.text(), "answers again")
			require.Equal(t, 1, strings.Count(before, "not told of interruptions"), "once: %s", before)
			require.NotContains(t, j.text(), "token-", "a token is a secret")
		})
	}
}

// A redirect would take our token to wherever it points.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var lured atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { lured.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, method := range []string{http.MethodPut, http.MethodGet} {
		s, j := startIMDS(t), &journal{}
		s.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method {
				return false
			}
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return true
		})
		heard := watch(t, open(t, notices.AWS, s.URL, j))
		require.Eventually(t, func() bool { return strings.Contains(j.text(), "status 307") }, within, time.Millisecond)
		requireNothing(t, heard)
	}
	require.Zero(t, lured.Load())
}

func TestAnIDThatCanBeNoneIsRefused(t *testing.T) {
	s := startIMDS(t)
	longest := strings.Repeat("i", 128)
	s.set(idItem, longest)
	var bad atomic.Int64
	s.breakWith(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != idItem || bad.Add(1) > 2 {
			return false
		}
		_, _ = w.Write([]byte([]string{"", "i-1\ni-2", longest + "i"}[bad.Load()]))
		return true
	})
	id, err := open(t, notices.AWS, s.URL, nil).InstanceID(t.Context())
	require.NoError(t, err)
	require.Equal(t, longest, id)
	require.GreaterOrEqual(t, bad.Load(), int64(3))
}
