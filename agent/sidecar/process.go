package sidecar

import (
	"context"
	"errors"
	"time"
)

// Errors of the ways to a runner's process.
var (
	// ErrNoStart: there is no way to start this runner.
	ErrNoStart = errors.New("nobody said how the runner is started")
	// ErrUnknown: it can't be said whether the runner has a process.
	ErrUnknown = errors.New("can't see the runner's process")
)

// process is a way to a runner's process. Its methods are called by one goroutine.
type process interface {
	// look says which process the runner has; "" = none. The name is never another
	// process's, so that one that was started since is told from the one before.
	look(ctx context.Context) (name string, err error)
	// quit sends SIGQUIT to the runner alone, not to what it has started.
	quit(ctx context.Context, name string) error
	// hold keeps others from starting the runner again; called when it is gone and
	// shall be. Nothing to keep from is no error.
	hold(ctx context.Context) error
	// start starts the runner, or is ErrNoStart.
	start(ctx context.Context) error
	// close ends a runner that is ours: SIGTERM, and SIGKILL after grace.
	close(grace time.Duration)
}

// within bounds one call of another program, such as systemctl.
const within = 10 * time.Second
