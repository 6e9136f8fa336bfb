package local

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that has no environment, and is meant to have none, is nobody's instance: it
// is not looked for a thousand times at the end of each.
func TestAProcessWithoutAnEnvironmentIsLeftAlone(t *testing.T) {
	child := exec.Command("/bin/sleep", "1000")
	child.Env = []string{}
	require.NoError(t, child.Start())
	defer child.Wait()         //nolint:errcheck // it is killed
	defer child.Process.Kill() //nolint:errcheck // it may be dead
	require.Eventually(t, func() bool { return !killIfHas(child.Process.Pid, []byte("SPILLWAY_INSTANCE_ID=x")) }, 10*time.Second, time.Millisecond)
	s, ok := readStat(child.Process.Pid)
	require.True(t, ok)
	require.True(t, s.bare)
	require.False(t, s.ended)
}
