package child_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

// TestMain lets the test binary be a child: "echo" answers each order, "mute" ends
// without a word.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != child.Command {
		os.Exit(m.Run())
	}
	if os.Args[2] == "mute" {
		return
	}
	child.Answer("ready", os.Args[3])
	err := child.Orders(func(order string, words []string) error {
		if order == "fail" {
			return errors.New("as told")
		}
		child.Answer(order, len(words))
		return nil
	})
	if err != nil {
		os.Exit(1)
	}
}

func TestParentAndChildTalk(t *testing.T) {
	p, err := child.Start("echo", "argument")
	require.NoError(t, err)
	defer p.Stop()
	rest, err := p.Hear(t.Context(), "ready")
	require.NoError(t, err)
	require.Equal(t, "argument", rest)
	require.NoError(t, p.Say("begin", 1, 2))
	rest, err = p.Hear(t.Context(), "begin")
	require.NoError(t, err)
	require.Equal(t, "2", rest)
}

func TestUnexpectedWordsAndEndsAreErrors(t *testing.T) {
	p, err := child.Start("echo", "x")
	require.NoError(t, err)
	defer p.Stop()
	_, err = p.Hear(t.Context(), "something else")
	require.ErrorContains(t, err, `"ready x"`)
	require.NoError(t, p.Say("fail"))
	_, err = p.Hear(t.Context(), "fail")
	require.ErrorContains(t, err, "has ended")

	mute, err := child.Start("mute")
	require.NoError(t, err)
	defer mute.Stop()
	_, err = mute.Hear(t.Context(), "ready")
	require.ErrorContains(t, err, "has ended")
}

func TestHearEndsWithItsContext(t *testing.T) {
	p, err := child.Start("echo", "x")
	require.NoError(t, err)
	defer p.Stop()
	_, err = p.Hear(t.Context(), "ready")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Hear(ctx, "never")
	require.ErrorIs(t, err, context.Canceled)
}
