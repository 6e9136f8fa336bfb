package agent

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// A router that takes the connection and says nothing is left in time.
func TestSilentRouterIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Router: "127.0.0.1:1", Token: StaticToken("token"), Dial: func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}}
		begun := time.Now()
		ended := make(chan error, 1)
		startLink(t.Context(), &o, (&agent{o: o}).registerMessage(), make(chan *runnerv1.RouterMessage), ended)
		require.ErrorIs(t, <-ended, errNotRegistered)
		require.Equal(t, registerWithin, time.Since(begun))
	})
}
