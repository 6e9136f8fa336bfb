package route_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

func twoPools() *route.Tokens {
	return route.NewTokens(map[string][]spillway.Pool{secret: {pool("first", 0), pool("second", 1)}})
}

func body(t testing.TB, change func(m, info map[string]any)) []byte {
	t.Helper()
	info := map[string]any{
		"name": "gitlab-runner", "version": "19.4.0", "features": map[string]any{"two_phase_job_commit": true, "cancelable": true},
		"labels": map[string]any{"spillway-pool": "second", "spillway-instance": "i-1", "zone": "b"},
	}
	m := map[string]any{"token": secret, "system_id": "s_0123456789ab", "last_update": "abc", "info": info}
	if change != nil {
		change(m, info)
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	return text
}

func TestCallerReadsWhoAsks(t *testing.T) {
	who, err := twoPools().Caller(secret, body(t, nil))
	require.NoError(t, err)
	require.Equal(t, route.HashToken(secret), who.Token)
	require.Equal(t, spillway.MachineID("s_0123456789ab"), who.System)
	require.Equal(t, "second", who.Pool.Name)
	require.Equal(t, "i-1", who.InstanceID)
	require.Equal(t, "19.4.0", who.Version)
	require.Equal(t, "gitlab-runner", who.Name)
	require.True(t, who.TwoPhase)
	require.JSONEq(t, `{"two_phase_job_commit":true,"cancelable":true}`, string(who.Features))
	require.Equal(t, "b", who.Labels["zone"])
	require.NotContains(t, fmt.Sprintf("%+v", who), secret)
}

func TestCallerIsWhoeverTheTokenServes(t *testing.T) {
	tests := []struct {
		name     string
		token    string
		change   func(m, info map[string]any)
		pool     string
		instance string
		err      error
	}{
		{"without labels the first pool", secret, func(_, info map[string]any) { delete(info, "labels") }, "first", "", nil},
		{"somebody else's pool", secret, func(_, info map[string]any) { info["labels"] = map[string]any{"spillway-pool": "third"} }, "first", "", nil},
		{"no info", secret, func(m, _ map[string]any) { delete(m, "info") }, "first", "", nil},
		{"the token in the body does not count", "other", nil, "", "", route.ErrUnknownToken},
		{"no token", "", nil, "", "", route.ErrUnknownToken},
		{"no system_id", secret, func(m, _ map[string]any) { delete(m, "system_id") }, "", "", route.ErrNoSystem},
		{"an empty system_id", secret, func(m, _ map[string]any) { m["system_id"] = "" }, "", "", route.ErrNoSystem},
		{"a blank in it", secret, func(m, _ map[string]any) { m["system_id"] = "a b" }, "", "", route.ErrNoSystem},
		{"the longest system_id", secret, func(m, _ map[string]any) { m["system_id"] = strings.Repeat("s", 64) }, "second", "i-1", nil},
		{"one byte more", secret, func(m, _ map[string]any) { m["system_id"] = strings.Repeat("s", 65) }, "", "", route.ErrNoSystem},
		{"most labels", secret, labels(32, 256), "first", "", nil},
		{"one label more", secret, labels(33, 1), "", "", route.ErrMalformed},
		{"one byte more in a label", secret, labels(1, 257), "", "", route.ErrMalformed},
		{"a number for a system_id", secret, func(m, _ map[string]any) { m["system_id"] = 7 }, "", "", route.ErrMalformed},
		{"a list of features", secret, func(_, info map[string]any) { info["features"] = []int{1} }, "", "", route.ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			who, err := twoPools().Caller(tt.token, body(t, tt.change))
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.pool, who.Pool.Name)
			require.Equal(t, tt.instance, who.InstanceID)
		})
	}
}

func labels(n, bytes int) func(m, info map[string]any) {
	return func(_, info map[string]any) {
		all := map[string]any{}
		for i := range n {
			all[fmt.Sprintf("label-%d", i)] = strings.Repeat("v", bytes)
		}
		info["labels"] = all
	}
}

func TestRequestBodyLimits(t *testing.T) {
	fill := func(size int) []byte {
		empty := len(body(t, func(m, _ map[string]any) { m["filler"] = "" }))
		return body(t, func(m, _ map[string]any) { m["filler"] = strings.Repeat("x", size-empty) })
	}
	largest := fill(route.MaxRequestBytes)
	require.Len(t, largest, route.MaxRequestBytes)
	_, err := route.ParseRequest(largest)
	require.NoError(t, err)
	_, err = route.ParseRequest(fill(route.MaxRequestBytes + 1))
	require.ErrorIs(t, err, route.ErrTooLarge)
}

func TestOnlyTheNamesThatGitLabKnowsCount(t *testing.T) {
	r, err := route.ParseRequest([]byte(`{"TOKEN":"x","System_ID":"y","token":"a","system_id":"b"}`))
	require.NoError(t, err)
	require.Equal(t, "a", r.Token)
	require.Equal(t, "b", r.System)
}

func TestLegacyRunnersAreNotTwoPhase(t *testing.T) {
	for _, features := range []string{`{}`, `{"two_phase_job_commit":false}`, `{"two_phase_job_commit":"true"}`, `{"two_phase_job_commit":null}`, `null`} {
		r, err := route.ParseRequest([]byte(`{"info":{"features":` + features + `}}`))
		require.NoError(t, err, features)
		require.False(t, r.TwoPhase, features)
	}
}

func TestNamesAreCutBetweenCharacters(t *testing.T) {
	who, err := twoPools().Caller(secret, body(t, func(_, info map[string]any) { info["version"] = strings.Repeat("é", 200) }))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", 127), who.Version)
}

func FuzzParseRequest(f *testing.F) {
	f.Add(body(f, nil))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"token":1}`))
	f.Add([]byte(`{"token":"` + secret + `","info":{"labels":{"a":1}}}`))
	f.Add([]byte("{\"token\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := route.ParseRequest(text)
		if err != nil {
			require.NotContains(t, err.Error(), secret)
			return
		}
		require.True(t, json.Valid(text))
		who, err := twoPools().CallerOf(secret, r)
		if err != nil {
			return
		}
		require.NotEmpty(t, who.System)
		require.LessOrEqual(t, len(who.System), route.MaxSystemIDBytes)
		require.LessOrEqual(t, len(who.Labels), route.MaxLabels)
		require.LessOrEqual(t, len(who.Version), route.MaxNameBytes)
		require.Contains(t, []string{"first", "second"}, who.Pool.Name)
	})
}
