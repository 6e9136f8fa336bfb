package jobrouter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
)

// A runner that asks GitLab itself, as for an hour after it found no router, gets the
// job that is kept for its pool, and GitLab would not give it.
func TestAKeptJobIsTakenByAMachineThatAsksDirectly(t *testing.T) {
	w := newWhole(t, "grpc", 1)
	tokens := route.NewTokens(map[string][]spillway.Pool{w.token: {w.pool}})
	asks := func(system string) (route.Caller, []byte) {
		body := fmt.Appendf(nil, `{"token":%q,"system_id":%q,"info":{"features":{"two_phase_job_commit":true}}}`, w.token, system)
		who, err := tokens.Caller(w.token, body)
		require.NoError(t, err)
		return who, body
	}
	none := func([]byte) error {
		t.Error("there is none")
		return nil
	}
	who, body := asks("s_one")
	require.False(t, w.desk.Take(t.Context(), who, body, none))

	id := w.enqueue("first")
	require.Eventually(t, func() bool { return len(w.desk.Held()) == 1 }, patience, 5*time.Millisecond)

	// One that is to be drained does not get it.
	require.NoError(t, w.store.PutMachines(t.Context(), []router.Machine{
		{ID: "s_gone", Pool: "linux", Capacity: 1, RegisteredAt: time.Now(), HeardAt: time.Now()},
	}))
	require.NoError(t, w.store.OrderDrain(t.Context(), "linux", []router.DrainOrder{{Machine: "s_gone", On: true}}))
	gone, goneBody := asks("s_gone")
	require.False(t, w.desk.Take(t.Context(), gone, goneBody, none))
	require.Eventually(t, func() bool { return len(w.desk.Held()) == 1 }, patience, 5*time.Millisecond)

	// One that has hung up does not have it.
	require.Eventually(t, func() bool {
		return w.desk.Take(t.Context(), who, body, func([]byte) error { return errors.New("hung up") })
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return len(w.desk.Held()) == 1 }, patience, 5*time.Millisecond)

	var job []byte
	require.Eventually(t, func() bool {
		return w.desk.Take(t.Context(), who, body, func(b []byte) error { job = b; return nil })
	}, patience, 20*time.Millisecond)
	require.Contains(t, string(job), fmt.Sprintf(`"id":%d`, id))
	require.Empty(t, w.desk.Held())
	books, err := w.store.Routed(t.Context(), "linux", true)
	require.NoError(t, err)
	require.Len(t, books.Machines["s_one"].Open, 1)
	require.Empty(t, books.Machines["s_gone"].Open)
}
