package collect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/webhook"
	"github.com/spillway-ci/spillway/store"
)

// wire is a source over HTTP: the stateful fake of a GitLab, our own client, our own
// receiver of hooks, and the embedded store.
type wire struct {
	t       *testing.T
	server  *gitlabtest.Server
	project int64
	behind  *atomic.Int64 // how far the server's clock is behind ours [ns]
	source  *GitLab
	sources *Sources
	pokes   <-chan struct{}
}

const hookSecret = "a secret of hooks"

// newWire starts a source on a GitLab that prepare has filled.
func newWire(t *testing.T, every time.Duration, prepare func(*wire)) *wire {
	t.Helper()
	w := &wire{t: t, behind: new(atomic.Int64)}
	w.server = gitlabtest.New(gitlabtest.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(w.behind.Load())) }})
	t.Cleanup(w.server.Close)
	front := httptest.NewServer(w.server)
	t.Cleanup(front.Close)
	w.project = w.server.AddProject("group/project")
	prepare(w)
	token := w.server.AddAPIToken(gitlabtest.Admin)
	client, err := gitlab.New(gitlab.Options{URL: front.URL, Token: func() (string, error) { return token, nil }})
	require.NoError(t, err)
	shared, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	w.pokes, err = shared.Pokes(t.Context())
	require.NoError(t, err)
	w.receiveHooks(shared, front.URL)

	w.source, err = New(Options{URL: front.URL, API: client, Store: shared, Replica: "one", Every: every})
	require.NoError(t, err)
	w.sources = NewSources(SourcesOptions{Boards: shared, Origin: front.URL, Every: every})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.source.Run(ctx) })
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	return w
}

func (w *wire) receiveHooks(shared *store.Store, url string) {
	handler, err := webhook.New(webhook.Options{
		Secret: func() (string, error) { return hookSecret, nil },
		Heard: func(ctx context.Context, e webhook.Event) error {
			s, ok := HookSighting(url, e, time.Now())
			if !ok {
				return nil
			}
			return Tell(ctx, shared, s)
		},
	})
	require.NoError(w.t, err)
	receiver := httptest.NewServer(handler)
	w.t.Cleanup(receiver.Close)
	w.server.AddWebhook(receiver.URL, hookSecret)
}

func (w *wire) enqueue(tags ...string) int64 {
	return w.server.Enqueue(gitlabtest.JobSpec{Project: w.project, Tags: tags, Script: []string{"true"}})
}

// eventually waits until so many jobs are demand, and returns the board.
func (w *wire) eventually(jobs int) Board {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		v, err := w.sources.Demand(w.t.Context())
		return err == nil && !v.Partial && jobsOf(v.Classes) == jobs
	}, within, often)
	b, err := w.sources.Board(w.t.Context())
	require.NoError(w.t, err)
	return b
}

func TestX07_AllPagesAreCounted(t *testing.T) {
	newWire(t, 100*time.Millisecond, func(w *wire) {
		for range 250 {
			w.enqueue("a")
		}
	}).eventually(250)
}

func TestAHookOverTheWireReachesTheScaler(t *testing.T) {
	w := newWire(t, time.Hour, func(*wire) {}) // no second list: hooks alone
	w.eventually(0)
	drain(w.pokes)
	id := w.enqueue("b", "a")
	b := w.eventually(1)
	require.Equal(t, []string{"a", "b"}, b.Classes[0].Requirement.Tags)
	require.Equal(t, jobID(id), b.Classes[0].Sample[0])
	select {
	case <-w.pokes:
	case <-time.After(within):
		require.FailNow(t, "no scaler was woken")
	}
	w.server.Cancel(id)
	w.eventually(0)
}

func drain(c <-chan struct{}) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}

func TestC09_OverTheWire(t *testing.T) {
	var old int64
	w := newWire(t, 100*time.Millisecond, func(w *wire) {
		w.behind.Store(int64(26 * time.Hour))
		w.server.Ghost(w.enqueue("a"))
		w.server.FailPipeline(w.enqueue("a"))
		old = w.enqueue("a")
		w.behind.Store(0)
	})
	b := w.eventually(1)
	require.Equal(t, []spillway.JobID{jobID(old)}, b.Classes[0].Sample)
	require.Equal(t, 2, b.Stale)
}

func TestC12_OverTheWire(t *testing.T) {
	w := newWire(t, 50*time.Millisecond, func(w *wire) { w.enqueue("a") })
	w.eventually(1)
	for _, f := range []gitlabtest.Fault{{Status: http.StatusInternalServerError}, {Spoil: gitlabtest.HTML}, {Spoil: gitlabtest.Garbage}} {
		mend := w.server.Fail(f)
		require.Eventually(t, func() bool { return w.source.Status()[0].Err != "" }, within, often)
		v, err := w.sources.Demand(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, jobsOf(v.Classes))
		mend()
		require.Eventually(t, func() bool { return w.source.Status()[0].Err == "" }, within, often)
	}
}
