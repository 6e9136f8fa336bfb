package gcemig_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// A cloud that doesn't answer holds nobody longer than the call's own deadline: not
// in single calls, and not in lists, whose iterators would wait for ever.
func TestCallsEndWithTheirContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	var marked atomic.Bool
	hang := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Spillway-Call") != "" {
			marked.Store(true)
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	p := serve(t, &api{fail: hang, failFrom: 1}, "linux")
	for name, call := range map[string]func(ctx context.Context) error{
		"Status":          func(ctx context.Context) error { _, err := p.Status(ctx, []string{"linux"}); return err },
		"ListInstances":   func(ctx context.Context) error { _, err := p.ListInstances(ctx, "linux"); return err },
		"Remove":          func(ctx context.Context) error { _, err := p.Remove(ctx, "linux", []string{"1"}, "t"); return err },
		"Withdraw":        func(ctx context.Context) error { _, err := p.Withdraw(ctx, "linux", 1, "t"); return err },
		"ReportUnhealthy": func(ctx context.Context) error { return p.ReportUnhealthy(ctx, "linux", []string{"1"}) },
		"SetDesired": func(ctx context.Context) error {
			_, err := p.SetDesired(ctx, pluginsdk.SetDesired{Group: "linux", Target: 1})
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- call(withDeadline(t, 50*time.Millisecond)) }()
		select {
		case err := <-done:
			require.ErrorIs(t, err, pluginsdk.ErrTransient, name)
		case <-time.After(time.Minute):
			t.Fatalf("%s goes on after its context has ended", name)
		}
	}
	require.False(t, marked.Load(), "what binds a list to its context was sent")
}
