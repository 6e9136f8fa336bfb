package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const secretToken = "hook-Secret-0123456789"

var start = time.Date(2030, 5, 17, 12, 0, 0, 0, time.UTC)

// receiver is a handler with what it was told, and its clock.
type receiver struct {
	http.Handler
	secret string
	now    time.Time
	fail   error

	mu    sync.Mutex
	heard []Event
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{secret: secretToken, now: start}
	h, err := New(Options{
		Secret: func() (string, error) { return r.secret, nil },
		Heard: func(_ context.Context, e Event) error {
			if r.fail != nil {
				return r.fail
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.heard = append(r.heard, e)
			return nil
		},
		Now: func() time.Time { return r.now },
	})
	require.NoError(t, err)
	r.Handler = h
	return r
}

// send sends a body with the headers of a job hook, changed by name-value pairs.
func (r *receiver) send(body string, header ...string) int {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set(headerToken, secretToken)
	req.Header.Set(headerEvent, jobHook)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Code
}

func (r *receiver) statuses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.heard {
		out = append(out, e.Status)
	}
	return strings.Join(out, " ")
}

func body(status string) string {
	started, finished := "null", "null"
	switch stage(status) {
	case runs:
		started = `"2030-05-17T11:59:50.500Z"`
	case over:
		started, finished = `"2030-05-17T11:59:50.500Z"`, `"2030-05-17T11:59:58Z"`
	case before, waits:
	}
	return fmt.Sprintf(`{"object_kind":"build","build_id":7,"build_name":"test","build_status":%q,"build_created_at":"2030-05-17T10:00:00Z","build_started_at":%s,"build_finished_at":%s,"build_queued_duration":1.5,"pipeline_id":70,"project_id":3,"runner":{"id":5,"tags":["docker"]},"user":{"id":1}}`, status, started, finished)
}

func TestAJobHookIsHeard(t *testing.T) {
	r := newReceiver(t)
	require.Equal(t, http.StatusOK, r.send(body("pending")))
	r.now = start.Add(time.Second)
	require.Equal(t, http.StatusOK, r.send(body("running")))
	require.Equal(t, http.StatusOK, r.send(body("success")))
	e := Event{JobID: 7, ProjectID: 3, PipelineID: 70, Status: "pending", RunnerID: 5, Queued: 1500 * time.Millisecond, At: start}
	running, done := e, e
	running.Status, running.At = "running", time.Date(2030, 5, 17, 11, 59, 50, 500e6, time.UTC)
	done.Status, done.At = "success", time.Date(2030, 5, 17, 11, 59, 58, 0, time.UTC)
	require.Equal(t, []Event{e, running, done}, r.heard)
}

func TestWithoutASecretThereIsNoReceiver(t *testing.T) {
	heard := func(context.Context, Event) error { return nil }
	for _, secret := range []func() (string, error){nil, fixed(""), fixed(" \n"), fixed("1234567")} {
		h, err := New(Options{Secret: secret, Heard: heard})
		require.ErrorIs(t, err, ErrNoSecret)
		require.Nil(t, h)
	}
	_, err := New(Options{Secret: func() (string, error) { return "", os.ErrNotExist }, Heard: heard})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = New(Options{Secret: fixed("12345678")})
	require.Error(t, err)
	_, err = New(Options{Secret: fixed("12345678"), Heard: heard})
	require.NoError(t, err)
}

func fixed(s string) func() (string, error) { return func() (string, error) { return s, nil } }

func TestTheSecret(t *testing.T) {
	r := newReceiver(t)
	for _, wrong := range []string{"", secretToken + "x", secretToken[1:], strings.ToUpper(secretToken), " " + secretToken} {
		require.Equal(t, http.StatusUnauthorized, r.send(body("pending"), headerToken, wrong))
	}
	require.Empty(t, r.heard)
	r.secret = "another-Secret-0123456789\n" // rotated, in a file
	require.Equal(t, http.StatusUnauthorized, r.send(body("pending")))
	require.Equal(t, http.StatusOK, r.send(body("pending"), headerToken, "another-Secret-0123456789"))
	r.secret = ""
	require.Equal(t, http.StatusServiceUnavailable, r.send(body("running"), headerToken, ""), "a secret that went away lets nobody in")
	require.Len(t, r.heard, 1)
}

func TestWhatIsNotAJobHook(t *testing.T) {
	r := newReceiver(t)
	require.Equal(t, http.StatusOK, r.send(`{"object_kind":"push"}`, headerEvent, "Push Hook"), "ignored: GitLab turns off a hook that fails")
	require.Equal(t, http.StatusOK, r.send(`{`, headerEvent, ""))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, http.MethodPost, w.Header().Get("Allow"))
	for _, bad := range []string{
		"", "{", "[]", "null", `{"object_kind":"pipeline"}`, `{"object_kind":"build"}`, `{"object_kind":"build","build_id":7,"build_status":"pending"}`,
		`{"object_kind":"build","build_id":-7,"project_id":3,"build_status":"pending"}`, `{"object_kind":"build","build_id":7,"project_id":3,"build_status":""}`,
		`{"object_kind":"build","build_id":"7","project_id":3,"build_status":"pending"}`, `{"object_kind":"build","build_id":1e30,"project_id":3,"build_status":"pending"}`,
		`{"object_kind":"build","build_id":7,"project_id":3,"build_status":"` + strings.Repeat("x", maxStatusBytes+1) + `"}`, body("pending") + "x",
	} {
		require.Equal(t, http.StatusBadRequest, r.send(bad), bad)
	}
	require.Empty(t, r.heard)
	require.Equal(t, http.StatusOK, r.send(body("pending")+strings.Repeat(" ", MaxBodyBytes-len(body("pending")))))
	require.Equal(t, http.StatusRequestEntityTooLarge, r.send(body("running")+strings.Repeat(" ", MaxBodyBytes-len(body("running"))+1)))
	require.Len(t, r.heard, 1)
}

func TestACutOffBody(t *testing.T) {
	r := newReceiver(t)
	req := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(body("pending")), errReader{}))
	req.Header.Set(headerToken, secretToken)
	req.Header.Set(headerEvent, jobHook)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, r.heard)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestARepeatedHookIsHeardOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status string
		header []string
	}{
		{"by its key", "pending", []string{headerIdempotency, "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"}},
		{"by its event", "pending", []string{headerUUID, "13792a34-cac6-4fda-95a8-c58e00a3954e"}},
		{"by its fact", "running", nil},
		{"by its fact, under another key", "success", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReceiver(t)
			require.Equal(t, http.StatusOK, r.send(body(tt.status), tt.header...))
			r.now = start.Add(RememberFor - 1)
			require.Equal(t, http.StatusOK, r.send(body(tt.status), tt.header...))
			require.Equal(t, tt.status, r.statuses())
			r.now = start.Add(RememberFor)
			require.Equal(t, http.StatusOK, r.send(body(tt.status), tt.header...))
			require.Len(t, r.heard, 2, "the memory has an age")
		})
	}
	t.Run("hooks that one hook set off share its event", func(t *testing.T) {
		r := newReceiver(t)
		other := strings.Replace(body("pending"), `"build_id":7`, `"build_id":8`, 1)
		require.Equal(t, http.StatusOK, r.send(body("pending"), headerUUID, "u"))
		require.Equal(t, http.StatusOK, r.send(other, headerUUID, "u"))
		require.Equal(t, http.StatusOK, r.send(body("running"), headerUUID, "u"))
		require.Len(t, r.heard, 3)
	})
	t.Run("a key that is too long is none", func(t *testing.T) {
		r := newReceiver(t)
		for range 2 {
			require.Equal(t, http.StatusOK, r.send(body("pending"), headerIdempotency, strings.Repeat("k", maxKeyBytes+1), headerUUID, strings.Repeat("k", maxKeyBytes+1)))
		}
		require.Len(t, r.heard, 2)
	})
}

func TestALateHookIsDropped(t *testing.T) {
	r := newReceiver(t)
	for _, status := range []string{"running", "pending", "created", "success", "running", "pending", "failed"} {
		require.Equal(t, http.StatusOK, r.send(body(status)))
	}
	// The last is of the same stage and time as success: not older, so it is heard.
	require.Equal(t, "running success failed", r.statuses())

	early := strings.Replace(body("canceled"), "11:59:58", "11:59:57", 1)
	require.Equal(t, http.StatusOK, r.send(early))
	require.Equal(t, "running success failed", r.statuses(), "older than what was heard")

	require.Equal(t, http.StatusOK, r.send(strings.Replace(body("pending"), `"build_id":7`, `"build_id":8`, 1)))
	require.Len(t, r.heard, 4, "another job, another life: a retried job has a new id")
}

// Whatever the order and however often: what was heard last is the furthest that was sent.
func TestAnyOrderEndsAtTheFurthest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		sent := rapid.SliceOfN(rapid.SampledFrom([]string{"created", "pending", "running", "success"}), 1, 20).Draw(rt, "sent")
		furthest := before
		for _, status := range sent {
			r.now = r.now.Add(time.Second)
			r.send(body(status))
			furthest = max(furthest, stage(status))
		}
		last := before
		for _, e := range r.heard {
			if stage(e.Status) < last {
				rt.Fatalf("heard %s", r.statuses())
			}
			last = stage(e.Status)
		}
		if last != furthest {
			rt.Fatalf("sent %v, heard %s", sent, r.statuses())
		}
	})
}

func TestWhatIsNotKeptIsSentAgain(t *testing.T) {
	r := newReceiver(t)
	r.fail = errors.New("no store: " + secretToken)
	key := []string{headerIdempotency, "k"}
	require.Equal(t, http.StatusServiceUnavailable, r.send(body("running"), key...))
	require.Equal(t, http.StatusServiceUnavailable, r.send(body("running"), key...))
	r.fail = nil
	require.Equal(t, http.StatusOK, r.send(body("running"), key...), "the same hook, heard at last")
	require.Equal(t, "running", r.statuses())
}

func TestHeardHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		h, err := New(Options{Secret: fixed(secretToken), Heard: func(ctx context.Context, _ Event) error {
			<-ctx.Done() // a store that hangs
			return context.Cause(ctx)
		}})
		require.NoError(t, err)
		r.Handler = h
		began := time.Now()
		require.Equal(t, http.StatusServiceUnavailable, r.send(body("running")))
		require.Equal(t, HeardTimeout, time.Since(began))
	})
}

func TestAnswersTellNoReasonsAndNoSecrets(t *testing.T) {
	r := newReceiver(t)
	r.fail = errors.New("no store: " + secretToken)
	for _, b := range []string{body("running"), `{"` + secretToken + `"`, `{"object_kind":"` + secretToken + `"}`} {
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(b))
		req.Header.Set(headerToken, secretToken)
		req.Header.Set(headerEvent, jobHook)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		require.NotContains(t, w.Body.String(), secretToken)
	}
}

func TestTimesOfHooks(t *testing.T) {
	hook := func(status, started, finished string) string {
		return fmt.Sprintf(`{"object_kind":"build","build_id":7,"project_id":3,"build_status":%q,"build_started_at":%s,"build_finished_at":%s}`, status, started, finished)
	}
	eleven := time.Date(2030, 5, 17, 11, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		body string
		want time.Time
	}{
		{hook("running", `"2030-05-17T11:00:00.000Z"`, "null"), eleven},
		{hook("running", `"2030-05-17 11:00:00 UTC"`, "null"), eleven},
		{hook("running", `"2030-05-17T13:00:00+02:00"`, "null"), eleven},
		{hook("failed", "null", `"2030-05-17 11:00:00 UTC"`), eleven},
		{hook("canceled", "null", "null"), start}, // canceled before it ran
		{hook("running", `"yesterday"`, "null"), start},
		{hook("running", `7`, "null"), start},
		{hook("running", `"2031-01-01T00:00:00Z"`, "null"), start}, // a clock ahead
		{hook("pending", `"2030-05-17T11:00:00Z"`, "null"), start},
	} {
		e, err := parse([]byte(tt.body), start)
		require.NoError(t, err, tt.body)
		require.Equal(t, tt.want, e.At, tt.body)
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	m := newMemory(3)
	for i := range int64(10) {
		e := Event{JobID: i, Status: "running", At: start}
		m.heard([]string{fmt.Sprint(i)}, e, start)
		m.heard([]string{fmt.Sprint(i)}, e, start)
	}
	require.Len(t, m.mu.deliveries.values, 3)
	require.Len(t, m.mu.jobs.values, 3)
	require.False(t, m.known([]string{"6"}, Event{JobID: 6, Status: "pending"}, start))
	require.True(t, m.known([]string{"7"}, Event{JobID: 100, Status: "pending"}, start))
	require.True(t, m.known(nil, Event{JobID: 9, Status: "pending"}, start))
}

func TestManyHooksAtOnce(t *testing.T) {
	r := newReceiver(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			b := strings.Replace(body([]string{"pending", "running", "success"}[i%3]), `"build_id":7`, fmt.Sprintf(`"build_id":%d`, i/3+1), 1)
			if code := r.send(b); code != http.StatusOK {
				t.Error(code)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(r.heard), 64)
	require.GreaterOrEqual(t, len(r.heard), 22)
}

func FuzzHook(f *testing.F) {
	for _, status := range []string{"created", "pending", "running", "canceling", "success", "failed", "skipped", "manual"} {
		f.Add([]byte(body(status)))
	}
	f.Add([]byte(`{"object_kind":"build","build_id":7,"project_id":3,"build_status":"pending","build_queued_duration":1e999,"runner":{"id":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newReceiver(t)
		code := r.send(string(b))
		switch code {
		case http.StatusOK:
			if len(r.heard) != 1 {
				t.Fatalf("heard %d times", len(r.heard))
			}
			e := r.heard[0]
			if e.JobID <= 0 || e.ProjectID <= 0 || e.PipelineID < 0 || e.RunnerID < 0 || e.Queued < 0 || e.Status == "" || e.At.After(start) || e.At.IsZero() {
				t.Fatalf("%+v", e)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if len(r.heard) != 0 {
				t.Fatal("heard what was refused")
			}
		default:
			t.Fatalf("status %d for %q", code, bytes.TrimSpace(b))
		}
	})
}
