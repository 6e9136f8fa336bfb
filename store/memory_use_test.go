package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
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

// TestHistoryMemory measures what a finished job costs a stock server, and what of it is
// its history. A job that only waits has none.
func TestHistoryMemory(t *testing.T) {
	addr := storetest.StartRedis(t)
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: 30 * time.Second})
	require.NoError(t, err)
	closeAtEnd(t, s)
	const (
		jobs                 = 20_000
		mostBytesOfAHistory  = 110.0
		mostBytesPerFinished = 700.0
	)
	before := usedMemory(t, addr)
	pushNumbered(t, s, jobs)
	waiting := usedMemory(t, addr)
	finishAll(t, s, jobs)
	after := usedMemory(t, addr)
	r, err := s.Get(t.Context(), spillway.JobID(numberID(7)))
	require.NoError(t, err)
	require.Len(t, r.Transitions, 4)
	history, err := storetest.Command(addr, "EVAL", `return #string.match(redis.call('HGET', KEYS[1], ARGV[1]), '\n(#[^\n]*)')`, "1",
		"spw:{c:"+string(classA())+"}:state", numberID(7))
	require.NoError(t, err)
	bytes, err := strconv.Atoi(history)
	require.NoError(t, err)
	t.Logf("%.0f bytes for a job that waits, %.0f for one that has ended; its history has %d",
		float64(waiting-before)/jobs, float64(after-before)/jobs, bytes)
	require.LessOrEqual(t, float64(bytes), mostBytesOfAHistory)
	require.LessOrEqual(t, float64(after-before)/jobs, mostBytesPerFinished)
}

func pushNumbered(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for from := 0; from < n; from += store.MaxBatch {
		var jobs []spillway.Job
		for i := from; i < min(n, from+store.MaxBatch); i++ {
			jobs = append(jobs, simpleJob(numberID(i), "a"))
		}
		_, err := s.Push(t.Context(), jobs)
		require.NoError(t, err)
	}
}

// finishAll takes jobs to their end, by way of a start.
func finishAll(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for n > 0 {
		claimed, err := s.Claim(t.Context(), "replica-1", []router.ClaimWant{{Class: classA(), Pool: "linux-large", N: store.MaxBatch}}, time.Minute)
		require.NoError(t, err)
		require.NotEmpty(t, claimed)
		n -= len(claimed)
		for _, to := range []spillway.JobState{spillway.Running, spillway.Completed} {
			moves := make([]store.Transition, len(claimed))
			for i, c := range claimed {
				moves[i] = store.Transition{Ref: c.Ref, To: to, Pool: c.Pool, Machine: "r_0123456789ab", Result: spillway.JobResult{State: to}}
			}
			_, err := s.Apply(t.Context(), moves)
			require.NoError(t, err)
		}
	}
}
