package program

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// T8: where a line is cut there may be a secret, of which half would be shown, since
// nobody would know it.
func TestT8_ALineIsNotCutWithinAWord(t *testing.T) {
	const secret = "glpat-0123456789abcdefghij"
	type said struct {
		line string
		cut  bool
	}
	read := func(text string) (all []said) {
		EachLine(strings.NewReader(text), func(line string, cut bool) { all = append(all, said{line, cut}) })
		return all
	}
	for _, before := range []string{" ", "=", `"`, "&token=", "token: "} {
		text := strings.Repeat("x", MaxLineBytes-len(before)-len(secret)/2) + before
		require.Equal(t, []said{{text, true}, {"next", false}}, read(text+secret+"\nnext\n"), before)
	}
	whole := strings.Repeat("x", MaxLineBytes)
	require.Equal(t, []said{{whole, true}}, read(whole+whole), "one word has nothing before it")
	short := "a b " + secret
	require.Equal(t, []said{{short, false}}, read(short+"\n"))
}
