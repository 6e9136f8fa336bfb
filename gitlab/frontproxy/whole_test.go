package frontproxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const system = spillway.MachineID("s_front0000001")

// whole is a runner, the proxy over the real store, and a fake GitLab.
type whole struct {
	t       *testing.T
	gitlab  *gitlabtest.Server
	store   *store.Store
	project int64
	asked   atomic.Int64           // job requests that reached GitLab
	between atomic.Pointer[func()] // called once, between GitLab's 201 and the proxy
}

func newWhole(t *testing.T) *whole {
	t.Helper()
	w := &whole{t: t, gitlab: gitlabtest.New(gitlabtest.Options{})}
	t.Cleanup(w.gitlab.Close)
	w.project = w.gitlab.AddProject("group/project")
	_, token := w.gitlab.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	upstream := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(upstream.Close)

	var err error
	w.store, err = store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.store.Close() })
	contacts := route.NewContacts(w.store, "replica", route.Events{})
	client, err := gitlab.New(gitlab.Options{URL: upstream.URL})
	require.NoError(t, err)
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	proxy, err := frontproxy.New(frontproxy.Options{
		GitLab: target, Book: w.store, Contacts: contacts, Keep: client.KeepPending, Fail: client.FailJob,
		Tokens: route.NewTokens(map[string][]spillway.Pool{token: {{Name: "p", CapacityPerInstance: 1}}}),
	})
	require.NoError(t, err)
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	runner, err := minirunner.New(minirunner.Options{
		URL: front.URL, Token: token, SystemID: string(system), WorkDir: t.TempDir(), Times: minirunner.GitLabTimes().Scaled(0.01),
		Labels: map[string]string{route.InstanceLabel: "i-1"},
	})
	require.NoError(t, err)
	w.background(contacts.Run, proxy.Run, runner.Run)
	return w
}

// serve is GitLab, with a place to interfere.
func (w *whole) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v4/jobs/request" {
		w.gitlab.ServeHTTP(rw, r)
		return
	}
	w.asked.Add(1)
	recorder := httptest.NewRecorder()
	w.gitlab.ServeHTTP(recorder, r)
	if recorder.Code == http.StatusCreated {
		if f := w.between.Swap(nil); f != nil {
			(*f)()
		}
	}
	for name, values := range recorder.Header() {
		rw.Header()[name] = values
	}
	rw.WriteHeader(recorder.Code)
	_, _ = rw.Write(recorder.Body.Bytes())
}

func (w *whole) background(loops ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	for _, loop := range loops {
		go func() {
			_ = loop(ctx)
			ended <- struct{}{}
		}()
	}
	w.t.Cleanup(func() {
		cancel()
		for range loops {
			<-ended
		}
	})
}

func (w *whole) order(on bool) {
	require.NoError(w.t, w.store.OrderDrain(w.t.Context(), "p", []router.DrainOrder{{Machine: system, On: on, Reason: "test"}}))
}

func (w *whole) open() []store.RoutedJob {
	book, err := w.store.Routed(w.t.Context(), "p", true)
	require.NoError(w.t, err)
	return book.Machines[system].Open
}

// machine is the runner as it is registered, which is written beside what it asks; zero
// before that.
func (w *whole) machine() (m router.Machine) {
	machines, err := w.store.Machines(w.t.Context())
	require.NoError(w.t, err)
	require.LessOrEqual(w.t, len(machines), 1)
	if len(machines) > 0 {
		m = machines[0]
	}
	return m
}

func (w *whole) enqueue(script string) int64 {
	return w.gitlab.Enqueue(gitlabtest.JobSpec{Project: w.project, Script: []string{script}})
}

func (w *whole) wait(id int64, status string) gitlabtest.JobView {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	j, err := w.gitlab.Wait(ctx, id, status)
	require.NoError(w.t, err)
	return j
}

// TestARunnerBehindTheProxy: a job's way, from the queue to its result, with what the
// scaler sees of it in the store.
func TestARunnerBehindTheProxy(t *testing.T) {
	w := newWhole(t)
	release := filepath.Join(t.TempDir(), "release")
	job := w.enqueue("echo begun; while [ ! -e " + release + " ]; do sleep 0.01; done; echo ended")
	w.wait(job, "running")
	open := w.open()
	require.Len(t, open, 1)
	require.Equal(t, spillway.JobID(strconv.FormatInt(job, 10)), open[0].ID)
	require.Eventually(t, func() bool { return w.machine().InstanceID == "i-1" }, patience, 5*time.Millisecond)
	require.True(t, w.machine().Connected)

	w.order(true)
	require.Len(t, w.open(), 1, "the order leaves what was begun")
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	j := w.wait(job, "success")
	require.Contains(t, j.Trace, "begun\nended\n")
	require.Equal(t, string(system), j.SystemID)
	require.Eventually(t, func() bool { return len(w.open()) == 0 }, patience, 5*time.Millisecond)
}

// TestACordonedRunnerGetsNothing: neither what waits nor what GitLab gave a moment ago.
func TestACordonedRunnerGetsNothing(t *testing.T) {
	w := newWhole(t)
	meanwhile := func() { w.order(true) }
	w.between.Store(&meanwhile)
	job := w.enqueue("true")
	require.Eventually(t, func() bool { j, _ := w.gitlab.Job(job); return j.Kept > 0 }, patience, 5*time.Millisecond)
	require.Empty(t, w.open())

	asked := w.asked.Load()
	second := w.enqueue("true")
	require.Eventually(t, func() bool { return w.machine().ID == system }, patience, 5*time.Millisecond)
	before := w.machine().HeardAt
	require.Eventually(t, func() bool { return w.machine().HeardAt.After(before) }, patience, 20*time.Millisecond, "it goes on asking")
	require.Equal(t, asked, w.asked.Load(), "and GitLab isn't asked for it")
	j, _ := w.gitlab.Job(second)
	require.Equal(t, "pending", j.Status)

	w.order(false)
	w.wait(second, "success")
}
