package gitlabtest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

type hookBody struct {
	BuildID     int64  `json:"build_id"`
	BuildStatus string `json:"build_status"`
	ProjectID   int64  `json:"project_id"`
	PipelineID  int64  `json:"pipeline_id"`
	Runner      *struct {
		ID int64
	}
}

// receiver takes webhooks and answers with a status.
type receiver struct {
	url string
	mu  struct {
		sync.Mutex
		status  int
		bodies  []hookBody
		headers []http.Header
	}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.mu.status = http.StatusOK
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var body hookBody
		_ = json.NewDecoder(request.Body).Decode(&body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.bodies, r.mu.headers = append(r.mu.bodies, body), append(r.mu.headers, request.Header.Clone())
		w.WriteHeader(r.mu.status)
	}))
	t.Cleanup(web.Close)
	r.url = web.URL
	return r
}

func (r *receiver) statuses() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.mu.bodies {
		all = append(all, b.BuildStatus)
	}
	return all
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.status = status
}

func TestWebhooks(t *testing.T) {
	l := newLab(t, stopped())
	r := newReceiver(t)
	l.AddWebhook(r.url, "s3cret")
	id := given(t, l)
	l.put(id, "running")
	l.put(id, "success")
	require.Eventually(t, func() bool { return len(l.HookCalls()) == 3 }, patience, time.Millisecond)
	require.Equal(t, []string{"pending", "running", "success"}, r.statuses())
	require.Nil(t, r.mu.bodies[0].Runner)
	require.Equal(t, l.view(id).RunnerID, r.mu.bodies[1].Runner.ID)
	require.Equal(t, id, r.mu.bodies[1].BuildID)
	require.Equal(t, "Job Hook", r.mu.headers[0].Get("X-Gitlab-Event"))
	require.Equal(t, "s3cret", r.mu.headers[0].Get("X-Gitlab-Token"))
	require.NotEmpty(t, r.mu.headers[0].Get("X-Gitlab-Event-UUID"))
}

func TestWebhooksTwiceAndOutOfOrder(t *testing.T) {
	l := newLab(t, stopped())
	r := newReceiver(t)
	l.AddWebhook(r.url, "", gitlabtest.Delivery{Repeat: 1, Swap: true})
	id := given(t, l)
	l.put(id, "running")
	require.Eventually(t, func() bool { return len(r.statuses()) == 4 }, patience, time.Millisecond)
	require.Equal(t, []string{"running", "running", "pending", "pending"}, r.statuses())
	require.Equal(t, r.mu.headers[0].Get("X-Gitlab-Event-UUID"), r.mu.headers[1].Get("X-Gitlab-Event-UUID"))
}

func TestAFailingWebhookIsDisabled(t *testing.T) {
	l := newLab(t, stopped())
	r := newReceiver(t)
	r.answer(http.StatusServiceUnavailable)
	l.AddWebhook(r.url, "", gitlabtest.Delivery{Retries: 1})
	l.fill(4)
	require.Eventually(t, func() bool { return len(l.HookCalls()) == 8 }, patience, time.Millisecond)
	l.fill(1)
	lost := func(c gitlabtest.HookCall) bool { return c.Lost == "disabled for a while" }
	require.Eventually(t, func() bool { return slices.ContainsFunc(l.HookCalls(), lost) }, patience, time.Millisecond)
	require.Len(t, r.statuses(), 8)
	l.Advance(2 * time.Minute)
	r.answer(http.StatusNotFound)
	l.fill(2)
	dead := func(c gitlabtest.HookCall) bool { return c.Lost == "disabled for good" }
	require.Eventually(t, func() bool { return slices.ContainsFunc(l.HookCalls(), dead) }, patience, time.Millisecond)
}
