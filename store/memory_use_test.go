package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// TestViewMemory measures what one job id costs a stock server at the peak, when two
// epochs are alive. Three replicas see half of each other's jobs.
func TestViewMemory(t *testing.T) {
	addr := storetest.StartRedis(t)
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: 30 * time.Second})
	require.NoError(t, err)
	closeAtEnd(t, s)
	const (
		classes, perClass = 300, 1_000
		mostBytesPerID    = 20.0
	)
	views := overlapping(classes, perClass)
	before := usedMemory(t, addr)
	// Intervals of different lengths make different epochs at the same time. The first
	// one only learns how many ids a class has, as an epoch before would.
	for round := range 3 {
		interval := 24*time.Hour + time.Duration(round)*time.Hour
		for replica, view := range views {
			require.NoError(t, s.WriteView(t.Context(), "gitlab", strconv.Itoa(replica), interval, view))
		}
		if round == 0 {
			forgetEpochs(t, addr, "gitlab")
		}
	}
	after := usedMemory(t, addr)
	perID := float64(after-before) / (classes * perClass)
	t.Logf("%.1f bytes per job id with two epochs alive", perID)
	require.LessOrEqual(t, perID, mostBytesPerID)
}

func overlapping(classes, perClass int) []map[spillway.JobClass][]spillway.JobID {
	views := make([]map[spillway.JobClass][]spillway.JobID, 3)
	for r := range views {
		views[r] = map[spillway.JobClass][]spillway.JobID{}
		for c := range classes {
			class := spillway.Requirement{Tags: []string{strconv.Itoa(c)}}.Class()
			from, to := r*perClass/4, r*perClass/4+perClass/2
			for i := from; i < to; i++ {
				views[r][class] = append(views[r][class], spillway.JobID(numberID(c*perClass+i)))
			}
		}
	}
	return views
}

// usedMemory is what the server uses for what it keeps: without the buffers of its
// clients, which come and go.
func usedMemory(t testing.TB, addr string) int64 {
	t.Helper()
	info, err := storetest.Command(addr, "INFO", "memory")
	require.NoError(t, err)
	number := func(name string) int64 {
		_, rest, ok := strings.Cut(info, "\r\n"+name+":")
		require.True(t, ok, name)
		digits, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseInt(digits, 10, 64)
		require.NoError(t, err)
		return n
	}
	return number("used_memory") - number("mem_clients_normal")
}

// forgetEpochs drops the epochs of a source, and keeps the sizes that it learned.
func forgetEpochs(t *testing.T, addr, source string) {
	t.Helper()
	script := fmt.Sprintf(`for _, k in ipairs(redis.call('KEYS', 'spw:w:%s:*')) do if not string.find(k, ':sizes$') then redis.call('DEL', k) end end return 1`, source)
	_, err := storetest.Command(addr, "EVAL", script, "0")
	require.NoError(t, err)
}
