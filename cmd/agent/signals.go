package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// errCutBySignal is the cause of a context that a signal ended.
var errCutBySignal = errors.New("jobs were cut short by a signal")

// followSignals turns signals into what agent.Run listens to: drain is closed by
// the first SIGTERM or SIGINT, the context ends with the second, or with SIGHUP.
func followSignals(ctx context.Context) (_ context.Context, drain <-chan struct{}, stop func()) {
	ctx, cut := context.WithCancelCause(ctx)
	surviveBrokenPipe()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	draining := make(chan struct{})
	go func() {
		for asked := false; ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case received := <-signals:
				if asked || received == unix.SIGHUP {
					cut(errCutBySignal)
					return
				}
				asked = true
				close(draining)
			}
		}
	}()
	return ctx, draining, func() {
		signal.Stop(signals)
		cut(nil)
	}
}

// surviveBrokenPipe keeps a log line from ending this process. Whoever reads our
// standard error may die before us, and what jobs have started must be ended then,
// not left behind. Ignoring the signal would have jobs inherit that; a handler is
// dropped when a job is started.
func surviveBrokenPipe() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// keepEnvironmentToOurselves hides what this process was started with. Jobs run
// as the same user, who could else read the runner token from /proc/PID/environ,
// or trace this process.
func keepEnvironmentToOurselves() {
	// It fails on kernels without it only, and is one defence of several.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
