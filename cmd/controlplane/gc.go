package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much the heap may grow beyond what is alive before it is collected: as much as
// keeps the collections' CPU at gcShare, within bounds. Where machines only wait, next to
// nothing is allocated, and little garbage lies around. Where jobs are dispatched, a small
// fleet's few MiB would be collected many times a second with Go's own percentage, and a
// job would cost about a tenth more CPU. A large fleet's heap does not grow to five times
// what is alive either way.
const (
	gcShare = 0.025 // of one processor
	// gcSpeed is how fast one processor looks through what is alive [bytes/s]: measured
	// with some tens of MiB of connections, machines and jobs.
	gcSpeed        = 1 << 30
	minGCAllowance = 8 << 20  // bytes
	maxGCAllowance = 64 << 20 // bytes; as much as is alive if that is more: Go's own
	minGCPercent   = 10       // with less, those who allocate would have to help often
	maxGCPercent   = 400
	// gcTuneEvery is how often the percentage is set anew: what is alive changes with
	// the fleet, and that takes seconds.
	gcTuneEvery = 2 * time.Second
	// gcNews is the part of the newest rate of allocation in the one that counts, so that
	// a tick of the scaler is no busy time.
	gcNews = 0.25
)

// gcPercent is how much garbage, in percent of what is alive and of what else Go takes
// percents of (the stacks in use, and globals), lets the heap grow by the allowance while
// so much is allocated [bytes/s].
func gcPercent(liveBytes, otherBytes uint64, rate float64) int {
	live := float64(liveBytes)
	every := live / gcSpeed / gcShare // seconds from one collection to the next
	allowance := min(max(rate*every, minGCAllowance), max(maxGCAllowance, live))
	counted := live + float64(otherBytes)
	if counted*maxGCPercent <= allowance*100 {
		return maxGCPercent // also before the first collection, which measures what is alive
	}
	return max(minGCPercent, int(allowance*100/counted))
}

// allocation is what is allocated, and how fast that goes.
type allocation struct {
	samples   []metrics.Sample
	allocated uint64 // bytes, at the last look
	rate      float64
}

func newAllocation() *allocation {
	a := &allocation{samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	metrics.Read(a.samples)
	a.allocated = a.samples[1].Value.Uint64()
	return a
}

// percent looks again, so long after the last look.
func (a *allocation) percent(after time.Duration) int {
	metrics.Read(a.samples)
	live, allocated := a.samples[0].Value.Uint64(), a.samples[1].Value.Uint64()
	a.rate += gcNews * (float64(allocated-a.allocated)/after.Seconds() - a.rate)
	a.allocated = allocated
	return gcPercent(live, a.samples[2].Value.Uint64()+a.samples[3].Value.Uint64(), a.rate)
}

// tuneGC keeps Go's percentage at gcPercent until ctx ends, and then puts back what
// was there before. How much is allocated is not known at first: starting is work.
func tuneGC(ctx context.Context) {
	set := maxGCPercent
	before := debug.SetGCPercent(set)
	defer debug.SetGCPercent(before)
	a := newAllocation()
	ticker := time.NewTicker(gcTuneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := a.percent(gcTuneEvery); now != set { // each change stops the world for a moment
			set = now
			debug.SetGCPercent(set)
		}
	}
}
