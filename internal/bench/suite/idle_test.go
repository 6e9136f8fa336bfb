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

// BenchmarkIdleRunners is the router's part of router/idle alone, for profiles:
//
//	go test ./suite -run '^$' -bench IdleRunners -benchtime 1x -memprofile mem.out -memprofilerate 1024
func BenchmarkIdleRunners(b *testing.B) {
	const each = 600 // of each pool
	dir := b.TempDir()
	require.NoError(b, writeAuthority(dir))
	source, err := tlsfiles.Open(tlsfiles.Files{
		Cert: filepath.Join(dir, serverCert), Key: filepath.Join(dir, serverKey), CA: filepath.Join(dir, authorityCert),
	}, tlsfiles.Options{})
	require.NoError(b, err)
	creds := grpc.Creds(tlsfiles.ServerCredentials(source.Server(tlsfiles.NamedClient)))
	o, err := startOwnRouter(b.Context(), session.Events{}, func(s *store.Store) session.Store { return s }, append(session.SecureOptions(), creds)...)
	needRedis(b, err)
	defer o.close()
	instances := make([][]string, dispatchPools)
	for pool := range instances {
		for i := range each {
			instances[pool] = append(instances[pool], fmt.Sprintf("i-%d-%d", pool, i))
		}
	}
	runners, err := startIdleRunners(dir, idleProcesses, instances)
	require.NoError(b, err)
	defer runners.stop()
	var before, after runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	for b.Loop() {
		_, err = runners.connect(b.Context(), overGRPC, o.addr)
		require.NoError(b, err)
	}
	require.NoError(b, wait(b.Context(), 2*time.Second))
	debug.FreeOSMemory()
	runtime.ReadMemStats(&after)
	per := func(x uint64) float64 { return float64(x) / 1024 / each / dispatchPools }
	b.ReportMetric(per(after.HeapAlloc-before.HeapAlloc), "heap-KiB/runner")
	b.ReportMetric(per(after.StackInuse-before.StackInuse), "stack-KiB/runner")
	b.ReportMetric(per(after.Sys-after.HeapReleased-before.Sys+before.HeapReleased), "KiB/runner")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/each/dispatchPools, "goroutines/runner")
}
