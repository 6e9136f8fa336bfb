package pluginsdk_test

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestOnce(t *testing.T) {
	var tokens pluginsdk.Tokens
	writes := 0
	do := func(group, token string, err error) int {
		answer, got := pluginsdk.Once(&tokens, group, token, func() (int, error) {
			writes++
			return writes, err
		})
		if got != nil {
			require.Equal(t, err, got)
		}
		return answer
	}
	require.Equal(t, 1, do("g", "t", errors.New("no")))
	require.Equal(t, 2, do("g", "t", nil), "a failure was remembered")
	require.Equal(t, 2, do("g", "t", errors.New("no")), "it was carried out again")
	require.Equal(t, 3, do("h", "t", nil), "another group's token was taken for this one's")
	require.Equal(t, 4, do("g", "u", nil))
	require.Equal(t, 5, do("g", "", nil))
	require.Equal(t, 6, do("g", "", nil), "no token is no token")

	other, err := pluginsdk.Once(&tokens, "g", "t", func() (pluginsdk.WithdrawResult, error) {
		return pluginsdk.WithdrawResult{Withdrawn: 3}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, other.Withdrawn, "another method's token was taken for this one's")
	require.Equal(t, 2, do("g", "t", nil))
}

func TestTokensAreBounded(t *testing.T) {
	const limit = 1_000
	var tokens pluginsdk.Tokens
	writes := 0
	do := func(token int) {
		_, err := pluginsdk.Once(&tokens, "g", strconv.Itoa(token), func() (int, error) {
			writes++
			return writes, nil
		})
		require.NoError(t, err)
	}
	for i := range limit {
		do(i)
	}
	do(0)
	require.Equal(t, limit, writes, "one was forgotten too early")
	do(limit)
	do(1)
	require.Equal(t, limit+1, writes, "the oldest was not the one that was forgotten")
	do(0)
	require.Equal(t, limit+2, writes, "the oldest was remembered")
}

func TestUnsupported(t *testing.T) {
	var p pluginsdk.Unsupported
	_, withdrawErr := p.Withdraw(t.Context(), "g", 1, "t")
	_, findErr := p.Findings(t.Context(), nil)
	_, countErr := p.Count(t.Context(), "m")
	for _, err := range []error{
		withdrawErr, findErr, countErr, p.Protect(t.Context(), "g", nil, true), p.CompleteHook(t.Context(), "g", nil),
		p.ReportUnhealthy(t.Context(), "g", nil), p.Watch(t.Context(), nil, nil),
	} {
		require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
		require.ErrorContains(t, err, "this provider can't")
	}
}

func TestConfigured(t *testing.T) {
	var c pluginsdk.Configured[int]
	_, err := c.Get()
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorContains(t, err, "not configured")

	var winner, wins atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := c.Set(&i); err == nil {
				wins.Add(1)
				winner.Store(int64(i))
			} else if !errors.Is(err, pluginsdk.ErrInvalid) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, wins.Load())
	got, err := c.Get()
	require.NoError(t, err)
	require.EqualValues(t, winner.Load(), *got)
}

func TestLimitsOfOneCall(t *testing.T) {
	names := make([]string, pluginsdk.MaxGroupsPerCall)
	require.NoError(t, pluginsdk.CheckGroups(names))
	require.ErrorIs(t, pluginsdk.CheckGroups(append(names, "")), pluginsdk.ErrInvalid)
	names = make([]string, pluginsdk.MaxInstancesPerCall)
	require.NoError(t, pluginsdk.CheckInstances(names))
	require.ErrorIs(t, pluginsdk.CheckInstances(append(names, "")), pluginsdk.ErrInvalid)
}

func TestGroupNames(t *testing.T) {
	decode := func(config string) (pluginsdk.GroupNames, error) {
		var names pluginsdk.GroupNames
		return names, pluginsdk.DecodeConfig([]byte(config), &names)
	}
	var names pluginsdk.GroupNames
	require.NoError(t, pluginsdk.DecodeConfig([]byte(`["a", "b"]`), &names))
	require.Equal(t, map[string]bool{"a": true, "b": true}, names.Set())
	_, err := decode(`["a", "b", "a"]`)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorContains(t, err, "[2]: the name is there twice")

	many := func(n int) string {
		list := "["
		for i := range n {
			list += strconv.Quote(strconv.Itoa(i)) + ","
		}
		return list[:len(list)-1] + "]"
	}
	_, err = decode(many(pluginsdk.MaxGroupsPerCall))
	require.NoError(t, err)
	_, err = decode(many(pluginsdk.MaxGroupsPerCall + 1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}

func TestKindOfHTTP(t *testing.T) {
	for status, want := range map[int]pluginsdk.Kind{
		429: pluginsdk.KindThrottled, 401: pluginsdk.KindAuth, 403: pluginsdk.KindAuth,
		400: pluginsdk.KindInvalid, 404: pluginsdk.KindInvalid, 408: pluginsdk.KindTransient,
		499: pluginsdk.KindInvalid, 500: pluginsdk.KindTransient, 503: pluginsdk.KindTransient, 302: pluginsdk.KindTransient, 0: pluginsdk.KindTransient,
	} {
		require.Equal(t, want, pluginsdk.KindOfHTTP(status), status)
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "Wed, 21 Oct 2015 07:28:00 GMT": 0,
		"86400": 24 * time.Hour, "86401": 24 * time.Hour, "99999999999999999999": 0,
	} {
		require.Equal(t, want, pluginsdk.RetryAfter(http.Header{"Retry-After": {header}}), header)
	}
	require.Zero(t, pluginsdk.RetryAfter(nil))
}
