package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

const secret = "glrt-t1_secretsecretsecret00"

func pool(name string, priority int) spillway.Pool {
	return spillway.Pool{Name: name, Priority: priority, CapacityPerInstance: 2}
}

func TestTokensAreFoundByTheirHash(t *testing.T) {
	tokens := route.NewTokens(map[string][]spillway.Pool{
		secret:  {pool("b", 1), pool("c", 0), pool("a", 1)},
		"":      {pool("nobody", 0)},
		"empty": nil,
	})
	hash, pools, ok := tokens.Lookup(secret)
	require.True(t, ok)
	require.Equal(t, []string{"c", "a", "b"}, []string{pools[0].Name, pools[1].Name, pools[2].Name}, "by priority, then name")
	require.Equal(t, []string{hash}, tokens.Hashes())
	require.Equal(t, route.HashToken(secret), hash)
	revealed, ok := tokens.Reveal(hash)
	require.True(t, ok)
	require.Equal(t, secret, revealed)
	served, ok := tokens.Pools(hash)
	require.True(t, ok)
	require.Len(t, served, 3)

	for _, other := range []string{"", "empty", secret + "x", hash} {
		_, _, ok := tokens.Lookup(other)
		require.False(t, ok, "%q", other)
	}
	_, ok = tokens.Reveal("")
	require.False(t, ok)
}

func TestTokensDoNotPrintWhatTheyAre(t *testing.T) {
	tokens := route.NewTokens(map[string][]spillway.Pool{secret: {pool("a", 0)}})
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, tokens), secret)
		require.NotContains(t, fmt.Sprintf(format, route.Binding{Pools: []spillway.Pool{pool("a", 0)}}), secret)
	}
	require.Equal(t, "1 runner tokens", tokens.LogValue().String())
}

func TestReplaceSwapsAllTokens(t *testing.T) {
	tokens := route.NewTokens(map[string][]spillway.Pool{secret: {pool("a", 0)}})
	tokens.Replace(map[string][]spillway.Pool{"glrt-new": {pool("b", 0)}})
	_, _, ok := tokens.Lookup(secret)
	require.False(t, ok)
	_, pools, ok := tokens.Lookup("glrt-new")
	require.True(t, ok)
	require.Equal(t, "b", pools[0].Name)
}

func TestTheSliceOfTheCallerStaysTheCallers(t *testing.T) {
	given := []spillway.Pool{pool("z", 5), pool("a", 0)}
	tokens := route.NewTokens(map[string][]spillway.Pool{secret: given})
	require.Equal(t, "z", given[0].Name, "sorting must not change it")
	given[0].Name = "changed"
	_, pools, _ := tokens.Lookup(secret)
	require.False(t, strings.Contains(pools[0].Name+pools[1].Name, "changed"))
}
