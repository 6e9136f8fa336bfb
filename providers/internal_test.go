package providers

import (
	"context"
	"strconv"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func itoa(n int) string              { return strconv.Itoa(n) }
func kindErr(k pluginsdk.Kind) error { return pluginsdk.Errorf(k, "from the cloud") }

// scripted answers [Calls] with functions; a nil one answers as a group would
// that has all that it is asked for.
type scripted struct {
	status     func(context.Context) (pluginsdk.GroupStatus, error)
	list       func(context.Context) ([]pluginsdk.Instance, error)
	setDesired func(ctx context.Context, target, expected int) (int, error)
	remove     func(ids []string) ([]pluginsdk.RemoveResult, error)
	withdraw   func(expected int) (pluginsdk.WithdrawResult, error)
}

func (s *scripted) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	if s.status == nil {
		return pluginsdk.GroupStatus{Group: "g", Max: 10}, nil
	}
	return s.status(ctx)
}

func (s *scripted) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	if s.list == nil {
		return nil, nil
	}
	return s.list(ctx)
}

func (s *scripted) SetDesired(ctx context.Context, target, expected int) (int, error) {
	if s.setDesired == nil {
		return target, nil
	}
	return s.setDesired(ctx, target, expected)
}

func (s *scripted) Remove(_ context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	if s.remove == nil {
		return removedAll(ids), nil
	}
	return s.remove(ids)
}

func (s *scripted) Withdraw(_ context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	if s.withdraw == nil {
		return pluginsdk.WithdrawResult{Desired: expected}, nil
	}
	return s.withdraw(expected)
}

func removedAll(ids []string) []pluginsdk.RemoveResult {
	results := make([]pluginsdk.RemoveResult, len(ids))
	for i, id := range ids {
		results[i] = pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed}
	}
	return results
}

func (s *scripted) CompleteHook(context.Context, []string) error { return pluginsdk.ErrUnsupported }

func (s *scripted) ReportUnhealthy(context.Context, []string) error { return pluginsdk.ErrUnsupported }
