package coordinator

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

func TestOutputs(t *testing.T) {
	const room = spillway.MaxOutputBytes
	long := func(c string) string { return strings.Repeat(c, 2*room) }
	require.Empty(t, output("", ""))
	require.Equal(t, "out", string(output("out", "")))
	require.Equal(t, "\n--- stderr ---\nerr", string(output("", "err")))
	require.Len(t, output(long("o"), ""), room)
	for _, c := range []struct{ out, err string }{{long("o"), "e"}, {"o", long("e")}, {long("o"), long("e")}} {
		both := string(output(c.out, c.err))
		require.Len(t, both, room)
		out, errs, ok := strings.Cut(both, stderrMark)
		require.True(t, ok)
		require.Equal(t, c.out[len(c.out)-len(out):], out)
		require.Equal(t, c.err[len(c.err)-len(errs):], errs)
		require.NotEmpty(t, out)
		require.NotEmpty(t, errs)
	}
	require.True(t, utf8.Valid(output("x"+long("ä"), "y"+long("ö"))))
	require.Equal(t, strings.Repeat("x", room), string(output("!"+strings.Repeat("x", room), "")), "the end of it")
}
