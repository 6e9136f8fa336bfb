package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// TestIdleStand runs the whole: it builds and starts a control plane, has runners connect
// to it over mutual TLS, kills it, and has them come back to the next one.
func TestIdleStand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	require.NoError(t, writeAuthority(dir))
	stand, err := newIdleStand(ctx, dir, 2, 3)
	if errors.Is(err, errSkipped) {
		t.Skip("SKIPPED:", err)
	}
	needRedis(t, err)
	defer func() { require.NoError(t, stand.stop()) }()
	r := newIdleRun(stand, time.Second)
	r.runners, err = startIdleRunners(dir, 2, stand.instances())
	require.NoError(t, err)
	defer r.runners.stop()
	for range 2 {
		require.NoError(t, r.round(ctx, true))
	}
	require.Zero(t, r.lost)
	require.Zero(t, r.unrecordedIn)
	for _, f := range []*idleFigures{r.tcp, r.tls, r.own} {
		require.Len(t, f.rate.Figures, 2, f.rate.Name)
		require.Positive(t, f.rate.Figures[1], f.rate.Name)
	}
	b := &bench{table: &measure.Table{}}
	r.rows(b)
	require.False(t, b.table.Broken())
	missing, err := stand.unrecorded(ctx, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, r.n, missing, "a record of an older connection is none")
}

// What an idle runner may take of the router's process [KiB]: a tenth more than it does.
// A larger buffer, a deeper call to wait in or one more goroutine shows here.
const (
	maxIdleHeapKiB  = 26
	maxIdleStackKiB = 22
	maxIdleStreams  = 4 // goroutines: three of gRPC's for the connection, and the call
)

// TestIdleRunnersAreCheap looks at what is alive. How much is resident depends on the
// collector and on how fast they came: router/idle measures that.
func TestIdleRunnersAreCheap(t *testing.T) {
	const each = 200 // of each pool: with fewer, what is there once would count
	cost := holdIdleRunners(t, each)
	t.Logf("%.1f KiB of heap, %.1f KiB of stacks, %.2f goroutines each", cost.heap, cost.stack, cost.goroutines)
	require.LessOrEqual(t, cost.heap, float64(maxIdleHeapKiB))
	require.LessOrEqual(t, cost.stack, float64(maxIdleStackKiB))
	require.Less(t, cost.goroutines, maxIdleStreams+0.5)
}

// BenchmarkIdleRunners is the router's part of router/idle alone, for profiles:
//
//	go test ./suite -run '^$' -bench IdleRunners -benchtime 1x -memprofile mem.out -memprofilerate 1024
func BenchmarkIdleRunners(b *testing.B) {
	var cost idleCost
	for b.Loop() {
		cost = holdIdleRunners(b, 600)
	}
	b.ReportMetric(cost.heap, "heap-KiB/runner")
	b.ReportMetric(cost.stack, "stack-KiB/runner")
	b.ReportMetric(cost.all, "KiB/runner")
	b.ReportMetric(cost.goroutines, "goroutines/runner")
}

// idleCost is of one runner: memory [KiB], and goroutines.
type idleCost struct{ heap, stack, all, goroutines float64 }

// holdIdleRunners has so many runners of each pool connect to a router in this process
// over mutual TLS, from others, and returns what they cost once all wait.
func holdIdleRunners(tb testing.TB, each int) idleCost {
	tb.Helper()
	ctx := tb.Context()
	dir := tb.TempDir()
	require.NoError(tb, writeAuthority(dir))
	source, err := tlsfiles.Open(tlsfiles.Files{
		Cert: filepath.Join(dir, serverCert), Key: filepath.Join(dir, serverKey), CA: filepath.Join(dir, authorityCert),
	}, tlsfiles.Options{})
	require.NoError(tb, err)
	creds := grpc.Creds(tlsfiles.ServerCredentials(source.Server(tlsfiles.NamedClient)))
	o, err := startOwnRouter(ctx, session.Events{}, func(s *store.Store) session.Store { return s }, append(session.SecureOptions(), creds)...)
	needRedis(tb, err)
	defer o.close()
	instances := make([][]string, dispatchPools)
	for pool := range instances {
		for i := range each {
			instances[pool] = append(instances[pool], fmt.Sprintf("i-%d-%d", pool, i))
		}
	}
	runners, err := startIdleRunners(dir, idleProcesses, instances)
	require.NoError(tb, err)
	defer runners.stop()
	before := settledMemory()
	goroutines := runtime.NumGoroutine()
	_, err = runners.connect(ctx, overGRPC, o.addr)
	require.NoError(tb, err)
	require.NoError(tb, wait(ctx, 2*time.Second))
	after := settledMemory()
	n := float64(each * dispatchPools)
	kib := func(after, before uint64) float64 { return (float64(after) - float64(before)) / 1024 / n }
	return idleCost{
		heap:       kib(after.HeapAlloc, before.HeapAlloc),
		stack:      kib(after.StackInuse, before.StackInuse),
		all:        kib(after.Sys-after.HeapReleased, before.Sys-before.HeapReleased),
		goroutines: float64(runtime.NumGoroutine()-goroutines) / n,
	}
}

// settledMemory is what is in use without what only waits to be collected: pools let go
// of their things at the second collection.
func settledMemory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	return m
}
