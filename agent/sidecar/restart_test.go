package sidecar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// However much a command prints, only the end of it is kept.
func TestTheOutputOfACommandIsBounded(t *testing.T) {
	const flood = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo the end"
	out, err := command(t.Context(), "/bin/sh", "-c", flood)
	require.NoError(t, err)
	require.Len(t, out, maxOutputBytes)
	require.True(t, strings.HasSuffix(string(out), "x\nthe end\n"))
	_, err = command(t.Context(), "/bin/sh", "-c", "{ "+flood+"; } >&2; exit 3")
	require.EqualError(t, err, "/bin/sh: exit status 3: the end")
	out, err = command(t.Context(), "/bin/sh", "-c", "echo short")
	require.NoError(t, err)
	require.Equal(t, "short\n", string(out))
}
