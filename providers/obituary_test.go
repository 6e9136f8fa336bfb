package providers

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// A caller that looks late, when the plugin runs again already, is told what ended the
// process that its call was with, and not only that the connection broke.
func TestX13_TheCauseIsKeptUntilACallerLooks(t *testing.T) {
	p := newPlugin(Spec{Name: "p"}, "", Options{}.withDefaults())
	s := newSupervisor(p, &launcher{})
	life := func() *session {
		one := &session{}
		p.publish(&moment{state: State{Phase: Ready}, session: one})
		return one
	}
	first := life()
	broken := cutOffFrom(p, first)
	require.NotContains(t, broken(ended(t)).Error(), "ended during the call", "as far as is known")

	died := errors.New("the process ended (exit status 5)")
	s.down(died, 0, false)
	require.ErrorIs(t, broken(t.Context()), died)
	second := life()
	err := broken(t.Context())
	require.ErrorIs(t, err, died)
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "ended during the call")

	s.down(errors.New("signal: killed"), 0, false)
	s.closed(nil)
	require.ErrorIs(t, broken(t.Context()), died, "not what ended another one")
	require.ErrorContains(t, cutOffFrom(p, second)(t.Context()), "signal: killed")
	third := life()
	s.closed(nil)
	require.ErrorIs(t, cutOffFrom(p, third)(t.Context()), ErrClosed)
}

// cutOffFrom makes the error of a call whose connection broke under it.
func cutOffFrom(p *Plugin, s *session) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.explain(ctx, s, status.Error(codes.Unavailable, "error reading from server: EOF"))
	}
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
