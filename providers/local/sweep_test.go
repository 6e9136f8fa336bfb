package local

import (
	"os/exec"
	"strings"
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
	require.Eventually(t, func() bool { return !killIfHas(child.Process.Pid, []byte("SPILLWAY_INSTANCE_ID=x")) }, time.Minute, time.Millisecond)
	s, ok := readStat(child.Process.Pid)
	require.True(t, ok)
	require.True(t, s.bare)
	require.False(t, s.ended)
}

// While execve makes the environment, it looks empty: whose process it is, the next look
// tells.
func TestAnEnvironmentThatIsBeingMadeIsNotEmpty(t *testing.T) {
	line := func(endCode, envStart, envEnd string) []byte {
		fields := strings.Fields("S" + strings.Repeat(" 7", envEndField))
		fields[endCodeField], fields[envStartField], fields[envEndField] = endCode, envStart, envEnd
		return []byte("7 (a (strange) name) " + strings.Join(fields, " ") + " 0\n")
	}
	for name, c := range map[string]struct {
		endCode, envStart, envEnd string
		bare                      bool
	}{
		"not begun":           {"0", "0", "0", false},
		"begun":               {"0", "140732366864367", "140732366864367", false},
		"made, and empty":     {"94348858903977", "140732366864367", "140732366864367", true},
		"made":                {"94348858903977", "140732366864367", "140732366869999", false},
		"not ours to look at": {"1", "0", "0", false},
	} {
		s, ok := parseStat(line(c.endCode, c.envStart, c.envEnd))
		require.True(t, ok, name)
		require.Equal(t, c.bare, s.bare, name)
	}
	_, ok := parseStat([]byte("7 (short) S 1 2 3\n"))
	require.False(t, ok)
}
