package gitlabtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
)

// patience is how long a test waits for what has to happen.
const patience = 90 * time.Second

// lab is a GitLab that serves, with one project.
type lab struct {
	*gitlabtest.Server
	t       testing.TB
	url     string
	project int64
	now     time.Time // when the clock began
}

func newLab(t testing.TB, o gitlabtest.Options) *lab {
	t.Helper()
	l := &lab{Server: gitlabtest.New(o), t: t, now: time.Now()}
	web := httptest.NewServer(l.Server)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		l.Close()
	})
	l.url = web.URL
	l.project = l.AddProject("acme/shop/web")
	return l
}

// stopped is a clock that only Advance moves.
func stopped() gitlabtest.Options {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return gitlabtest.Options{Now: func() time.Time { return at }}
}

func (l *lab) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	l.t.Cleanup(cancel)
	return ctx
}

// runner starts a minirunner and stops it at the end of the test.
func (l *lab) runner(token string, change func(*minirunner.Options)) *minirunner.Runner {
	l.t.Helper()
	o := minirunner.Options{
		URL: l.url, Token: token, Name: "mini", SystemID: "s_one", WorkDir: l.t.TempDir(),
		Times: minirunner.GitLabTimes().Scaled(0.01),
	}
	if change != nil {
		change(&o)
	}
	r, err := minirunner.New(o)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.Run(ctx) })
	l.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return r
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) json(t testing.TB, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.body, into), "%s", r.body)
}

// call makes one call; header is name, value, name, value …
func (l *lab) call(method, path string, body any, header ...string) reply {
	l.t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = bytes.NewReader([]byte(b))
	default:
		text, err := json.Marshal(b)
		require.NoError(l.t, err)
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(l.ctx(), method, l.url+path, content)
	require.NoError(l.t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(l.t, err)
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	require.NoError(l.t, err)
	return reply{response.StatusCode, response.Header, got}
}

type object = map[string]any

// ask requests a job as a runner's machine.
func (l *lab) ask(token, system string, more ...string) reply {
	l.t.Helper()
	body := object{"token": token, "system_id": system, "info": object{"features": object{"two_phase_job_commit": true}}}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return l.call("POST", "/api/v4/jobs/request", body)
}

func (l *lab) put(id int64, state string) reply {
	l.t.Helper()
	return l.call("PUT", jobPath(id), object{"token": l.JobToken(id), "state": state})
}

func (l *lab) view(id int64) gitlabtest.JobView {
	l.t.Helper()
	v, found := l.Job(id)
	require.True(l.t, found)
	return v
}

// bodySays reports whether a request's body has text in it, and leaves it whole.
func bodySays(r *http.Request, text string) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(text))
}
