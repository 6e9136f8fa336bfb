package jobrouter_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// undelivered is a job that GitLab gave to a machine which asked it directly, and which
// did not get it.
func (w *whole) undelivered() (who route.Caller, request []byte, id int64, job []byte) {
	w.t.Helper()
	client, err := gitlab.New(gitlab.Options{URL: w.url})
	require.NoError(w.t, err)
	id = w.enqueue("undelivered")
	request = fmt.Appendf(nil, `{"token":%q,"system_id":"s_one","info":{"features":{"two_phase_job_commit":true}}}`, w.token)
	header := http.Header{"Runner-Token": {w.token}, "Content-Type": {"application/json"}}
	answer, err := client.RequestJob(w.t.Context(), request, header)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusCreated, answer.Status)
	payload, err := gitlab.ParsePayload(answer.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, client.KeepPending(w.t.Context(), payload.ID, payload.Token))
	who, err = route.NewTokens(map[string][]spillway.Pool{w.token: {w.pool}}).Caller(w.token, request)
	require.NoError(w.t, err)
	return who, request, id, answer.Body
}

// offered offers a job until it is taken over: a desk that is slow to get its lease from
// the store refuses, and nothing has happened then.
func (w *whole) offered(job []byte, who route.Caller) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.desk.Offer(w.t.Context(), job, who) }, patience, 5*time.Millisecond)
}

// Nobody has asked for a router yet: the first who asks GitLab directly has it.
func TestAnOfferedJobIsTakenByWhoAsksNext(t *testing.T) {
	w := newWhole(t, "grpc", 0)
	who, request, id, job := w.undelivered()
	w.offered(job, who)
	require.Eventually(t, func() bool { return len(w.desk.Held()) == 1 }, patience, 5*time.Millisecond)
	var got []byte
	require.Eventually(t, func() bool {
		return w.desk.Take(t.Context(), who, request, func(b []byte) error { got = b; return nil })
	}, patience, 5*time.Millisecond)
	require.Equal(t, string(job), string(got))
	require.Contains(t, string(got), fmt.Sprintf(`"id":%d`, id))
	books, err := w.store.Routed(t.Context(), "linux", true)
	require.NoError(t, err)
	require.Len(t, books.Machines["s_one"].Open, 1)
}

func TestAnOfferedJobGoesToWhoWaits(t *testing.T) {
	w := newWhole(t, "grpc", 0)
	who, _, id, job := w.undelivered()
	runner := w.runner("s_two")
	require.Eventually(t, func() bool { return runner.Stats().GetJobs > 0 }, patience, 5*time.Millisecond)
	w.offered(job, who)
	view := w.succeed(id)
	require.Equal(t, 1, count(view, gitlabtest.Running))
}

func count(v gitlabtest.JobView, status string) (n int) {
	for _, change := range v.History {
		if change.Status == status {
			n++
		}
	}
	return n
}

func TestAnOfferIsRefusedWhereItWouldBeLost(t *testing.T) {
	w := newWhole(t, "grpc", 0)
	who, _, _, job := w.undelivered()
	require.False(t, w.desk.Offer(t.Context(), []byte("no job"), who))
	legacy := who
	legacy.TwoPhase = false
	require.False(t, w.desk.Offer(t.Context(), job, legacy), "GitLab takes it as running")

	held, err := w.store.HoldLeases(t.Context(), []string{"gitlab/token/" + who.Token}, "b@", time.Minute)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.False(t, w.desk.Offer(t.Context(), job, who), "another replica has the token's jobs")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.desk.Drain(ctx))
	require.False(t, w.desk.Offer(t.Context(), job, who))
	require.Empty(t, w.desk.Held())
}
