package store_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// BenchmarkClaimFinish is the store's part of dispatching: jobs that wait are
// claimed and ended, by one claimer and one finisher at the same time, as a replica
// does it. The metric is jobs per second; pushing is not timed.
func BenchmarkClaimFinish(b *testing.B) {
	for _, c := range []struct{ batch, classes int }{{64, 1}, {256, 1}, {512, 1}, {512, 16}} {
		b.Run(fmt.Sprintf("batch=%d/classes=%d", c.batch, c.classes), func(b *testing.B) {
			s := openForBench(b)
			classes := preload(b, s, b.N, c.classes)
			b.ResetTimer()
			claimAndFinish(b, s, classes, b.N, c.batch)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkPush is the way into the queue.
func BenchmarkPush(b *testing.B) {
	s := openForBench(b)
	b.ResetTimer()
	preload(b, s, b.N, 4)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkCounts is one look of the scaler at a queue of 1,000 classes.
func BenchmarkCounts(b *testing.B) {
	s := openForBench(b)
	preload(b, s, 20_000, 1_000)
	b.ResetTimer()
	for b.Loop() {
		counts, err := s.Counts(b.Context())
		require.NoError(b, err)
		require.Len(b, counts, 1_000)
	}
}

// BenchmarkMachines is one look of the scaler at 9,000 machines of 100 pools.
func BenchmarkMachines(b *testing.B) {
	s := openForBench(b)
	machines := make([]router.Machine, 9_000)
	for i := range machines {
		at := time.Now()
		machines[i] = router.Machine{
			ID: spillway.MachineID(fmt.Sprintf("r_%012d", i)), InstanceID: fmt.Sprintf("i-%017d", i), Pool: fmt.Sprintf("pool-%d", i%100),
			Version: "1.0.0", Capacity: 1, HeardAt: at, HeartbeatAt: at, RegisteredAt: at, LastUsedAt: at, Connected: true, Replica: "replica-1",
		}
	}
	require.NoError(b, s.PutMachines(b.Context(), machines))
	b.ResetTimer()
	for b.Loop() {
		all, err := s.Machines(b.Context())
		require.NoError(b, err)
		require.Len(b, all, len(machines))
	}
}

// BenchmarkConfirmRouted is what a runner's first word on a job waits for at a front
// proxy: one job is confirmed, on a machine that has another.
func BenchmarkConfirmRouted(b *testing.B) {
	s := openForBench(b)
	now := time.Now()
	for i := range 2 {
		_, err := s.BeginRouted(b.Context(), store.RoutedJob{
			ID: spillway.JobID(strconv.Itoa(i)), Pool: "p", Machine: "m", Begun: now, Until: now.Add(time.Hour), ConfirmWithin: time.Minute,
		})
		require.NoError(b, err)
	}
	b.ResetTimer()
	for b.Loop() {
		got, err := s.ConfirmRouted(b.Context(), "1")
		require.NoError(b, err)
		require.Equal(b, store.Confirmed, got)
	}
}

func openForBench(b *testing.B) *store.Store {
	b.Helper()
	s, err := store.Open(b.Context(), store.Options{Addrs: []string{storetest.StartRedis(b)}, Timeout: 30 * time.Second})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// preload pushes n jobs of some classes.
func preload(b *testing.B, s *store.Store, n, classes int) []spillway.JobClass {
	b.Helper()
	names := make([]spillway.JobClass, classes)
	for i := range names {
		names[i] = spillway.Requirement{Tags: []string{"linux", strconv.Itoa(i)}}.Class()
	}
	jobs := make([]spillway.Job, 0, store.MaxBatch)
	for i := range n {
		jobs = append(jobs, spillway.Job{
			ID: spillway.JobID(strconv.Itoa(9_000_000_000 + 13*i)), Name: "test: [unit]", Script: "set -e\nmake test\n",
			Env:         map[string]string{"CI": "true", "CI_JOB_TOKEN": "0123456789abcdef0123"},
			Requirement: spillway.Requirement{Tags: []string{"linux", strconv.Itoa(i % classes)}},
		})
		if len(jobs) == cap(jobs) || i == n-1 {
			outcomes, err := s.Push(b.Context(), jobs)
			require.NoError(b, err)
			require.NotContains(b, outcomes, store.Full)
			jobs = jobs[:0]
		}
	}
	return names
}

func claimAndFinish(b *testing.B, s *store.Store, classes []spillway.JobClass, n, batch int) {
	b.Helper()
	claimed := make(chan []router.Claimed, 4)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(claimed)
		wants := make([]router.ClaimWant, len(classes))
		for i, c := range classes {
			wants[i] = router.ClaimWant{Class: c, Pool: "blue", N: max(1, batch/len(classes))}
		}
		for left := n; left > 0; {
			got, err := s.Claim(context.Background(), "replica-1", wants, time.Minute)
			if err != nil || len(got) == 0 {
				b.Errorf("claimed %d: %v", len(got), err)
				return
			}
			left -= len(got)
			claimed <- got
		}
	})
	wg.Go(func() {
		for got := range claimed {
			ends := make([]store.Transition, len(got))
			for i, c := range got {
				ends[i] = store.Transition{
					Ref: c.Ref, To: spillway.Completed, Pool: c.Pool, Machine: "r_0123456789ab",
					Result: spillway.JobResult{State: spillway.Completed},
				}
			}
			errs, err := s.Apply(context.Background(), ends)
			if err != nil {
				b.Error(err)
			}
			for _, err := range errs {
				if err != nil {
					b.Error(err)
				}
			}
		}
	})
	wg.Wait()
}

// BenchmarkViews is one tick over a million jobs of 1,000 classes: three replicas
// write what they see, half of it the same, and one reads the counts.
func BenchmarkViews(b *testing.B) {
	s := openForBench(b)
	const interval = 24 * time.Hour
	views := overlapping(1_000, 1_000)
	write := func() {
		for replica, view := range views {
			require.NoError(b, s.WriteView(b.Context(), "gitlab", strconv.Itoa(replica), interval, view))
		}
	}
	write()
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			write()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		before := cpuTime(b)
		for b.Loop() {
			require.Len(b, store.CountCurrent(b, s, "gitlab", interval).Jobs, 1_000)
		}
		b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	})
}

// cpuTime is what this process has used, without the server: on a machine that is shared
// it says more than the time that passes.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
