package measure

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsageOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: there is no /proc here")
	}
	u, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	require.Greater(t, u.Resident, int64(1<<20))
	require.GreaterOrEqual(t, u.Peak, u.Resident)
	require.Contains(t, ChildrenOf(os.Getppid()), os.Getpid())
	_, ok = UsageOf(-1)
	require.False(t, ok)
}

func TestSizeIn(t *testing.T) {
	const status = "Name:\tserve\nVmHWM:\t    2048 kB\nVmRSS:\t  many kB\n"
	n, ok := sizeIn(status, "VmHWM")
	require.True(t, ok)
	require.EqualValues(t, 2<<20, n)
	for _, name := range []string{"VmRSS", "VmSwap", "Vm"} {
		_, ok = sizeIn(status, name)
		require.False(t, ok, name)
	}
}

func TestPeakBeginsAnew(t *testing.T) {
	if !ResetPeak(os.Getpid()) {
		t.Skip("SKIPPED: peaks can't be reset here")
	}
	before, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	const much = 64 << 20
	runtime.KeepAlive(bytes.Repeat([]byte{1}, much))
	after, ok := UsageOf(os.Getpid())
	require.True(t, ok)
	require.Greater(t, after.Peak, before.Peak+much/2)
	require.False(t, ResetPeak(-1))
}
