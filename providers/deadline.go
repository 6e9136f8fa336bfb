package providers

import (
	"context"
	"errors"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// errDeadline is the cause of a context that ended by a deadline of ours: the
// plugin had its time. A caller that gave up earlier is another matter.
var errDeadline = errors.New("the provider did not answer in time")

// withPatience gives a call d. It says so in the context: grpc on the plugin's
// side may notice a deadline before our own timer does, and then the cause is not
// set yet.
func withPatience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ours := time.Now().Add(d)
	if theirs, limited := ctx.Deadline(); limited && theirs.Before(ours) {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(context.WithValue(ctx, patienceKey{}, true), ours, errDeadline)
}

type patienceKey struct{}

// hadItsTime reports whether a call with ctx ended by a deadline of ours.
func hadItsTime(ctx context.Context, err error) bool {
	if context.Cause(ctx) == errDeadline { //nolint:errorlint // the very one: a wrapped one is somebody else's
		return true
	}
	ours, _ := ctx.Value(patienceKey{}).(bool)
	return ours && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
}

// deadline bounds each call: [Timing.Read] or [Timing.Write].
type deadline struct {
	next   Calls
	timing Timing
}

func (d *deadline) read(ctx context.Context) (context.Context, context.CancelFunc) {
	return withPatience(ctx, d.timing.Read)
}

func (d *deadline) write(ctx context.Context) (context.Context, context.CancelFunc) {
	return withPatience(ctx, d.timing.Write)
}

func (d *deadline) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	return d.next.Status(ctx)
}

func (d *deadline) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	return d.next.ListInstances(ctx)
}

func (d *deadline) SetDesired(ctx context.Context, target, expected int) (int, error) {
	ctx, cancel := d.write(ctx)
	defer cancel()
	return d.next.SetDesired(ctx, target, expected)
}

func (d *deadline) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	ctx, cancel := d.write(ctx)
	defer cancel()
	return d.next.Remove(ctx, ids)
}

func (d *deadline) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	ctx, cancel := d.write(ctx)
	defer cancel()
	return d.next.Withdraw(ctx, expected)
}

func (d *deadline) CompleteHook(ctx context.Context, ids []string) error {
	ctx, cancel := d.write(ctx)
	defer cancel()
	return d.next.CompleteHook(ctx, ids)
}

func (d *deadline) ReportUnhealthy(ctx context.Context, ids []string) error {
	ctx, cancel := d.write(ctx)
	defer cancel()
	return d.next.ReportUnhealthy(ctx, ids)
}
