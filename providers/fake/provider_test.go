package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/fake"
)

func configured(t *testing.T, config string) *fake.Provider {
	t.Helper()
	p := fake.New()
	require.NoError(t, p.Configure(t.Context(), []byte(config)))
	return p
}

func TestConfigs(t *testing.T) {
	accepted := func(config string) providertest.ConfigCase { return providertest.ConfigCase{Config: config} }
	refused := func(config string, mistakes ...string) providertest.ConfigCase {
		return providertest.ConfigCase{Config: config, Mistakes: mistakes}
	}
	providertest.RunConfigs(t, func() pluginsdk.Provider { return fake.New() },
		accepted(`{"groups": {"a": {}}}`),
		accepted(`{"seed": 3, "groups": {"a": {"boot": "0s", "min": 1, "max": 2, "initial": 2, "victim": "oldest", "protected": false, "auto_replace": true, "price": 0.1}}}`),
		accepted(`{"groups": {"a": {"boot": {"p50": "1m", "p95": "2m"}, "never_register": {"every": 5}, "partial": 0.5, "late_fill": "2m", "visible_after": "1s"}}}`),
		accepted(`{"groups": {"a": {"errors": [{"to": "5m", "kind": "capacity"}, {"from": "6m", "to": "7m", "kind": "quota", "ratio": 0.5, "delivery": "activity"}]}}}`),
		accepted(`{"groups": {"a": {}}, "faults": [{"on": "status", "do": "hang"}, {"on": "remove", "do": "exit", "after": 2, "times": 1}, {"on": "list", "do": "error", "kind": "auth"}]}`),
		refused(`{}`, "groups: missing"),
		refused(`{"groups": {}}`, "groups: must not be empty"),
		refused(`{"groups": {"a": {"boots": "1m"}}}`, "groups.a.boots", "did you mean boot?"),
		refused(`{"groups": {"a": {"boot": 5}}}`, "groups.a.boot"),
		refused(`{"groups": {"a": {"boot": {"p51": "1m"}}}}`, "groups.a.boot.p51", "groups.a.boot.p50: missing"),
		refused(`{"groups": {"a": {"victim": "me"}}}`, "groups.a: victim"),
		refused(`{"groups": {"a": {"partial": 1.5}}}`, "groups.a: partial"),
		refused(`{"groups": {"a": {"errors": [{"to": "5m", "kind": "conflict"}]}}}`, "groups.a: errors[0]: kind"),
		refused(`{"groups": {"a": {}}, "faults": [{"on": "dance", "do": "hang"}]}`, "faults[0].on"),
		refused(`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "error"}]}`, "faults[0].kind"),
		refused(`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "error", "kind": "conflict"}]}`, "faults[0].kind"),
		refused(`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "hang", "kind": "auth"}]}`, "faults[0].kind"),
		refused(`{"groups": {"a": {}}, "faults": [{"on": "list", "do": "dance", "times": -1}]}`, "faults[0].do", "faults[0]: after and times"),
		providertest.ConfigCase{
			Config:       `{"groups": {"a": {"min": 3, "max": 2}, "b": {"min": 2, "initial": 1}}}`,
			Mistakes:     []string{"groups.a: max 2", "groups.b: initial 1"},
			BeyondSchema: true,
		},
	)
}

// A group begins at its min where it is not told otherwise.
func TestInitial(t *testing.T) {
	p := configured(t, `{"groups": {"a": {"min": 2, "max": 5}, "b": {"min": 2, "max": 5, "initial": 3}}}`)
	statuses, err := p.Status(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, 2, statuses[0].Desired)
	require.Equal(t, 3, statuses[1].Desired)
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
