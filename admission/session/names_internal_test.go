package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was said before anybody has looked at it is told, but never more of it than a name
// may have.
func TestNamesThatAreToldAreBounded(t *testing.T) {
	require.Equal(t, "name", head("name", 4))
	require.Equal(t, "nam", head("name", 3))
	require.Equal(t, "n", head("n\xc3\xa4me", 2), "no half characters")
	require.Len(t, head(strings.Repeat("x", 4<<20), maxInstanceBytes), maxInstanceBytes)
}
