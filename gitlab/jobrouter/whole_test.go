package jobrouter_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// The ports are what the real parts have.
var (
	_ jobrouter.Leases   = (*store.Store)(nil)
	_ jobrouter.Book     = (*store.Store)(nil)
	_ jobrouter.GitLab   = (*gitlab.Client)(nil)
	_ jobrouter.Contacts = (*route.Contacts)(nil)
)

const patience = 90 * time.Second

// whole is a GitLab, a store and a job router, with nothing made up but the GitLab.
type whole struct {
	t       *testing.T
	gitlab  *gitlabtest.Server
	store   *store.Store
	desk    *jobrouter.Desk
	url     string // that runners have as their GitLab
	token   string
	project int64
	pool    spillway.Pool
}

func newWhole(t *testing.T, scheme string, hold int) *whole {
	t.Helper()
	w := &whole{t: t, gitlab: gitlabtest.New(gitlabtest.Options{}), pool: spillway.Pool{
		Name: "linux", CapacityPerInstance: 1, Capability: spillway.Capability{RunUntagged: true},
	}}
	t.Cleanup(w.gitlab.Close)
	w.project = w.gitlab.AddProject("group/project")
	_, w.token = w.gitlab.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	behind := httptest.NewServer(w.gitlab)
	t.Cleanup(behind.Close)

	var err error
	w.store, err = store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	client, err := gitlab.New(gitlab.Options{URL: behind.URL})
	require.NoError(t, err)
	tokens := route.NewTokens(map[string][]spillway.Pool{w.token: {w.pool}})
	w.desk, err = jobrouter.NewDesk(jobrouter.Options{
		Replica: "a", Leases: w.store, Book: w.store, GitLab: client, Tokens: tokens,
		Contacts: route.NewContacts(w.store, "a", route.Events{}), HoldPerToken: hold,
		LongPoll: 2 * time.Second, PollEvery: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.desk.Run(ctx) // always nil
	}()
	t.Cleanup(func() { stop(); <-ended })
	w.front(scheme, tokens, behind)
	return w
}

// front puts discovery before GitLab and passes everything else on, as an ingress does.
func (w *whole) front(scheme string, tokens *route.Tokens, behind *httptest.Server) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	tunnel := jobrouter.NewTunnel(tokens)
	server := grpc.NewServer(jobrouter.ServerOptions(nil)...)
	jobrouter.NewService(w.desk).Register(server)
	for _, l := range []net.Listener{lis, tunnel} {
		go func() { _ = server.Serve(l) }() // it ends with Stop
	}
	w.t.Cleanup(server.Stop)
	mux := http.NewServeMux()
	mux.Handle("/", w.gitlab)
	mux.Handle("/tunnel", tunnel)
	front := httptest.NewServer(mux)
	w.t.Cleanup(front.Close)
	w.url = front.URL
	address := map[string]string{"grpc": "grpc://" + lis.Addr().String(), "ws": strings.Replace(front.URL, "http", "ws", 1) + "/tunnel"}[scheme]
	discovery, err := jobrouter.NewDiscovery(address, tokens, w.desk.Draining)
	require.NoError(w.t, err)
	mux.Handle(jobrouter.DiscoveryPath, discovery)
}

func (w *whole) runner(system string) *minirunner.Runner {
	w.t.Helper()
	r, err := minirunner.New(minirunner.Options{
		URL: w.url, Token: w.token, SystemID: system, Router: true, WorkDir: w.t.TempDir(), Times: minirunner.GitLabTimes().Scaled(0.01),
	})
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // it is stopped
	}()
	w.t.Cleanup(func() { stop(); <-ended })
	return r
}

func (w *whole) succeed(id int64) gitlabtest.JobView {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	job, err := w.gitlab.Wait(ctx, id, "success")
	require.NoError(w.t, err)
	return job
}

func (w *whole) enqueue(name string) int64 {
	return w.gitlab.Enqueue(gitlabtest.JobSpec{Project: w.project, Name: name, Script: []string{"echo hello from " + name}})
}

func TestRunnersRunTheirJobsThroughTheRouter(t *testing.T) {
	for _, scheme := range []string{"grpc", "ws"} {
		t.Run(scheme, func(t *testing.T) {
			w := newWhole(t, scheme, 0)
			runners := []*minirunner.Runner{w.runner("s_one"), w.runner("s_two")}
			for i := range 6 {
				name := fmt.Sprintf("job-%d", i)
				require.Contains(t, w.succeed(w.enqueue(name)).Trace, "hello from "+name)
			}
			for _, r := range runners {
				require.Zero(t, r.Stats().Direct)
				require.False(t, r.Stats().Off)
			}
			for _, c := range w.gitlab.CallsTo(gitlabtest.RouteRequestJob) {
				require.Equal(t, "a", c.Header.Get("X-Spillway-Replica"), "one asks for all")
			}
			books, err := w.store.Routed(t.Context(), "linux", true)
			require.NoError(t, err)
			require.Equal(t, 6, books.Machines["s_one"].Uses+books.Machines["s_two"].Uses)

			// And a drained router is as if there were none.
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, w.desk.Drain(ctx))
			w.succeed(w.enqueue("after"))
			require.NotZero(t, runners[0].Stats().Direct+runners[1].Stats().Direct)
		})
	}
}

func TestFromZeroTheKeptJobRunsOnTheFirstMachine(t *testing.T) {
	w := newWhole(t, "grpc", 1)
	id := w.enqueue("first")
	require.Eventually(t, func() bool { return len(w.desk.Held()) == 1 }, patience, 5*time.Millisecond)
	job, ok := w.gitlab.Job(id)
	require.True(t, ok)
	require.True(t, job.Waiting)
	w.runner("s_one")
	w.succeed(id)
}

func TestAJobGoesToTheMachineThatIsNotToBeDrained(t *testing.T) {
	w := newWhole(t, "grpc", 0)
	require.NoError(t, w.store.PutMachines(t.Context(), []router.Machine{
		{ID: "s_one", Pool: "linux", Capacity: 1, RegisteredAt: time.Now(), HeardAt: time.Now()},
	}))
	require.NoError(t, w.store.OrderDrain(t.Context(), "linux", []router.DrainOrder{{Machine: "s_one", On: true}}))
	cordoned := w.runner("s_one")
	require.Eventually(t, func() bool { return cordoned.Stats().GetJobs > 0 }, patience, 5*time.Millisecond)
	id := w.enqueue("job")
	free := w.runner("s_two")
	w.succeed(id)
	require.Eventually(t, func() bool { return free.Stats().Finished == 1 }, patience, 5*time.Millisecond)
	require.Zero(t, cordoned.Stats().Finished+cordoned.Stats().Direct)
}
