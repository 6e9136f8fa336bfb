package gitlabtest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// raw makes a call whose answer may be broken.
func (l *lab) raw(token string) (status int, kind string, body []byte, err error) {
	request, err := http.NewRequestWithContext(l.ctx(), http.MethodPost, l.url+"/api/v4/jobs/request", strings.NewReader(`{"token":"`+token+`"}`))
	require.NoError(l.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("Content-Type"), body, err
}

func TestFaults(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	once := func(f gitlabtest.Fault) gitlabtest.Fault {
		f.Route, f.Times = gitlabtest.RouteRequestJob, 1
		return f
	}
	l.Fail(gitlabtest.Limited(gitlabtest.RouteRequestJob, 1, 7*time.Second))
	got := l.ask(token, "s_one")
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.Equal(t, "7", got.header.Get("Retry-After"))
	require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status, "once")

	remove := l.Fail(gitlabtest.Fault{Status: http.StatusBadGateway})
	require.Equal(t, http.StatusBadGateway, l.ask(token, "s_one").status)
	require.Equal(t, http.StatusBadGateway, l.call("GET", "/api/v4/version", nil).status)
	remove()
	require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status)

	l.Fail(once(gitlabtest.Fault{Spoil: gitlabtest.HTML}))
	_, kind, _, err := l.raw(token)
	require.NoError(t, err)
	require.Contains(t, kind, "text/html")

	l.Fail(once(gitlabtest.Fault{Spoil: gitlabtest.Garbage}))
	_, _, body, err := l.raw(token)
	require.NoError(t, err)
	require.Equal(t, "{]\x00", string(body))

	l.Fail(once(gitlabtest.Fault{Spoil: gitlabtest.Huge}))
	_, _, body, err = l.raw(token)
	require.NoError(t, err)
	require.Greater(t, len(body), gitlabtest.HugeBytes)

	l.Fail(once(gitlabtest.Fault{Spoil: gitlabtest.Closed}))
	_, _, _, err = l.raw(token)
	require.Error(t, err)

	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	l.Fail(once(gitlabtest.Fault{Spoil: gitlabtest.Truncated}))
	status, _, _, err := l.raw(token)
	require.Equal(t, http.StatusCreated, status)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotZero(t, l.view(id).RunnerID, "the job was given all the same")

	id = l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	l.Fail(once(gitlabtest.Fault{Late: true, Status: http.StatusServiceUnavailable}))
	status, _, _, err = l.raw(token)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotZero(t, l.view(id).RunnerID)

	l.Fail(once(gitlabtest.Fault{Delay: 30 * time.Millisecond}))
	began := time.Now()
	require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status)
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
}
