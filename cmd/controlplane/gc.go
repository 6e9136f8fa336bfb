package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much the heap may grow before it is collected, beyond what is alive. A small
// fleet's few MiB would be collected many times a second while jobs are dispatched:
// with [maxGCPercent] a job costs about a tenth less CPU. A large fleet's heap must
// not grow to five times what is alive: there the same allowance is a smaller part.
const (
	gcAllowance  = 64 << 20 // bytes
	minGCPercent = 100      // Go's own
	maxGCPercent = 400
	// gcTuneEvery is how often the percentage is set anew: what is alive changes with
	// the fleet, and that takes seconds.
	gcTuneEvery = 2 * time.Second
)

// gcPercent is how much garbage, in percent of what is alive, lets the heap grow by
// the allowance, within the bounds above.
func gcPercent(liveBytes uint64) int {
	if liveBytes <= gcAllowance*100/maxGCPercent {
		return maxGCPercent // also before the first collection, which measures it
	}
	return max(minGCPercent, int(gcAllowance*100/liveBytes))
}

// tuneGC keeps Go's percentage at gcPercent until ctx ends, and then puts back what
// was there before.
func tuneGC(ctx context.Context) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	read := func() int {
		metrics.Read(live)
		return gcPercent(live[0].Value.Uint64())
	}
	set := read()
	before := debug.SetGCPercent(set)
	defer debug.SetGCPercent(before)
	ticker := time.NewTicker(gcTuneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := read(); now != set { // each change stops the world for a moment
			set = now
			debug.SetGCPercent(set)
		}
	}
}
