package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGCPercent(t *testing.T) {
	const mib = 1 << 20
	for liveBytes, want := range map[uint64]int{
		0: 400, 1: 400, 4 * mib: 400, 16 * mib: 400,
		20 * mib: 320, 32 * mib: 200, 64 * mib: 100, 65 * mib: 100, 1 << 40: 100, math.MaxUint64: 100,
	} {
		require.Equal(t, want, gcPercent(liveBytes), "%d bytes alive", liveBytes)
	}
}

func TestTheHeapGrowsByTheAllowanceAtMostUnlessMoreIsAlive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := rapid.Uint64Range(0, 1<<40).Draw(t, "live bytes")
		percent := gcPercent(live)
		require.GreaterOrEqual(t, percent, minGCPercent)
		require.LessOrEqual(t, percent, maxGCPercent)
		require.LessOrEqual(t, live*uint64(percent)/100, max(gcAllowance, live))
		require.LessOrEqual(t, gcPercent(live+1), percent, "more alive, no larger part")
	})
}

// With hardly anything alive the percentage is the largest; it is put back at the end.
func TestTuneGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go tuneGC(ctx)
		synctest.Wait()
		ballast := make([]byte, 2*gcAllowance)
		runtime.GC()
		require.Greater(t, percentNow(), minGCPercent, "not looked again yet")
		time.Sleep(gcTuneEvery) // of the bubble's clock
		synctest.Wait()
		require.Equal(t, minGCPercent, percentNow())
		runtime.KeepAlive(ballast)
		cancel()
		synctest.Wait()
		require.Equal(t, 100, percentNow())
	})
}

func percentNow() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}
