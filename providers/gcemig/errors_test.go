package gcemig_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestErrorsAreClassified(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
		after  time.Duration
	}{
		"throttled":              {failure(429, "rateLimitExceeded", "Retry-After", "7"), pluginsdk.ErrThrottled, 7 * time.Second},
		"throttled, the old way": {failure(403, "rateLimitExceeded"), pluginsdk.ErrThrottled, 0},
		"no quota":               {failure(403, "quotaExceeded"), pluginsdk.ErrQuota, 0},
		"no credentials":         {failure(401, "required"), pluginsdk.ErrAuth, 0},
		"denied":                 {failure(403, "forbidden"), pluginsdk.ErrAuth, 0},
		"no such group":          {failure(404, "notFound"), pluginsdk.ErrNotFound, 0},
		"bad request":            {failure(400, "invalid"), pluginsdk.ErrInvalid, 0},
		"not ready":              {failure(400, "resourceNotReady"), pluginsdk.ErrTransient, 0},
		"somebody was first":     {failure(412, "conditionNotMet"), pluginsdk.ErrTransient, 0},
		"their failure":          {failure(500, "backendError", "Retry-After", "soon"), pluginsdk.ErrTransient, 0},
		"nonsense":               {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{nonsense") }, pluginsdk.ErrTransient, 0},
		"hangs up":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, pluginsdk.ErrTransient, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{fail: c.answer, failFrom: 1}
			p := serve(t, a, "linux")
			_, listErr := p.ListInstances(t.Context(), "linux")
			_, setErr := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: 1})
			for _, err := range []error{listErr, setErr} {
				require.ErrorIs(t, err, c.want)
				var classified *pluginsdk.Error
				require.ErrorAs(t, err, &classified)
				require.GreaterOrEqual(t, classified.RetryAfter, min(c.after, time.Second))
			}
			require.LessOrEqual(t, a.calls.Load(), int64(2), "nothing is repeated")
		})
	}
}

// The place that a list is about is not a group.
func TestAnUnknownPlaceIsNoUnknownGroup(t *testing.T) {
	p := serve(t, &api{fail: failure(404, "notFound"), failFrom: 1}, "linux")
	_, err := p.Status(t.Context(), []string{"linux"})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}

// A call that would come too late is not made, and says when to come again.
func TestTheBudgetLimitsCalls(t *testing.T) {
	const deadline = 3 * time.Second // the next call is due in ten
	var a *api
	var err error
	for took := deadline; took >= deadline; { // else a busy machine has it pass
		a = &api{scope: "zones/z", groups: []map[string]any{group("linux", 1, true)}}
		p := serveScope(t, a, map[string]any{"zone": "z", "api_rate": 0.1}, []string{"linux"})
		began := time.Now()
		_, err = p.Status(t.Context(), []string{"linux"})
		require.NoError(t, err)
		_, err = p.Status(withDeadline(t, deadline), []string{"linux"})
		took = time.Since(began)
	}
	var classified *pluginsdk.Error
	require.ErrorAs(t, err, &classified)
	require.Equal(t, pluginsdk.KindThrottled, classified.Kind)
	require.Greater(t, classified.RetryAfter, time.Second)
	require.EqualValues(t, 1, a.calls.Load())
}

// The API that said "too many" is left alone for as long as it asked.
func TestThrottlingSlowsDown(t *testing.T) {
	a := &api{fail: failure(429, "rateLimitExceeded", "Retry-After", "300"), failFrom: 1}
	p := serve(t, a, "linux")
	for range 5 {
		_, err := p.ListInstances(withDeadline(t, time.Minute), "linux")
		require.ErrorIs(t, err, pluginsdk.ErrThrottled)
	}
	require.EqualValues(t, 1, a.calls.Load())
}

// X15: failed calls leave nothing open.
func TestX15_FailedCallsLeaveNothingOpen(t *testing.T) {
	a := &api{fail: failure(503, "backendError"), failFrom: 1}
	p := serveScope(t, a, map[string]any{"zone": "z", "api_rate": 1000}, []string{"linux"})
	call := func(n int) {
		for range n {
			_, err := p.ListInstances(t.Context(), "linux")
			require.ErrorIs(t, err, pluginsdk.ErrTransient)
			_, err = p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: 1})
			require.ErrorIs(t, err, pluginsdk.ErrTransient)
		}
	}
	call(20)
	before := openFiles(t)
	call(500)
	require.Eventually(t, func() bool { return openFiles(t) <= before+2 }, time.Minute, 10*time.Millisecond)
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("SKIPPED: this system does not show what a process has open")
	}
	return len(list)
}
