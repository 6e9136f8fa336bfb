package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/store"
)

// machinePrefix keeps the ids of workers apart from those of other machines: who may
// speak for a worker must not be able to push a runner's stream out.
const machinePrefix = "worker:"

// caller is a worker as a call names it.
type caller struct {
	runner   string
	instance string
	by       string // whose worker it is
}

func (c *caller) machine() spillway.MachineID { return spillway.MachineID(machinePrefix + c.runner) }

// callerOf checks how a call names its worker.
func callerOf(ctx context.Context, runner, instance string) (caller, error) {
	c := caller{runner: runner, instance: instance, by: identity(ctx)}
	if c.instance == "" {
		c.instance = runner
	}
	switch {
	case runner == "":
		return c, status.Error(codes.InvalidArgument, "runner_id is empty: name the worker, each process by a name of its own")
	case !shortText(runner, MaxRunnerIDBytes):
		return c, status.Errorf(codes.InvalidArgument, "runner_id must be at most %d bytes of printable ASCII without blanks", MaxRunnerIDBytes)
	case !shortText(c.instance, MaxRunnerIDBytes):
		return c, status.Errorf(codes.InvalidArgument, "instance_id must be at most %d bytes of printable ASCII without blanks", MaxRunnerIDBytes)
	}
	return c, nil
}

// identity is who calls, as exactly as is known: an entry of the access section may be for
// many workers, each with a certificate of its own.
func identity(ctx context.Context) string {
	i, _ := access.From(ctx)
	if i.Subject == "" {
		return i.Name
	}
	return i.Name + " (" + i.Subject + ")"
}

// shortText reports whether s is at most limit bytes of printable ASCII without blanks.
func shortText(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// poolNotFound is the answer for a pool that nobody knows.
func poolNotFound(name string, known []string) error {
	const shown = 20
	there := "there are none"
	if len(known) > 0 {
		slices.Sort(known)
		there = "there are " + strings.Join(known[:min(shown, len(known))], ", ")
		if len(known) > shown {
			there += " and others"
		}
	}
	return status.Errorf(codes.NotFound, "pool not found: %.80s; %s", name, there)
}

// storeStatus is an error of the store as a caller may know it.
func storeStatus(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, store.ErrUnknown):
		return status.Error(codes.Unavailable, "the store did not confirm in time: whether it was done is not known; try again")
	default:
		return status.Error(codes.Unavailable, "the store can't be reached now: try again")
	}
}

var errGoingAway = status.Error(codes.Unavailable, "this control plane is going away: try another")
