package suite

import (
	"context"
	"fmt"
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

// BenchmarkOwnDispatch is Spillway's part of router/throughput alone, for profiles:
//
//	go test ./suite -run '^$' -bench OwnDispatch -benchtime 3x -cpuprofile cpu.out
func BenchmarkOwnDispatch(b *testing.B) {
	const jobs = 50_000
	defer debug.SetGCPercent(debug.SetGCPercent(routerGCPercent))
	for _, machines := range []int{100, 1_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			d, err := newOwnDispatch(b.Context(), machines)
			needRedis(b, err)
			defer d.close()
			first, seconds, cpu := 1, 0.0, time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, d.load(b.Context(), first, jobs))
				b.StartTimer()
				before := measure.OwnCPU()
				took, wrong, err := d.run(b.Context())
				require.NoError(b, err)
				cpu += measure.OwnCPU() - before
				require.Zero(b, wrong)
				first += jobs
				seconds += took.Seconds()
			}
			b.ReportMetric(float64(first-1)/seconds, "jobs/s")
			b.ReportMetric(micros(cpu)/float64(first-1), "CPU-µs/job")
		})
	}
}
