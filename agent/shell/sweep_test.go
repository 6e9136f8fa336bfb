package shell

import (
	"crypto/rand"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a process is can't be seen while it is in execve. This script's one is
// in little else, and must not get away.
func TestProcessesInExecveDoNotGetAway(t *testing.T) {
	for range 30 {
		mine := "TEST_MARK=" + rand.Text()
		_, err := Run(t.Context(), Spec{
			Parent: t.TempDir(), Env: []string{mine}, Timeout: time.Minute, Grace: time.Second,
			Script: "echo 'exec sh ./again' >again; setsid sh ./again & sleep 0.01",
		}, func(*Place) {})
		require.NoError(t, err)
		for pid := range processes() {
			environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			require.False(t, hasEntry(environ, mine), "process %d is left", pid)
		}
	}
}

func TestReadStat(t *testing.T) {
	self, ok := readStat(os.Getpid())
	require.True(t, ok)
	require.False(t, self.ended() || self.kernel())

	dir := t.TempDir() + "/a) Z (1"
	require.NoError(t, os.Symlink("/bin/sleep", dir))
	child := exec.Command(dir, "1000")
	child.SysProcAttr = ownGroup()
	require.NoError(t, child.Start())
	defer child.Wait()         //nolint:errcheck // it is killed
	defer child.Process.Kill() //nolint:errcheck // it may be dead
	s, ok := readStat(child.Process.Pid)
	require.True(t, ok)
	require.Equal(t, child.Process.Pid, s.group, "a name with a parenthesis")
	require.False(t, s.ended())
	require.GreaterOrEqual(t, s.started, self.started)
	require.True(t, groupRuns(child.Process.Pid))

	require.NoError(t, child.Process.Kill())
	awaitExit(child.Process.Pid)
	s, ok = readStat(child.Process.Pid)
	require.True(t, ok, "it is not reaped yet")
	require.True(t, s.ended())
	require.False(t, groupRuns(child.Process.Pid))
}

// A process that has no environment, and is meant to have none, is nobody's: at the end of
// each script it is looked at a few times, and not a thousand.
func TestAProcessWithoutAnEnvironmentIsLeftAlone(t *testing.T) {
	child := exec.Command("/bin/sleep", "1000")
	child.Env, child.Dir = []string{}, "/"
	child.SysProcAttr = ownGroup()
	require.NoError(t, child.Start())
	defer child.Wait()         //nolint:errcheck // it is killed
	defer child.Process.Kill() //nolint:errcheck // it may be dead
	mine := sign{entry: "TEST_MARK=" + rand.Text(), dir: t.TempDir()}
	require.Eventually(t, func() bool { return killIfOurs(child.Process.Pid, mine) == doubtful }, 10*time.Second, time.Millisecond)
	s, ok := readStat(child.Process.Pid)
	require.True(t, ok)
	require.True(t, s.bare)
	require.False(t, s.ended())

	mine.dir = "/" // it is where the script was started: that is a sign, too
	require.Equal(t, again, killIfOurs(child.Process.Pid, mine))
	awaitExit(child.Process.Pid)
}
