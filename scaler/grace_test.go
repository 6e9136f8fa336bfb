package scaler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// A job counts from the moment in which it waits: there is no time that it must have
// waited before, and even the pause that collects pokes may be none.
func TestX11_AWaitingJobCountsAtOnce(t *testing.T) {
	for _, debounce := range []time.Duration{0, 5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			called := make(chan CallInfo, 10)
			events := &Events{Called: func(c CallInfo) { called <- c }}
			source := &late{}
			fleet := NewFleet(source, idle{}, 5*time.Second, spillway.SilentAfter, events)
			loop := NewLoop(fleet, []*Pool{poolFor(w, w, "a", events)}, 5*time.Second, debounce)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); loop.Run(ctx) }()
			time.Sleep(time.Second) // of the bubble's clock
			synctest.Wait()
			pushed := time.Now()
			source.classes.Store(&[]demand.Class{job("a", pushed)})
			loop.Poke()
			call := <-called
			require.Equal(t, pushed, call.OldestJob)
			require.Equal(t, debounce, call.Sent.Sub(pushed), "how old the job was when its instance was asked for")
			cancel()
			<-done
		})
	}
}
