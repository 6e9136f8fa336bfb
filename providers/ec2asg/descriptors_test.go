package ec2asg_test

import (
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Calls that fail, in whatever way, leave no descriptor behind.
func TestX15_FailedCallsLeaveNothingOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: descriptors are counted in /proc")
	}
	calls := 10_000
	if testing.Short() {
		calls = 1_000
	}
	ways := []http.HandlerFunc{
		failure(http.StatusBadRequest, "Throttling"),
		failure(http.StatusInternalServerError, ""),
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<nonsense")) },
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	var n atomic.Int64
	a := &api{failFrom: 1}
	a.fail = func(w http.ResponseWriter, r *http.Request) {
		ways[n.Add(1)%int64(len(ways))](w, r)
	}
	p := serve(t, a, "linux")
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	try := func(times int) {
		for range times {
			_, err := p.ListInstances(t.Context(), "linux")
			require.Error(t, err)
		}
	}
	try(100)
	before := open()
	try(calls)
	require.Eventually(t, func() bool { return open() <= before+4 }, time.Minute, 10*time.Millisecond)
}
