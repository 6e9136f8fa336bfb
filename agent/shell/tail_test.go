package shell

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever the writes, the tail is the end of their concatenation.
func TestTailIsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		kept := tail{limit: limit}
		var all strings.Builder
		for _, chunk := range rapid.SliceOf(rapid.StringN(0, 50, -1)).Draw(t, "chunks") {
			n, err := kept.Write([]byte(chunk))
			require.NoError(t, err)
			require.Equal(t, len(chunk), n)
			require.LessOrEqual(t, len(kept.kept), 2*limit)
			all.WriteString(chunk)
		}
		last, dropped := kept.bytes()
		whole := all.String()
		require.Equal(t, whole[max(0, len(whole)-limit):], string(last))
		require.EqualValues(t, len(whole)-len(last), dropped)
	})
}

func TestCappedAtItsEdge(t *testing.T) {
	var got strings.Builder
	c := capped{w: &got, left: 5}
	for _, chunk := range []string{"abc", "de", "f", ""} {
		n, err := c.Write([]byte(chunk))
		require.NoError(t, err)
		require.Equal(t, len(chunk), n)
	}
	require.Equal(t, "abcde", got.String())
}

func TestCappedOutlivesAFullDisk(t *testing.T) {
	c := capped{w: fullDisk{}, left: 5}
	for range 2 {
		n, err := c.Write([]byte("abc"))
		require.NoError(t, err)
		require.Equal(t, 3, n)
	}
	require.Zero(t, c.left)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
