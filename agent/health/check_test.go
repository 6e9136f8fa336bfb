package health_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/health"
)

const within = 80 * time.Second

func watch(t *testing.T, c health.Check) <-chan string {
	t.Helper()
	c.Every, c.WorkDir = time.Millisecond, t.TempDir()
	require.NoError(t, c.Validate())
	return run(t, c)
}

// run runs the check until the test ends.
func run(t *testing.T, c health.Check) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	news, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, news)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		left, err := os.ReadDir(c.WorkDir)
		require.True(t, err != nil || len(left) == 0, "%v", left)
	})
	return news
}

func next(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(within):
		require.FailNow(t, "nothing was said")
		panic("unreachable")
	}
}

func TestBrokenAndWellAgain(t *testing.T) {
	dir := t.TempDir()
	bad, runs := filepath.Join(dir, "bad"), filepath.Join(dir, "runs")
	news := watch(t, health.Check{Command: fmt.Sprintf("echo >>%s; if [ -e %s ]; then echo looking; echo 'disk full' >&2; exit 3; fi", runs, bad), Failures: 3})
	ran := func(n int) func() bool {
		return func() bool { content, _ := os.ReadFile(runs); return len(content) >= n }
	}
	require.Eventually(t, ran(3), within, time.Millisecond)
	require.Empty(t, news, "well is not said when nothing else was")

	require.NoError(t, os.WriteFile(bad, nil, 0o600))
	require.Equal(t, "health check: exit code 3: disk full", next(t, news))
	require.NoError(t, os.Remove(bad))
	require.Empty(t, next(t, news))
	require.NoError(t, os.WriteFile(bad, nil, 0o600))
	require.NotEmpty(t, next(t, news))
}

// Only failures in a row count.
func TestOneFailureIsABusyMoment(t *testing.T) {
	dir := t.TempDir()
	news := watch(t, health.Check{Failures: 2, Command: fmt.Sprintf("cd %s; echo >>runs; [ $(( $(wc -l <runs) %% 2 )) = 0 ]", dir)})
	require.Eventually(t, func() bool { content, _ := os.ReadFile(filepath.Join(dir, "runs")); return len(content) >= 10 }, within, time.Millisecond)
	select {
	case said := <-news:
		require.FailNow(t, "said", "%q", said)
	default:
	}
}

func TestWhatIsSaidIsBounded(t *testing.T) {
	said := next(t, watch(t, health.Check{Failures: 1, Command: `i=0; while [ $i -lt 200 ]; do printf 'ä€'; i=$((i+1)); done; printf '\377'; exit 1`}))
	require.LessOrEqual(t, len(said), health.MaxTextBytes)
	require.Greater(t, len(said), health.MaxTextBytes-4)
	require.True(t, utf8.ValidString(said))
	require.True(t, strings.HasPrefix(said, "health check: exit code 1: ä€"))
}

func TestACheckThatCantBeStartedHasFailed(t *testing.T) {
	c := health.Check{Command: "true", Every: time.Millisecond, Failures: 1, WorkDir: filepath.Join(t.TempDir(), "absent")}
	require.Contains(t, next(t, run(t, c)), "not started")
}

func TestValidate(t *testing.T) {
	for _, c := range []health.Check{{}, {Command: " "}, {Command: "a\x00"}, {Command: "a", Every: -1}, {Command: "a", Failures: -1}} {
		require.ErrorIs(t, c.Validate(), health.ErrCheck)
	}
	require.NoError(t, (&health.Check{Command: "true"}).Validate())
}
