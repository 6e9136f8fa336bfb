package scaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestATickThatComesEarlyLooksToo: the group is looked at with every tick, though no
// two ticks are equally far apart; what comes between them sees the last look.
func TestATickThatComesEarlyLooksToo(t *testing.T) {
	r := newRig(newWorld())
	refresh := config(r.world).Refresh
	looked := func() bool { return r.pool.seen.at.Equal(r.now) }
	r.tick()
	require.True(t, looked())
	for _, jitter := range []time.Duration{time.Millisecond, -time.Millisecond, 0, -refresh / refreshSlack} {
		r.pass(refresh + jitter)
		r.tick()
		require.True(t, looked(), "%s too late", jitter)
	}
	r.pass(refresh - refresh/refreshSlack - 1)
	r.tick()
	require.False(t, looked(), "that was a poke")
}
