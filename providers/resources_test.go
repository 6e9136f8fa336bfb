package providers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// residentKiB is this process's memory once the garbage is gone.
func residentKiB(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	kib, err := vmRSS()
	require.NoError(t, err)
	return kib
}

// peakKiB is the most that it has until ctx ends.
func peakKiB(ctx context.Context) (most int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		kib, _ := vmRSS()
		most = max(most, kib)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return most
}

func vmRSS() (kib int, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		}
	}
	return 0, fmt.Errorf("no VmRSS in %d bytes of status", len(status))
}

// zombies are children of this process that nobody reaped.
func zombies(t *testing.T) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		var state string
		var parent int
		_, after, _ := strings.Cut(string(text), ") ")
		if _, err := fmt.Sscan(after, &state, &parent); err == nil && state == "Z" && parent == os.Getpid() {
			pids = append(pids, parent)
		}
	}
	return pids
}

// socketDirs are the directories for sockets below a host's directory, one for each
// process that lives.
func socketDirs(t *testing.T, dir string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dir, "host-*", "s*"))
	require.NoError(t, err)
	return dirs
}
