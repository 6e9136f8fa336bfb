package gitlab

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const jobToken = "glcbt-64_Job-Secret-0123456789"

func TestRequestJobHandsEveryAnswerOn(t *testing.T) {
	payload := `{"id":7,  "token":"` + jobToken + `"}`
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		want   JobAnswer
	}{
		{"a job, unchanged", 201, map[string]string{"Content-Type": "application/json", "X-Request-Id": "abc"}, payload, JobAnswer{Status: 201, Body: []byte(payload), RequestID: "abc"}},
		{"none", 204, map[string]string{"X-GitLab-Last-Update": "xyz"}, "", JobAnswer{Status: 204, LastUpdate: "xyz"}},
		{"conflict", 409, asJSON, "{}", JobAnswer{Status: 409}},
		{"bad token", 403, asJSON, "{}", JobAnswer{Status: 403}},
		{"limited", 429, map[string]string{"Retry-After": "7"}, "", JobAnswer{Status: 429, RetryAfter: 7 * time.Second}},
		{"limited without a time", 429, nil, "", JobAnswer{Status: 429, RetryAfter: defaultRetryAfter}},
		{"limited for a day", 429, map[string]string{"Retry-After": "86400"}, "", JobAnswer{Status: 429, RetryAfter: MaxRetryAfter}},
		{"down", 503, nil, "<html>", JobAnswer{Status: 503}},
		{"down for a while", 503, map[string]string{"Retry-After": "9"}, "", JobAnswer{Status: 503, RetryAfter: 9 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, _ := io.ReadAll(r.Body)
				require.Equal(t, "glrt-token abc 1 "+`{"token":"glrt-token"}`, r.Header.Get("Runner-Token")+" "+r.Header.Get("X-Request-Id")+" "+r.Header.Get("X-Other")+" "+string(got))
				require.Empty(t, r.Header.Get("Authorization"), "the API token is none of its business")
				answering(tt.status, tt.header, tt.body)(w, r)
			}), func(o *Options) { o.PerMinute = 1 })
			for range 3 { // the API budget is another
				got, err := s.RequestJob(context.Background(), []byte(`{"token":"glrt-token"}`), http.Header{"Runner-Token": {"glrt-token"}, "X-Request-Id": {"abc"}, "X-Other": {"1"}})
				require.NoError(t, err)
				require.Equal(t, tt.want.Status, got.Status)
				require.True(t, tt.want.Status == got.Status && string(tt.want.Body) == string(got.Body) && tt.want.LastUpdate == got.LastUpdate && tt.want.RetryAfter == got.RetryAfter && tt.want.RequestID == got.RequestID)
			}
			require.Equal(t, 3, s.count("POST /api/v4/jobs/request"))
		})
	}
}

func TestRequestJobWithoutAnAnswer(t *testing.T) {
	ask := func(h http.HandlerFunc, body []byte) error {
		_, err := newStage(t, h).RequestJob(context.Background(), body, nil)
		return err
	}
	require.ErrorIs(t, ask(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil), ErrUnavailable)
	require.ErrorIs(t, ask(answering(201, map[string]string{"Content-Type": "text/html"}, "<html>"), nil), ErrProtocol)
	require.ErrorIs(t, ask(answering(201, map[string]string{"Content-Type": "application/json", "Content-Length": "9"}, "{"), nil), ErrUnavailable)
	require.NoError(t, ask(answering(204, nil, ""), make([]byte, MaxRequestBytes)))
	require.ErrorContains(t, ask(answering(204, nil, ""), make([]byte, MaxRequestBytes+1)), "32768")
}

// A job that is too large to be handed on can still be failed by what its beginning says.
func TestRequestJobOfALargeJob(t *testing.T) {
	begin := `{"id":7,"token":"` + jobToken + `","x":"`
	for _, size := range []int{MaxPayloadBytes, MaxPayloadBytes + 1, 2 * MaxPayloadBytes} {
		whole := begin + strings.Repeat("x", size-len(begin)-2) + `"}`
		got, err := newStage(t, answering(201, asJSON, whole)).RequestJob(context.Background(), nil, nil)
		require.NoError(t, err)
		require.Equal(t, size > MaxPayloadBytes, got.Cut)
		require.LessOrEqual(t, len(got.Body), MaxPayloadBytes)
		require.True(t, strings.HasPrefix(whole, string(got.Body)))
		p, err := ParsePayload(got.Body)
		if got.Cut {
			require.ErrorIs(t, err, ErrProtocol)
			p, err = ParsePayloadHead(got.Body)
		}
		require.NoError(t, err)
		require.Equal(t, int64(7), p.ID)
		require.Equal(t, jobToken, p.Token)
	}
	for _, head := range []string{"", "[", `{"id":7`, `{"id":7,"token":"a b","x":`, `{"id":0,"token":"x","x":`, `{"x":"`} {
		_, err := ParsePayloadHead([]byte(head))
		require.ErrorIs(t, err, ErrProtocol, head)
	}
}

// jobAPI plays GitLab for one job in two phases: it takes no log and no end before the job
// runs (app/services/ci/update_build_state_service.rb).
type jobAPI struct {
	state, reason, trace string
	notReady             int // how often the end is answered with 202
	refuse               map[string]int
	said                 []string
}

func (j *jobAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Job-Token") != jobToken {
		writeJSON(w, http.StatusForbidden, object{"message": "403 Forbidden"})
		return
	}
	if r.Method == http.MethodPatch {
		j.said = append(j.said, "trace "+r.Header.Get("Content-Range"))
		if status := j.refuse["trace"]; status != 0 {
			w.WriteHeader(status)
			return
		}
		j.trace = string(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var u update
	if err := json.Unmarshal(body, &u); err != nil || u.Token != jobToken {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	j.said = append(j.said, u.State)
	switch {
	case j.refuse[u.State] != 0:
		w.WriteHeader(j.refuse[u.State])
	case u.State == "failed" && j.state != "running":
		writeJSON(w, http.StatusBadRequest, object{"message": "400 Bad request"})
	case u.State == "failed" && j.notReady > 0:
		j.notReady--
		w.WriteHeader(http.StatusAccepted)
	default:
		j.state, j.reason = u.State, u.FailureReason
		_, _ = io.WriteString(w, "200")
	}
}

func TestKeepPending(t *testing.T) {
	api := &jobAPI{}
	s := newStage(t, api)
	require.NoError(t, s.KeepPending(context.Background(), 7, jobToken))
	require.Equal(t, "pending", api.state)
	require.Equal(t, 1, s.count("PUT /api/v4/jobs/7"))
	require.ErrorIs(t, s.KeepPending(context.Background(), 7, "another"), ErrForbidden)
	require.ErrorIs(t, s.KeepPending(context.Background(), 7, ""), ErrUnauthorized)
	for status, is := range map[int]error{409: ErrConflict, 400: ErrConflict, 403: ErrForbidden, 404: ErrNotFound, 500: ErrUnavailable} {
		api.refuse = map[string]int{"pending": status}
		require.ErrorIs(t, s.KeepPending(context.Background(), 7, jobToken), is)
	}
	api.refuse = map[string]int{"pending": 429}
	var limited *Limited
	require.ErrorAs(t, s.KeepPending(context.Background(), 7, jobToken), &limited)
	require.NoError(t, s.turn(context.Background()), "which says nothing about the API token")
}

func TestFailJob(t *testing.T) {
	api := &jobAPI{notReady: 2}
	s := newStage(t, api)
	require.NoError(t, s.FailJob(context.Background(), 7, jobToken, "runner_system_failure", "refused: no"))
	require.Equal(t, []string{"running", "trace 0-10", "failed", "failed", "failed"}, api.said)
	require.Equal(t, "failed runner_system_failure refused: no", api.state+" "+api.reason+" "+api.trace)

	*api = jobAPI{refuse: map[string]int{"trace": 416}}
	require.Error(t, s.FailJob(context.Background(), 7, jobToken, "runner_system_failure", "x"))
	require.Equal(t, "failed", api.state, "a job that can't be written about must end all the same")

	*api = jobAPI{refuse: map[string]int{"running": 409}}
	require.ErrorIs(t, s.FailJob(context.Background(), 7, jobToken, "runner_system_failure", "x"), ErrConflict)
	require.Equal(t, []string{"running"}, api.said, "it is somebody else's now")

	*api = jobAPI{notReady: updateTries}
	require.ErrorIs(t, s.FailJob(context.Background(), 7, jobToken, "runner_system_failure", ""), ErrUnavailable)

	*api = jobAPI{}
	require.NoError(t, s.FailJob(context.Background(), 7, jobToken, "runner_system_failure", strings.Repeat("x", MaxTraceBytes+1)))
	require.Len(t, api.trace, MaxTraceBytes)
}

func TestVerify(t *testing.T) {
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]string
		require.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		if asked["token"] != "glrt-good" {
			writeJSON(w, http.StatusForbidden, object{"message": "403 Forbidden"})
			return
		}
		require.Equal(t, "s_1", asked["system_id"])
		writeJSON(w, http.StatusOK, object{"id": 5, "token": "glrt-good", "token_expires_at": nil})
	}))
	id, err := s.Verify(context.Background(), "glrt-good", "s_1")
	require.NoError(t, err)
	require.Equal(t, int64(5), id)
	_, err = s.Verify(context.Background(), "glrt-bad", "s_1")
	require.ErrorIs(t, err, ErrUnauthorized)
	_, err = s.Verify(context.Background(), "", "s_1")
	require.ErrorIs(t, err, ErrUnauthorized)
	for body, is := range map[string]error{"200": ErrProtocol, "{}": ErrProtocol, "": ErrProtocol} {
		_, err := newStage(t, answering(200, asJSON, body)).Verify(context.Background(), "glrt-good", "")
		require.ErrorIs(t, err, is)
	}
	var limited *Limited
	_, err = newStage(t, answering(429, nil, "")).Verify(context.Background(), "glrt-good", "")
	require.ErrorAs(t, err, &limited)
	_, err = newStage(t, answering(500, nil, "")).Verify(context.Background(), "glrt-good", "")
	require.ErrorIs(t, err, ErrUnavailable)
}
