package route_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

func TestRivalsTakeTheSameJobsWithWhicheverToken(t *testing.T) {
	takes := func(name string, priority int, c spillway.Capability) spillway.Pool {
		p := pool(name, priority)
		p.Capability = c
		return p
	}
	docker := spillway.Capability{Tags: []string{"docker", "linux"}}
	same := spillway.Capability{Tags: []string{"linux", "docker", "linux"}, Type: spillway.InstanceType, Resources: spillway.Resources{MilliCPU: 4}}
	tokens := route.NewTokens(map[string][]spillway.Pool{
		"one":   {takes("a", 0, docker), takes("b", 5, docker)},
		"two":   {takes("c", 3, same)},
		"three": {takes("d", 0, spillway.Capability{Tags: []string{"docker", "linux"}, Protected: true})},
		"four":  {takes("e", 0, spillway.Capability{Tags: []string{"docker", "linux"}, RunUntagged: true})},
		"five":  {takes("f", 0, spillway.Capability{Tags: []string{"docker", "linux"}, Type: spillway.ProjectType, Projects: []int64{7}})},
		"six":   {takes("g", 0, spillway.Capability{})}, // GitLab has not told yet
		"seven": {takes("h", 0, spillway.Capability{})},
		"eight": {takes("i", 0, spillway.Capability{Tags: []string{"x"}}), takes("k", 1, spillway.Capability{Tags: []string{"x"}})},
	})
	names := func(list []route.Rival) (all []string) {
		for _, r := range list {
			all = append(all, r.Pool.Name)
		}
		return all
	}
	require.Equal(t, []string{"c", "b"}, names(tokens.Rivals("a")), "the first by priority first")
	require.Equal(t, []string{"a", "b"}, names(tokens.Rivals("c")), "GitLab knows nothing of resources")
	require.Equal(t, route.HashToken("one"), tokens.Rivals("c")[0].Token)
	require.Equal(t, []string{"k"}, names(tokens.Rivals("i")))
	for _, other := range []string{"d", "e", "f", "g", "h", "nobody"} {
		require.Empty(t, tokens.Rivals(other), other)
	}
	require.Equal(t, []string{"a", "b", "c"}, names(tokens.Contested()), "of i and k GitLab sees one runner")

	require.Len(t, tokens.Groups(), 2)

	tokens.Replace(nil)
	require.Empty(t, tokens.Groups())
	require.Empty(t, tokens.Rivals("a"))
	require.Empty(t, tokens.Contested())
}

func TestWithoutLastUpdateEverythingElseStays(t *testing.T) {
	short, err := route.WithoutLastUpdate([]byte(`{"token":"t","last_update":"x","info":{"last_update":"y"},"n":1}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"t","info":{"last_update":"y"},"n":1}`, string(short))
	same := []byte(` { "token" : "t" } `)
	short, err = route.WithoutLastUpdate(same)
	require.NoError(t, err)
	require.Equal(t, same, short, "untouched")
	for _, bad := range []string{"", "null", "[]", "{"} {
		_, err = route.WithoutLastUpdate([]byte(bad))
		require.ErrorIs(t, err, route.ErrMalformed)
	}
}
