package asgstub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadFaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "faults.yaml")
	f, err := ReadFaults(path)
	require.NoError(t, err)
	require.Equal(t, []string{"ci-large", "ci-small"}, []string{f.Groups[0].Name, f.Groups[1].Name})
	small := f.Groups[1]
	require.Equal(t, 20, small.Max)
	require.Equal(t, Seconds(300), small.Hooks[0].HeartbeatTimeout)
	require.Equal(t, 2*time.Minute, small.Faults.Launch[0].To)
	require.Equal(t, 3, small.Faults.Calls[0].Times)
	require.False(t, *small.Faults.AutoReplace)
	require.Nil(t, f.Groups[0].Faults)
	require.Equal(t, 120*time.Second, f.Faults.Boot.P95)

	c := f.Start(f.Options())
	require.Equal(t, 2, c.Live("ci-small")-len(c.mu.groups["ci-small"].warm))
	require.Equal(t, "210987654321", c.opts.AccountID)
	_, err = ReadFaults(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestEveryMistakeOfAFileIsNamed(t *testing.T) {
	t.Parallel()
	_, err := ParseFaults([]byte(`
seeed: 1
rate: {burst: -1}
faults: {boot: 3, colour: red}
groups:
  a: {min: 3, max: 2}
  b: {hooks: [{name: x, transition: up}], faults: {victim: youngest, calls: [{}]}}
  c: {tags: [{value: no key}]}
`))
	require.Error(t, err)
	for _, part := range []string{"seeed", "rate", "boot", "colour", "groups.a", "groups.b", "transition", "victim", "calls[0]", "groups.c.tags[0].key"} {
		require.ErrorContains(t, err, part)
	}
	for _, bad := range []string{"[1, 2]", "a: 1\n---\nb: 2\n", "groups: {1: {}}", strings.Repeat("#", maxFile+1), "\t"} {
		_, err := ParseFaults([]byte(bad))
		require.Error(t, err, "%.20q", bad)
	}
}
