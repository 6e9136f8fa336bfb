package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

func node(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &n))
	return &n
}

func TestMergeChangesWhatItNames(t *testing.T) {
	base, err := config.Parse("base.yaml", []byte(minimal+"    policy: {max: 4, min: 1}\n"))
	require.NoError(t, err)
	before, err := base.YAML()
	require.NoError(t, err)

	next, err := base.Merge("patch.yaml", node(t, `
tick: 1s
pools:
  linux: {priority: 2, policy: {max: 7, min: null}}
  gpu: {capability: {tags: [gpu]}, provider: mine}
`))
	require.NoError(t, err)
	require.Equal(t, "1s", next.Tick.String())
	require.Len(t, next.Pools, 2)
	require.Equal(t, 7, next.Pools[0].Policy.Max)
	require.Equal(t, 0, next.Pools[0].Policy.Min, "null is back to the default")
	require.Equal(t, 2, next.Pools[0].Priority)
	require.Equal(t, []string{"docker"}, next.Pools[0].Capability.Tags)
	require.Equal(t, "gpu", next.Pools[1].Name)

	last, err := next.Merge("patch2.yaml", node(t, "pools: {linux: null}"))
	require.NoError(t, err)
	require.Len(t, last.Pools, 1)
	require.Equal(t, "gpu", last.Pools[0].Name)

	after, err := base.YAML()
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the base stays as it was")
}

func TestMergeProblemsNameTheirFile(t *testing.T) {
	base, err := config.Parse("base.yaml", []byte(minimal+"    policy: {min: 3}\n"))
	require.NoError(t, err)
	for _, c := range []struct{ patch, want string }{
		{"pools:\n  linux:\n    policy:\n      max: 0", "patch.yaml:4: pools[0].policy.max: 0 would never start anything"},
		{"pools: {linux: {policy: {max: 2}}}", "base.yaml:7: pools[0].policy.min: 3 is more than max (2)"},
		{"pools: {linus: {policy: {max: 2}}}", "patch.yaml:1: pools.linus: there is no such pool (to add one, give its capability); did you mean linux?"},
		{"pools: [{name: x}]", "patch.yaml:1: pools: a change names the pools"},
		{"pools: {linux: 5}", "patch.yaml:1: pools.linux: must be settings"},
		{"pools: {linux: null}", "base.yaml:4: pools: there is no pool"},
		{"\ntik: 5s", "patch.yaml:2: tik: unknown setting; did you mean tick?"},
		{"[]", "patch.yaml: a change must be settings"},
	} {
		_, err := base.Merge("patch.yaml", node(t, c.patch))
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, config.ErrInvalid)
	}
	_, err = base.Merge("patch.yaml", nil)
	require.ErrorIs(t, err, config.ErrInvalid)
}

func TestMergeKeepsOptionsAndAliases(t *testing.T) {
	base, err := config.ParseWith("b", []byte(`pools:
  - {name: a, capability: &c {tags: [x]}, policy: &p {max: 3}}
  - {name: b, capability: *c, policy: *p}
`), config.Options{ProviderOptional: true})
	require.NoError(t, err)
	next, err := base.Merge("p", node(t, "pools: {a: {policy: {max: 5}}}"))
	require.NoError(t, err)
	require.Equal(t, 5, next.Pools[0].Policy.Max)
	require.Equal(t, 3, next.Pools[1].Policy.Max, "a shared section is changed for the named pool only")
}

func TestParseNodeKeepsLines(t *testing.T) {
	scenario := node(t, "seed: 1\nconfig:\n  pools:\n    - name: a\n      capability: {tags: [x]}\n      policy: {max: 0}\n")
	part := scenario.Content[0].Content[3]
	_, err := config.ParseNode("s.yaml", part, config.Options{ProviderOptional: true})
	require.Equal(t, []string{"s.yaml:6: pools[0].policy.max: 0 would never start anything; set 1 or more"}, problems(t, err))

	_, err = config.ParseNode("s.yaml", nil, config.Options{})
	require.ErrorIs(t, err, config.ErrInvalid)
	_, err = config.ParseNode("s.yaml", node(t, "5"), config.Options{})
	require.ErrorIs(t, err, config.ErrInvalid)
}
