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
	for _, c := range []struct {
		liveBytes, otherBytes uint64
		rate                  float64
		want                  int
	}{
		// Nothing happens.
		{0, 0, 0, 400},
		{1, 0, 0, 400},
		{2 * mib, 0, 0, 400},
		{4 * mib, 0, 0, 200},
		{16 * mib, 0, 0, 50},
		{80 * mib, 0, 0, 10},
		{81 * mib, 0, 0, 10},
		{1 << 40, 0, 0, 10},
		{math.MaxUint64, 0, 0, 10},
		// Little does: the limit is the CPU.
		{64 * mib, 0, 8 * mib, 31},
		{64 * mib, 0, 16 * mib, 62},
		{16 * mib, 0, 32 * mib, 125},
		// Much does: the limit is memory.
		{1, 0, 1 << 40, 400},
		{4 * mib, 0, 1 << 40, 400},
		{16 * mib, 0, 1 << 40, 400},
		{20 * mib, 0, 1 << 40, 320},
		{64 * mib, 0, 1 << 40, 100},
		{65 * mib, 0, 1 << 40, 100},
		{1 << 40, 0, 1 << 40, 100},
		// Go takes a part of the stacks too.
		{16 * mib, 16 * mib, 0, 25},
		{64 * mib, 64 * mib, 1 << 40, 50},
		{0, 1 * mib, 0, 400},
		{0, 4 * mib, 0, 200},
		{math.MaxUint64, math.MaxUint64, 1 << 40, 50},
	} {
		require.Equal(t, c.want, gcPercent(c.liveBytes, c.otherBytes, c.rate), "%d bytes alive, %d others, %g a second", c.liveBytes, c.otherBytes, c.rate)
	}
}

func TestTheHeapGrowsByTheLargestAllowanceAtMostUnlessMoreIsAlive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live, other, rate := drawHeap(t)
		percent := gcPercent(live, other, rate)
		require.GreaterOrEqual(t, percent, minGCPercent)
		require.LessOrEqual(t, percent, maxGCPercent)
		require.LessOrEqual(t, (live+other)*uint64(percent)/100, max(maxGCAllowance, live, (live+other)*minGCPercent/100))
		require.GreaterOrEqual(t, gcPercent(live, other, 2*rate), percent, "more is allocated, no smaller part")
		require.LessOrEqual(t, gcPercent(live, 2*other, rate), percent, "Go counts more, of which a smaller part is as much")
	})
}

func TestCollectionsCostTheirShareAtMostUnlessMemoryIsTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live, other, rate := drawHeap(t)
		percent := gcPercent(live, other, rate)
		often := rate / (float64(live+other) * float64(percent+1) / 100) // collections a second; a percentage is rounded down
		if often*float64(live)/gcSpeed > gcShare {
			require.Equal(t, percent, gcPercent(live, other, 1e18), "less often isn't possible")
		}
	})
}

func drawHeap(t *rapid.T) (live, other uint64, rate float64) {
	bytes := rapid.Uint64Range(1, 1<<40)
	return bytes.Draw(t, "live bytes"), bytes.Draw(t, "other bytes"), rapid.Float64Range(0, 1<<34).Draw(t, "bytes a second")
}

// The percentage is the largest at first, because it isn't known yet what is allocated;
// it follows what is, and is put back at the end.
func TestTuneGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go tuneGC(ctx)
		synctest.Wait()
		require.Equal(t, maxGCPercent, percentNow())
		ballast := make([]byte, 2*maxGCAllowance)
		runtime.GC()
		time.Sleep(gcTuneEvery) // of the bubble's clock
		synctest.Wait()
		require.Greater(t, percentNow(), minGCPercent, "much was allocated just now")
		require.Less(t, percentNow(), maxGCPercent, "much is alive")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, minGCPercent, percentNow(), "nothing was allocated for long")
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
