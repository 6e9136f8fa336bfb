package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A turn that comes late is no judge until what was said has been heard. Who stands still
// again and again judges in between, or nobody would ever be given up.
func TestWhoStoodStillListensFirst(t *testing.T) {
	now := time.Unix(1000, 0)
	var s standstill
	turn := func(late time.Duration) time.Duration {
		now = now.Add(late)
		rest := s.rest(now)
		s.due = now.Add(rest)
		return rest
	}
	require.Zero(t, turn(0), "the first one")
	require.Zero(t, turn(stillFor), "only busy")
	require.Equal(t, hearFor, turn(stillFor+1))
	require.Zero(t, turn(hearFor))
	require.Zero(t, turn(stillFor))

	require.Equal(t, hearFor, turn(time.Hour))
	require.Equal(t, hearFor/2, turn(hearFor/2), "somebody spoke meanwhile")
	require.Zero(t, turn(time.Hour), "it stood still as it listened, and judges now")
	require.Equal(t, hearFor, turn(time.Hour))
}
