package providers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestEveryCallHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		calls := Decorate(&scripted{
			status:     func(ctx context.Context) (pluginsdk.GroupStatus, error) { return pluginsdk.GroupStatus{}, hang(ctx) },
			list:       func(ctx context.Context) ([]pluginsdk.Instance, error) { return nil, hang(ctx) },
			setDesired: func(ctx context.Context, _, _ int) (int, error) { return 0, hang(ctx) },
		}, CallInfo{Group: "g"}, Timing{}, Observer{})
		took := func(f func() error) time.Duration {
			began := time.Now()
			require.ErrorIs(t, f(), context.DeadlineExceeded)
			return time.Since(began)
		}
		ctx := context.Background()
		require.Equal(t, 30*time.Second, took(func() error { _, err := calls.Status(ctx); return err }))
		require.Equal(t, 30*time.Second, took(func() error { _, err := calls.ListInstances(ctx); return err }))
		require.Equal(t, 8*time.Second, took(func() error { _, err := calls.SetDesired(ctx, 1, 0); return err }))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.Equal(t, time.Second, took(func() error { _, err := calls.SetDesired(short, 1, 0); return err }), "the rest of a lease")
	})
}

func TestTheObserverSeesWhatWasAskedAndWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started []CallInfo
		var done []CallDone
		answer := -1
		calls := Decorate(&scripted{setDesired: func(context.Context, int, int) (int, error) {
			time.Sleep(time.Second)
			return answer, nil
		}}, CallInfo{Provider: "aws", Pool: "linux", Group: "g"}, Timing{}, Observer{
			CallStarted: func(i CallInfo) { started = append(started, i) },
			CallDone:    func(d CallDone) { done = append(done, d) },
		})
		_, err := calls.SetDesired(t.Context(), 3, 0)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
		info := CallInfo{Provider: "aws", Pool: "linux", Group: "g", Op: OpSetDesired}
		require.Equal(t, []CallInfo{info}, started)
		require.Len(t, done, 1)
		require.Equal(t, info, done[0].CallInfo)
		require.Equal(t, []any{pluginsdk.KindInvalid, time.Second}, []any{done[0].Kind, done[0].Duration})
		require.Contains(t, done[0].String(), "set_desired of g (pool linux, provider aws) failed after 1s: invalid")
	})
}

// TestC44_RemoveIsPaged: 20 000 ids in one call.
func TestC44_RemoveIsPaged(t *testing.T) {
	var pages []int
	s := &scripted{}
	s.remove = func(ids []string) ([]pluginsdk.RemoveResult, error) {
		pages = append(pages, len(ids))
		return removedAll(ids), nil
	}
	calls := Decorate(s, CallInfo{Group: "g"}, Timing{}, Observer{})
	ids := make([]string, 20_001)
	for i := range ids {
		ids[i] = itoa(i)
	}
	results, err := calls.Remove(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, removedAll(ids), results)
	require.Len(t, pages, 21)
	require.Equal(t, []int{1_000, 1}, []int{pages[0], pages[20]})

	results, err = calls.Remove(t.Context(), nil)
	require.NoError(t, err)
	require.NotNil(t, results)
	require.Empty(t, results)
}

func TestAPageThatFails(t *testing.T) {
	failAt := 0
	page := 0
	boom := kindErr(pluginsdk.KindTransient)
	s := &scripted{}
	s.remove = func(ids []string) ([]pluginsdk.RemoveResult, error) {
		if page++; page-1 == failAt {
			return nil, boom
		}
		return removedAll(ids), nil
	}
	calls := &paging{next: s}
	ids := make([]string, 2_500)
	for i := range ids {
		ids[i] = itoa(i)
	}
	_, err := calls.Remove(t.Context(), ids)
	require.ErrorIs(t, err, boom, "nothing was removed")

	page, failAt = 0, 1
	results, err := calls.Remove(t.Context(), ids)
	require.NoError(t, err)
	require.Len(t, results, len(ids))
	require.Equal(t, 2, page, "no page after the one that failed")
	for i, r := range results {
		require.Equal(t, ids[i], r.ID)
		require.Equal(t, i >= 1_000, r.Outcome == pluginsdk.NotRemoved && errors.Is(r.Err, boom))
	}
}
