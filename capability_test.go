package spillway_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

// names returns n distinct valid tags.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Repeat("t", 1+i/26) + string(rune('a'+i%26))
	}
	return list
}

func ids(n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i + 1)
	}
	return list
}

func TestCapabilityLimitsAtTheirEdges(t *testing.T) {
	longTag := strings.Repeat("x", spillway.MaxTagBytes)
	tests := []struct {
		name    string
		c       spillway.Capability
		problem string // empty: valid
	}{
		{"most tags", spillway.Capability{Tags: names(spillway.MaxRunnerTags)}, ""},
		{"one tag more", spillway.Capability{Tags: names(spillway.MaxRunnerTags + 1)}, "251 tags"},
		{"longest tag", spillway.Capability{Tags: []string{longTag}}, ""},
		{"one byte more", spillway.Capability{Tags: []string{longTag + "x"}}, "tag of 256 bytes"},
		{"the limit is in bytes", spillway.Capability{Tags: []string{strings.Repeat("é", 128)}}, "tag of 256 bytes"},
		{"empty tag", spillway.Capability{Tags: []string{"a", ""}}, "an empty tag"},
		{"no tags, untagged jobs", spillway.Capability{RunUntagged: true}, ""},
		{"no tags, no untagged jobs", spillway.Capability{}, "can take no job at all"},
		{"instance", spillway.Capability{RunUntagged: true, Type: spillway.InstanceType}, ""},
		{"instance with a group", spillway.Capability{RunUntagged: true, Groups: ids(1)}, "serves every project"},
		{"instance with a project", spillway.Capability{RunUntagged: true, Projects: ids(1)}, "serves every project"},
		{"group", spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: ids(1)}, ""},
		{"group without groups", spillway.Capability{RunUntagged: true, Type: spillway.GroupType}, "at least one group"},
		{"group with a project", spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: ids(1), Projects: ids(1)}, "no projects"},
		{"project", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Projects: ids(1)}, ""},
		{"project without projects", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType}, "at least one project"},
		{"project with a group", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Groups: ids(1), Projects: ids(1)}, "no groups"},
		{"unknown type", spillway.Capability{RunUntagged: true, Type: "shared"}, `runner type "shared"`},
		{"widest scope", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Projects: ids(spillway.MaxScopeEntries)}, ""},
		{"one project more", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Projects: ids(spillway.MaxScopeEntries + 1)}, "more than 10000"},
		{"one group more", spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: ids(spillway.MaxScopeEntries + 1)}, "more than 10000"},
		{"project 0 means none", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Projects: []int64{0}}, "project id 0"},
		{"negative group", spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: []int64{-1}}, "group id -1"},
		{"most features", spillway.Capability{RunUntagged: true, Resources: spillway.Resources{Features: names(spillway.MaxFeatures)}}, ""},
		{"one feature more", spillway.Capability{RunUntagged: true, Resources: spillway.Resources{Features: names(spillway.MaxFeatures + 1)}}, "65 features"},
		{"negative CPU", spillway.Capability{RunUntagged: true, Resources: spillway.Resources{MilliCPU: -1}}, "negative"},
		{"negative memory", spillway.Capability{RunUntagged: true, Resources: spillway.Resources{MemoryMiB: -1}}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireProblem(t, tt.c.Validate(), tt.problem)
		})
	}
}

// requireProblem checks that err is about problem, or nil where that is empty.
func requireProblem(t *testing.T, err error, problem string) {
	t.Helper()
	if problem == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, spillway.ErrInvalid)
	require.ErrorContains(t, err, problem)
}

func TestCapabilityReportsEveryProblemAtOnce(t *testing.T) {
	err := spillway.Capability{
		Tags: []string{""}, Type: spillway.GroupType, Resources: spillway.Resources{MilliCPU: -1},
	}.Validate()
	requireProblem(t, err, "an empty tag")
	requireProblem(t, err, "at least one group")
	requireProblem(t, err, "negative")
}

func TestC16_HugeTagListIsOneProblem(t *testing.T) {
	tags := make([]string, 10_000)
	for i := range tags {
		tags[i] = strings.Repeat("x", spillway.MaxTagBytes)
	}
	requireProblem(t, spillway.Requirement{Tags: tags}.Validate(), "10000 tags")
	requireProblem(t, spillway.Capability{Tags: tags}.Validate(), "10000 tags")

	for i := range tags {
		tags[i] += "y"
	}
	err := spillway.Capability{Tags: tags}.Validate()
	requireProblem(t, err, "tag of 256 bytes")
	require.Less(t, len(err.Error()), 1_000, "ten thousand bad tags must not make ten thousand lines")
}

func TestCapabilityNormalizeLeavesItsInputAlone(t *testing.T) {
	tags := []string{"b", "a", "b"}
	c := spillway.Capability{Tags: tags, Type: spillway.ProjectType, Projects: []int64{2, 1}}
	n := c.Normalize()
	require.Equal(t, []string{"a", "b"}, n.Tags)
	require.Equal(t, []int64{1, 2}, n.Projects)
	require.Equal(t, []string{"b", "a", "b"}, tags)
	require.Equal(t, []int64{2, 1}, c.Projects)
	require.Equal(t, n, n.Normalize(), "normal is normal")
	require.Equal(t, spillway.InstanceType, spillway.Capability{}.Normalize().Type)
}

func TestCapabilityString(t *testing.T) {
	tests := map[string]spillway.Capability{
		"docker,linux +untagged": {Tags: []string{"linux", "docker"}, RunUntagged: true},
		"a protected group[7]":   {Tags: []string{"a"}, Protected: true, Type: spillway.GroupType, Groups: []int64{7}},
		"+untagged project[1 2]": {RunUntagged: true, Type: spillway.ProjectType, Projects: []int64{2, 1}},
	}
	for want, c := range tests {
		require.Equal(t, want, c.String())
	}
}
