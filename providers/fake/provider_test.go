package fake_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

func configured(t *testing.T, config string) *fake.Provider {
	t.Helper()
	p := fake.New()
	require.NoError(t, p.Configure(t.Context(), []byte(config)))
	return p
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(fake.ConfigSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("fake.json", doc))
	s, err := c.Compile("fake.json")
	require.NoError(t, err)
	return s
}

func TestSchemaAndConfigureAgree(t *testing.T) {
	s := schema(t)
	for config, valid := range map[string]bool{
		`{"groups": {"a": {}}}`: true,
		`{"seed": 3, "groups": {"a": {"boot": "0s", "min": 1, "max": 2, "initial": 2, "victim": "oldest", "protected": false, "auto_replace": true, "price": 0.1}}}`:               true,
		`{"groups": {"a": {"boot": {"p50": "1m", "p95": "2m"}, "never_register": {"every": 5}, "partial": 0.5, "late_fill": "2m", "visible_after": "1s"}}}`:                        true,
		`{"groups": {"a": {"errors": [{"to": "5m", "kind": "capacity"}, {"from": "6m", "to": "7m", "kind": "quota", "ratio": 0.5, "delivery": "activity"}]}}}`:                     true,
		`{"groups": {"a": {}}, "faults": [{"on": "status", "do": "hang"}, {"on": "remove", "do": "exit", "after": 2, "times": 1}, {"on": "list", "do": "error", "kind": "auth"}]}`: true,
		`{}`:                                 false,
		`{"groups": {}}`:                     false,
		`{"groups": {"a": {"boots": "1m"}}}`: false,
		`{"groups": {"a": {"boot": 5}}}`:     false,
		`{"groups": {"a": {"boot": {"p51": "1m"}}}}`:                                           false,
		`{"groups": {"a": {"victim": "me"}}}`:                                                  false,
		`{"groups": {"a": {"partial": 1.5}}}`:                                                  false,
		`{"groups": {"a": {"errors": [{"to": "5m", "kind": "conflict"}]}}}`:                    false,
		`{"groups": {"a": {}}, "faults": [{"on": "dance", "do": "hang"}]}`:                     false,
		`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "error"}]}`:                     false,
		`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "error", "kind": "conflict"}]}`: false,
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(config), &v))
		err := fake.New().Configure(t.Context(), []byte(config))
		if valid {
			require.NoError(t, err, config)
			require.NoError(t, s.Validate(v), config)
		} else {
			require.ErrorIs(t, err, pluginsdk.ErrInvalid, config)
			require.Error(t, s.Validate(v), config)
		}
	}
}

func TestConfigureNamesEveryMistake(t *testing.T) {
	err := fake.New().Configure(t.Context(), []byte(`{"groups": {"a": {"min": 3, "max": 2}, "b": {"partial": 7}}}`))
	require.ErrorContains(t, err, `group "a": max 2`)
	require.ErrorContains(t, err, `group "b": partial 7`)
}

func TestProviderOnTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := configured(t, `{"groups": {"a": {"boot": "1m"}, "b": {"boot": "0s"}}}`)
		_, err := p.SetDesired(ctx, pluginsdk.SetDesired{Group: "a", Target: 1})
		require.NoError(t, err)
		_, err = p.SetDesired(ctx, pluginsdk.SetDesired{Group: "b", Target: 2})
		require.NoError(t, err)
		list, err := p.ListInstances(ctx, "b")
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, pluginsdk.StateRunning, list[0].State, "no boot time at all")
		time.Sleep(time.Minute) // the bubble's clock
		list, err = p.ListInstances(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, pluginsdk.StateRunning, list[0].State)
		statuses, err := p.Status(ctx, []string{"b", "nowhere", "a"})
		require.NoError(t, err)
		require.Equal(t, "b", statuses[0].Group)
		require.Equal(t, 2, statuses[0].Desired)
		require.ErrorIs(t, statuses[1].Err, pluginsdk.ErrNotFound)
		require.Equal(t, 1, statuses[2].Desired)
	})
}

func TestRepeatedTokenIsAnsweredAndNotCarriedOut(t *testing.T) {
	ctx := t.Context()
	p := configured(t, `{"groups": {"a": {"boot": "0s", "initial": 4}}}`)
	for range 2 {
		res, err := p.Remove(ctx, "a", []string{"i-0001"}, "t1")
		require.NoError(t, err)
		require.Equal(t, pluginsdk.Removed, res[0].Outcome)
	}
	res, err := p.Remove(ctx, "a", []string{"i-0001"}, "t2")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.AlreadyGone, res[0].Outcome)
}

func TestTokensAreForgottenAtTheLimit(t *testing.T) {
	ctx := t.Context()
	p := configured(t, `{"groups": {"a": {"boot": "0s", "max": 2000, "initial": 2}}}`)
	remove := func(id, token string) pluginsdk.RemoveOutcome {
		res, err := p.Remove(ctx, "a", []string{id}, token)
		require.NoError(t, err)
		return res[0].Outcome
	}
	require.Equal(t, pluginsdk.Removed, remove("i-0001", "first"))
	for i := range 1000 {
		remove("none", "t"+string(rune('一'+i)))
	}
	require.Equal(t, pluginsdk.AlreadyGone, remove("i-0001", "first"))
}

func TestFaultsOfThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := configured(t, `{"groups": {"a": {}}, "faults": [
			{"on": "status", "do": "hang", "after": 1, "times": 1},
			{"on": "list", "do": "error", "kind": "throttled", "times": 1},
			{"on": "withdraw", "do": "exit"}]}`)
		_, err := p.Status(t.Context(), []string{"a"})
		require.NoError(t, err, "the first call passes")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = p.Status(ctx, []string{"a"})
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Status(t.Context(), []string{"a"})
		require.NoError(t, err, "only once")
		_, err = p.ListInstances(t.Context(), "a")
		require.ErrorIs(t, err, pluginsdk.ErrThrottled)
		exited := false
		p.Exit = func() { exited = true }
		_, err = p.Withdraw(t.Context(), "a", 0, "t")
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.True(t, exited)
	})
}

func TestLimitsOfOneCall(t *testing.T) {
	p := configured(t, `{"groups": {"a": {}}}`)
	_, err := p.Status(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	many := make([]string, pluginsdk.MaxInstancesPerCall+1)
	_, err = p.Remove(t.Context(), "a", many, "t")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorIs(t, p.Protect(t.Context(), "a", many, true), pluginsdk.ErrInvalid)
	_, err = p.Remove(t.Context(), "a", many[1:], "t")
	require.NoError(t, err)
}

func TestBeforeConfigure(t *testing.T) {
	p := fake.New()
	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, "fake", d.Name)
	_, err = p.ListInstances(t.Context(), "a")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}
