package providers_test

import (
	"context"
	"errors"
	"syscall"
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
		f := newHost(t, providers.Timing{Write: patience}) // dying takes a while on a busy machine
		_, err := open(t, f, spec(t, "good")).Group("a", group).SetDesired(within(t, patience), 3, 0)
		require.ErrorIs(t, err, pluginsdk.ErrTransient, "the outcome is unknown")
		require.ErrorContains(t, err, "ended during the call")
		require.ErrorContains(t, err, words)
	}
}

// Who ended a call is kept: our own limit, or whatever its caller ended for.
func TestX13_TheCauseOfAnEndIsKept(t *testing.T) {
	f := newHost(t, providers.Timing{Read: 150 * time.Millisecond})
	p := open(t, f, spec(t, "good"))
	alone, shared := p.Group("a", "hang"), p.Group("b", "g")
	for name, ask := range map[string]func(context.Context) error{
		"list":            func(ctx context.Context) error { _, err := alone.ListInstances(ctx); return err },
		"a shared status": func(ctx context.Context) error { _, err := alone.Status(ctx); return err },
	} {
		err := ask(t.Context())
		require.ErrorIs(t, err, pluginsdk.ErrTransient, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorContains(t, err, "the provider did not answer in time", name)

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(errLeaseEnded) })
		err = ask(ctx)
		require.ErrorIs(t, err, pluginsdk.ErrTransient, name)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, errLeaseEnded, name)
		_, err = shared.ListInstances(within(t, patience)) // an answer: nothing counts as hung
		require.NoError(t, err)
	}
}

// A call that waited for a restart in vain says why there is no plugin, too.
func TestX13_ACallThatWaitedForARestartSaysWhyThereIsNone(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "good"))
	require.Eventually(t, func() bool { // the second restart comes after a second
		if s := p.State(); s.Phase == providers.Ready {
			_ = syscall.Kill(s.PID, syscall.SIGKILL)
		}
		s := p.State()
		return s.Phase == providers.Restarting && time.Until(s.RetryAt) > 200*time.Millisecond
	}, patience, time.Millisecond)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errLeaseEnded) })
	_, err := p.Group("a", "g").ListInstances(ctx)
	require.ErrorContains(t, err, "restarting")
	require.ErrorIs(t, err, errLeaseEnded)
	require.ErrorContains(t, err, "signal: killed")
}
