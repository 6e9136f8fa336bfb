package providers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// seenDeadWithin is how long a process whose connection broke may take to be seen dead.
// Then the supervisor is about to say why, having read its last words.
const seenDeadWithin = time.Second

// endOf says how and why ctx ended: it matches the context's error and its cause.
// "Context canceled" alone sends whoever reads it to the wrong place.
func endOf(ctx context.Context) error { return because(ctx.Err(), context.Cause(ctx)) }

// because adds a cause to err, unless err says it already.
func because(err, cause error) error {
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// explain adds to the error of a call what this side knows of its end.
func (p *Plugin) explain(ctx context.Context, s *session, err error) error {
	var e *pluginsdk.Error
	switch {
	case cutOff(err):
		return p.whyCutOff(ctx, s, err)
	case !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errDeadline) || !hadItsTime(ctx, err):
		return err
	case errors.As(err, &e) && e.Kind == pluginsdk.KindTransient: // the plugin's clock was first
		return &pluginsdk.Error{Kind: e.Kind, Message: e.Message + ": " + errDeadline.Error(), Cause: because(err, errDeadline)}
	default:
		return err
	}
}

// cutOff reports whether a call ended because the connection to the plugin did: it
// broke, or the supervisor, who saw the process end first, has closed it. What a
// provider itself says has no gRPC status, and an end of the caller's own neither.
func cutOff(err error) bool {
	var wire interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &wire) {
		return false
	}
	code := wire.GRPCStatus().Code()
	return code == codes.Unavailable || code == codes.Canceled
}

// whyCutOff puts the end of the process in the place of the end of its connection,
// which is all that grpc knows of. Whether the call was carried out stays unknown.
func (p *Plugin) whyCutOff(ctx context.Context, s *session, err error) error {
	lives := time.NewTimer(seenDeadWithin)
	defer lives.Stop()
	for {
		m := p.now.Load()
		if m.session != s { // it may run again already, as another session
			return pluginsdk.Errorf(pluginsdk.KindTransient, "provider %q ended during the call: %w", p.spec.Name, because(s.over(), err))
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return err
		case <-lives.C:
			if s.alive() {
				return err
			}
		}
	}
}
