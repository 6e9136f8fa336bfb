package frontproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

// answers is a GitLab that gives job 7 and answers updates with a status.
func answers(status int, jobStatus string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if jobStatus != "" {
			w.Header().Set("Job-Status", jobStatus)
		}
		w.WriteHeader(status)
	})
}

func TestAJobEndsWhenGitLabAcceptsIt(t *testing.T) {
	tests := []struct {
		state     string
		status    int
		jobStatus string
		open      bool
	}{
		{"success", 200, "", false},
		{"failed", 200, "", false},
		{"canceled", 200, "", false},
		{"success", 202, "", true},
		{"success", 409, "", true},
		{"success", 412, "", true},
		{"success", 429, "", true},
		{"success", 500, "", true},
		{"success", 502, "", true},
		{"running", 200, "", true},
		{"pending", 200, "", true}, // a keep-alive: the runner prepares, and will run it
		{"", 200, "", true},
		{"failed", 403, "canceled", false},
		{"failed", 403, "failed", false},
		{"running", 403, "canceled", true}, // it is still being ended on the machine
		{"failed", 403, "pending", true},   // another machine may have it
		{"failed", 403, "running", true},
		{"failed", 403, "", true},
		{"failed", 404, "", true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %d %s", tt.state, tt.status, tt.jobStatus), func(t *testing.T) {
			s := newStand(t, answers(tt.status, tt.jobStatus))
			require.Equal(t, http.StatusCreated, s.ask("s_1").status)
			text := fmt.Sprintf(`{"token":%q,"state":%q,"info":{"name":"gitlab-runner"}}`, jobToken, tt.state)
			a := s.do(http.MethodPut, "/api/v4/jobs/7", text)
			require.Equal(t, tt.status, a.status)
			require.Equal(t, tt.open, s.book.has("7"))
			require.Equal(t, !tt.open, strings.Contains(s.log.all(), "ended 7"))
		})
	}
}

func TestAnUpdateThatIsTooLargePassesWhole(t *testing.T) {
	length := make(chan int, 1)
	s := newStand(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		length <- len(body)
	}))
	s.book.open["7"] = store.RoutedJob{ID: "7"}
	text := `{"token":"x","filler":"` + strings.Repeat("f", 100_000) + `","state":"success"}`
	require.Equal(t, 200, s.do(http.MethodPut, "/api/v4/jobs/7", text).status)
	require.Equal(t, len(text), <-length)
	require.True(t, s.book.has("7"), "what could not be read ends nothing")
	text = `{"state":"success","filler":"` + strings.Repeat("f", 100_000) + `"}`
	require.Equal(t, 200, s.do(http.MethodPut, "/api/v4/jobs/7", text).status)
	require.Equal(t, len(text), <-length)
	require.False(t, s.book.has("7"))
}

func TestUpdatesAreContactsOfTheMachine(t *testing.T) {
	for status, heard := range map[int]int{202: 3, 416: 3, 500: 3, 401: 0, 403: 0, 404: 0} {
		s := newStand(t, answers(status, ""))
		require.Equal(t, http.StatusCreated, s.ask("s_1").status)
		before := s.contacts.times("s_1")
		s.do(http.MethodPatch, "/api/v4/jobs/7/trace?debug_trace=false", "text")
		s.do(http.MethodPatch, "/api/v4/jobs/7/trace/", "text")
		s.do(http.MethodPut, "/api/v4/jobs/7", `{"state":"running"}`)
		s.do(http.MethodPatch, "/api/v4/jobs/8/trace", "text")
		require.Equal(t, heard, s.contacts.times("s_1")-before, "GitLab answers %d", status)
	}
}

func TestJobsThatWereGivenElsewhereAreFoundInTheBook(t *testing.T) {
	s := newStand(t, answers(202, ""))
	s.run()
	s.book.Lock()
	s.book.open["9"] = store.RoutedJob{ID: "9", Machine: "s_9", Pool: "p"}
	s.book.Unlock()
	s.eventually(func() bool {
		s.do(http.MethodPatch, "/api/v4/jobs/9/trace", "text")
		return s.contacts.times("s_9") > 0
	}, "heard")
}

func TestTheEndOfAJobIsNotLostWithTheStore(t *testing.T) {
	s := newStand(t, answers(200, ""))
	require.Equal(t, http.StatusCreated, s.ask("s_1").status)
	s.book.fail(errDown)
	require.Equal(t, 200, s.do(http.MethodPut, "/api/v4/jobs/7", `{"state":"success"}`).status, "GitLab's answer is the runner's")
	require.Contains(t, s.log.all(), "store end: store is down")
	s.run()
	s.eventually(func() bool { return strings.Count(s.log.all(), "store end") > 1 }, "tried again")
	s.book.fail(nil)
	s.eventually(func() bool { return !s.book.has("7") }, "struck")
}

func TestTheClientsHangUpDoesNotLoseTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
	}))
	s.book.open["7"] = store.RoutedJob{ID: "7", Machine: "s_1"}
	s.book.events = func(string) { cancel() }
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, s.front.URL+"/api/v4/jobs/7", strings.NewReader(`{"state":"success"}`))
	require.NoError(t, err)
	if resp, err := http.DefaultClient.Do(request); err == nil {
		_ = resp.Body.Close()
	}
	require.False(t, s.book.has("7"))
}

func TestVerifyTellsTheFingerprint(t *testing.T) {
	text := "{\n  \"id\": 5,\n  \"token\": \"x\", \"token_expires_at\":null }\n"
	tests := []struct {
		name, token, body, want string
		status                  int
	}{
		{"ours", runnerToken, text, "{\n  \"id\": 5,\n  \"token\": \"x\", \"token_expires_at\":null ,\"capability_fingerprint\":\"f1\"}\n", 200},
		{"another's", "glrt-other", text, text, 200},
		{"refused", runnerToken, `{"message":"403"}`, `{"message":"403"}`, 403},
		{"empty", runnerToken, `{}`, `{"capability_fingerprint":"f1"}`, 200},
		{"no object", runnerToken, `[1]`, `[1]`, 200},
		{"no JSON", runnerToken, `<html>}`, `<html>}`, 200},
		{"it is there", runnerToken, `{"capability_fingerprint":"z"}`, `{"capability_fingerprint":"z"}`, 200},
		{"too large", runnerToken, `{"x":"` + strings.Repeat("x", 64<<10) + `"}`, `{"x":"` + strings.Repeat("x", 64<<10) + `"}`, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				require.JSONEq(t, `{"token":"`+tt.token+`"}`, string(body))
				w.Header().Set("X-Other", "kept")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}), func(o *frontproxy.Options) {
				o.Fingerprint = func(token string) string {
					if token == runnerToken {
						return "f1"
					}
					return ""
				}
			})
			a := s.do(http.MethodPost, "/api/v4/runners/verify", `{"token":"`+tt.token+`"}`)
			require.Equal(t, tt.status, a.status)
			require.Equal(t, tt.want, a.body)
			require.Equal(t, "kept", a.header.Get("X-Other"))
			if n := a.header.Get("Content-Length"); n != "" {
				require.Equal(t, fmt.Sprint(len(tt.want)), n)
			}
		})
	}
}

func TestDeletingAManagerEndsTheContact(t *testing.T) {
	status := http.StatusNoContent
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
	}))
	hash := route.HashToken(runnerToken)
	s.do(http.MethodDelete, "/api/v4/runners/managers", `{"token":"`+runnerToken+`","system_id":"s_1"}`)
	s.do(http.MethodDelete, "/api/v4/runners/managers?system_id=s_2&token="+runnerToken, "")
	s.do(http.MethodDelete, "/api/v4/runners/managers", `{"token":"another","system_id":"s_3"}`)
	s.do(http.MethodDelete, "/api/v4/runners/managers", `{"token":"`+runnerToken+`"}`)
	status = http.StatusForbidden
	s.do(http.MethodDelete, "/api/v4/runners/managers", `{"token":"`+runnerToken+`","system_id":"s_4"}`)
	require.Equal(t, []string{hash + " s_1", hash + " s_2"}, s.contacts.forgotten)
}

func TestDiscoveryIsAnsweredHere(t *testing.T) {
	here := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"server_url":"grpc://x:1"}`) })
	s := newStand(t, gives(http.StatusNotImplemented, "gitlab"), func(o *frontproxy.Options) { o.Discovery = here })
	require.JSONEq(t, `{"server_url":"grpc://x:1"}`, s.do(http.MethodGet, "/api/v4/runners/router/discovery", "").body)
	without := newStand(t, gives(http.StatusNotImplemented, "gitlab"))
	require.Equal(t, "gitlab", without.do(http.MethodGet, "/api/v4/runners/router/discovery", "").body)
}

func TestAClientThatDoesNotSendItsBodyIsNotWaitedForEver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	s := newStand(t, gives(http.StatusNoContent, ""))
	conn, in := s.dial()
	_, err := io.WriteString(conn, "POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "400")
}
