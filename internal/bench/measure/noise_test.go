package measure

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParsePressure(t *testing.T) {
	waited, ok := parsePressure("some avg10=96.33 avg60=88.00 avg300=88.37 total=1480382502\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	require.True(t, ok)
	require.Equal(t, 1480382502*time.Microsecond, waited)
	for _, bad := range []string{"", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0", "some avg10=x"} {
		_, ok := parsePressure(bad)
		require.False(t, ok, "%q", bad)
	}
}

func TestParseCPUTimes(t *testing.T) {
	c, ok := parseCPUTimes("cpu  10 20 30 400 50 1 2 3 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	require.True(t, ok)
	require.Equal(t, cpuTimes{all: 516, busy: 66}, c, "idle and iowait are not busy; guests are counted in user")
	for _, bad := range []string{"", "cpu 1 2", "cpux 1 2 3 4 5 6 7 8", "cpu a 2 3 4 5 6 7 8"} {
		_, ok := parseCPUTimes(bad)
		require.False(t, ok, "%q", bad)
	}
}

func TestParseProcess(t *testing.T) {
	p, ok := parseProcess("42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 5 6 7")
	require.True(t, ok)
	require.Equal(t, process{parent: 7, ticks: 124}, p)
	for _, bad := range []string{"", "42 (a", "42 (a) S 7", "42 (a) S x 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		_, ok := parseProcess(bad)
		require.False(t, ok, "%q", bad)
	}
}

func TestOwnTicksAddsUpDescendants(t *testing.T) {
	all := map[int]process{
		1: {0, 1000}, 10: {1, 1}, 11: {10, 2}, 12: {11, 4}, 20: {1, 8}, 21: {99, 16}, // 99 has just ended
		30: {31, 32}, 31: {30, 64}, // read while ids were given out anew
	}
	require.EqualValues(t, 7, ownTicks(all, 10))
	require.EqualValues(t, 1015, ownTicks(all, 1))
	require.Zero(t, ownTicks(all, 5))
}

func TestOthersShare(t *testing.T) {
	began := cpuTimes{all: 100, busy: 50, own: 10}
	require.InDelta(t, 0.25, othersShare(began, cpuTimes{all: 300, busy: 180, own: 90}), 1e-9)
	require.Zero(t, othersShare(began, cpuTimes{all: 300, busy: 60, own: 25}), "ticks are coarse: never negative")
	require.Zero(t, othersShare(began, began))
}

func TestThisSystemIsRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux has /proc")
	}
	c, ok := readCPUTimes()
	require.True(t, ok)
	require.Positive(t, c.all)
	require.GreaterOrEqual(t, c.all, c.busy)
	require.Contains(t, readProcesses(), os.Getpid())
}
