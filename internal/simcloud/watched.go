package simcloud

import (
	"context"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

// watched is a group after whose writes somebody looks at what they did.
type watched struct {
	scaler.Group
	after func()
}

func (w *watched) SetDesired(ctx context.Context, target, expected int) (int, error) {
	defer w.after()
	return w.Group.SetDesired(ctx, target, expected)
}

func (w *watched) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	defer w.after()
	return w.Group.Remove(ctx, ids)
}

func (w *watched) ReportUnhealthy(ctx context.Context, ids []string) error {
	defer w.after()
	return w.Group.ReportUnhealthy(ctx, ids)
}
