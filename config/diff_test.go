package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

func TestDiff(t *testing.T) {
	scenario := config.Options{ProviderOptional: true}
	parse := func(text string) *config.Config {
		c, err := config.ParseWith("f", []byte(text), scenario)
		require.NoError(t, err)
		return c
	}
	before := parse(`pools:
  - {name: a, capability: {tags: [x, y]}, policy: {max: 3}}
  - {name: b, capability: {run_untagged: true}}
`)
	after := parse(`tick: 1s
pools:
  - {name: b, capability: {run_untagged: true}, policy: {max: 10}}
  - {name: a, capability: {tags: [x]}, policy: {max: 4}}
`)
	changes, err := config.Diff(before, after)
	require.NoError(t, err)
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	require.Equal(t, []string{
		"pools.a.capability.tags[1]: removed y",
		"pools.a.policy.max: 3 → 4",
		"tick: 5s → 1s",
	}, got, "what moved, or is the default spelled out, has not changed")

	same, err := config.Diff(before, before)
	require.NoError(t, err)
	require.Empty(t, same)

	added, err := config.Diff(parse("pools: [{name: a, capability: {run_untagged: true}}]"), parse("pools: [{name: a, capability: {run_untagged: true}}, {name: c, capability: {run_untagged: true}}]"))
	require.NoError(t, err)
	require.NotEmpty(t, added)
	for _, c := range added {
		require.Contains(t, c.String(), "pools.c.")
		require.Contains(t, c.String(), ": added ")
	}
}
