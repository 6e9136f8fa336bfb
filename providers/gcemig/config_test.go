package gcemig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

func TestConfigs(t *testing.T) {
	const local = `, "endpoint": "http://127.0.0.1:1"}`
	accepted := func(config string) providertest.ConfigCase { return providertest.ConfigCase{Config: config} }
	refused := func(config string, mistakes ...string) providertest.ConfigCase {
		return providertest.ConfigCase{Config: config, Mistakes: mistakes}
	}
	beyond := func(config string, mistakes ...string) providertest.ConfigCase {
		return providertest.ConfigCase{Config: config, Mistakes: mistakes, BeyondSchema: true}
	}
	providertest.RunConfigs(t, func() pluginsdk.Provider { return gcemig.New() },
		accepted(`{"project": "p-1", "zone": "z-b", "groups": ["a", "b"]`+local),
		accepted(`{"project": "example.com:p", "region": "r1", "groups": ["a"]`+local),
		accepted(`{"project": "p", "groups": ["zones/z-b/a", "regions/z/a"], "owner": "team-1", "api_rate": 0.5`+local),
		accepted(`{"project": "p", "region": "r", "groups": ["zones/z-b/a", "a"]`+local),
		refused(`{"zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "../q", "zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "p", "groups": ["a"]`+local, "groups[0]", "use one of them"),
		refused(`{"project": "p", "groups": ["zones/z/a", "b"]`+local, "groups[1]", "use one of them"),
		refused(`{"project": "p", "zone": "z", "region": "r", "groups": ["a"]`+local, "use one of them"),
		refused(`{"project": "p", "zone": "z/x", "groups": ["a"]`+local, "zone"),
		refused(`{"project": "p", "zone": "z"`+local, "groups"),
		refused(`{"project": "p", "zone": "z", "groups": ["a/b"]`+local, "groups[0]"),
		refused(`{"project": "p", "zone": "z", "groups": ["zones/../a"]`+local, "groups[0]"),
		refused(`{"project": "p", "zone": "z", "groups": ["a", "a"]`+local, "twice"),
		beyond(`{"project": "p", "zone": "z", "groups": ["a", "zones/z/a"]`+local, "groups[1]: is the same group as groups[0]"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "owner": "Me & You"`+local, "owner"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "api_rate": 0`+local, "api_rate"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "api_rate": 1001`+local, "api_rate"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "colour": 1`+local, "colour"),
		refused(`{"project": 7, "zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "ftp://x"}`, "endpoint"),
		beyond(`{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "http://x"}`, "loopback"),
		refused(`{"porject": "p", "groups": ["_"], "endpoint": "x"}`, "porject", "project:", "groups[0]", "endpoint"),
	)
}

func TestOrderOfCalls(t *testing.T) {
	p := gcemig.New()
	_, err := p.Status(t.Context(), []string{"linux"})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Remove(t.Context(), "linux", nil, "")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorIs(t, p.Watch(t.Context(), nil, nil), pluginsdk.ErrInvalid)
	require.NoError(t, p.Close(t.Context()))
	p = serve(t, &api{}, "linux")
	require.ErrorIs(t, p.Configure(t.Context(), []byte(`{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "http://127.0.0.1:1"}`)), pluginsdk.ErrInvalid)
	_, err = p.Status(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Remove(t.Context(), "linux", make([]string, pluginsdk.MaxInstancesPerCall+1), "t")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	none, err := p.Status(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, p.Close(t.Context()))
}

// What can't be done is said so by the capabilities and by each call.
func TestWhatAGroupCannotDo(t *testing.T) {
	a := &api{}
	p := serve(t, a, "linux")
	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	for _, c := range []pluginsdk.Capability{pluginsdk.CanProtect, pluginsdk.CanCompleteHook, pluginsdk.CanCount, pluginsdk.CanCompareAndSet} {
		require.False(t, d.Has(c), "%s", c)
	}
	_, err = p.Count(t.Context(), "x")
	require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
	require.ErrorIs(t, p.Protect(t.Context(), "linux", nil, true), pluginsdk.ErrUnsupported)
	require.ErrorIs(t, p.CompleteHook(t.Context(), "linux", nil), pluginsdk.ErrUnsupported)
	require.Zero(t, a.calls.Load())
}
