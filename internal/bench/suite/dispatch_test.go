package suite

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// TestEveryDispatchDoesEachJobOnce runs every contender with real processes.
func TestEveryDispatchDoesEachJobOnce(t *testing.T) {
	const machines, jobs = 10, 200
	for name, make := range map[string]func(context.Context, int) (dispatch, error){
		"push": newPushDispatch, "own": newOwnDispatch, "asynq": newAsynqDispatch, "nats": newNATSDispatch,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d, err := make(ctx, machines)
			needRedis(t, err)
			defer d.close()
			for round := range 2 {
				require.NoError(t, d.load(ctx, 1+round*jobs, jobs))
				took, wrong, err := d.run(ctx)
				require.NoError(t, err)
				require.Equal(t, flaws{}, wrong)
				require.Positive(t, took)
			}
		})
	}
}

// BenchmarkOwnDispatch is Spillway's part of router/throughput alone, for profiles, and
// BenchmarkPushDispatch its limit. Each says whose CPU time a job costs: the routers',
// the machines' and, where there is one, the store's.
//
//	go test ./suite -run '^$' -bench OwnDispatch -benchtime 3x -cpuprofile cpu.out
func BenchmarkOwnDispatch(b *testing.B)  { benchmarkDispatch(b, newOwnDispatch, "store", "machines") }
func BenchmarkPushDispatch(b *testing.B) { benchmarkDispatch(b, newPushDispatch, "machines") }

// benchmarkDispatch measures one dispatch; children are the processes that it starts, in
// that order.
func benchmarkDispatch(b *testing.B, make func(context.Context, int) (dispatch, error), children ...string) {
	const jobs = 50_000
	defer debug.SetGCPercent(debug.SetGCPercent(routerGCPercent))
	for _, machines := range []int{100, 1_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			d, err := make(b.Context(), machines)
			needRedis(b, err)
			defer d.close()
			first, seconds, all := 1, 0.0, time.Duration(0)
			parts := map[string]time.Duration{}
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, d.load(b.Context(), first, jobs))
				b.StartTimer()
				before, partsBefore := measure.OwnCPU(), cpuOfParts(b, children)
				took, wrong, err := d.run(b.Context())
				require.NoError(b, err)
				all += measure.OwnCPU() - before
				for part, cpu := range cpuOfParts(b, children) {
					parts[part] += cpu - partsBefore[part]
				}
				require.Zero(b, wrong)
				first += jobs
				seconds += took.Seconds()
			}
			b.ReportMetric(float64(first-1)/seconds, "jobs/s")
			b.ReportMetric(micros(all)/float64(first-1), "CPU-µs/job")
			for part, cpu := range parts {
				b.ReportMetric(micros(cpu)/float64(first-1), part+"-µs/job")
			}
		})
	}
}

// cpuOfParts is the CPU time of this process, under "router", and of its children.
func cpuOfParts(b *testing.B, children []string) map[string]time.Duration {
	pids := map[string]int{"router": os.Getpid()}
	started := measure.ChildrenOf(os.Getpid())
	require.Len(b, started, len(children))
	for i, name := range children {
		pids[name] = started[i]
	}
	parts := map[string]time.Duration{}
	for name, pid := range pids {
		usage, ok := measure.UsageOf(pid)
		require.True(b, ok)
		parts[name] = usage.CPU
	}
	return parts
}
