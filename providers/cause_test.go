package providers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

var errLeaseEnded = errors.New("the lease of the pool ended")

// A call that ended with its process says what the process ended with, and not only
// that the connection broke.
func TestX13_ACallThatIsCutOffSaysWhatEndedThePlugin(t *testing.T) {
	for group, words := range map[string]string{"exit": "exit status 5", "panic": "panic: surprise"} {
		f := newHost(t, providers.Timing{})
		_, err := open(t, f, spec(t, "good")).Group("a", group).SetDesired(within(t, patience), 3, 0)
		require.ErrorIs(t, err, pluginsdk.ErrTransient, "the outcome is unknown")
		require.ErrorContains(t, err, "ended during the call")
		require.ErrorContains(t, err, words)
	}
}

// Who ended a call is kept: our own limit, or whatever its caller ended for.
func TestX13_TheCauseOfAnEndIsKept(t *testing.T) {
	s := spec(t, "good")
	for name, ask := range hanging(open(t, newHost(t, providers.Timing{Read: 150 * time.Millisecond}), s)) {
		err := ask(t.Context())
		require.ErrorIs(t, err, pluginsdk.ErrTransient, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorContains(t, err, "the provider did not answer in time", name)
	}
	for name, ask := range hanging(open(t, newHost(t, providers.Timing{}), s)) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(errLeaseEnded) })
		err := ask(ctx)
		require.ErrorIs(t, err, pluginsdk.ErrTransient, name)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, errLeaseEnded, name)
	}
}

// hanging are calls that get no answer; two, so that they don't count as a plugin that
// hangs.
func hanging(p *providers.Plugin) map[string]func(context.Context) error {
	g := p.Group("a", "hang")
	p.Group("b", "g") // somebody to share a status with
	return map[string]func(context.Context) error{
		"list":            func(ctx context.Context) error { _, err := g.ListInstances(ctx); return err },
		"a shared status": func(ctx context.Context) error { _, err := g.Status(ctx); return err },
	}
}

// A call that waited for a restart in vain says why there is no plugin, too.
func TestX13_ACallThatWaitedForARestartSaysWhyThereIsNone(t *testing.T) {
	f := newHost(t, providers.Timing{Read: 3 * time.Hour, Restart: time.Hour, Settle: time.Hour})
	p := open(t, f, spec(t, "good"))
	killUntilItWaits(t, p, patience)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errLeaseEnded) })
	_, err := p.Group("a", "g").ListInstances(ctx)
	require.ErrorContains(t, err, "restarting")
	require.ErrorIs(t, err, errLeaseEnded)
	require.ErrorContains(t, err, "signal: killed")
}
