package providers

import (
	"context"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// paging keeps calls that name instances within the contract's limit for one call.
type paging struct{ next Calls }

func (p *paging) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	return p.next.Status(ctx)
}

func (p *paging) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	return p.next.ListInstances(ctx)
}

func (p *paging) SetDesired(ctx context.Context, target, expected int) (int, error) {
	return p.next.SetDesired(ctx, target, expected)
}

// Remove stops at the first page that fails. The error is for a call in which
// nothing was removed, so after a page that was answered the rest is reported
// instance by instance, each with that error.
func (p *paging) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	results := make([]pluginsdk.RemoveResult, 0, len(ids))
	for page := range slices.Chunk(ids, pluginsdk.MaxInstancesPerCall) {
		got, err := p.next.Remove(ctx, page)
		if err != nil && len(results) == 0 {
			return nil, err
		}
		if err != nil {
			for _, id := range ids[len(results):] {
				results = append(results, pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.NotRemoved, Err: err})
			}
			return results, nil
		}
		results = append(results, got...)
	}
	return results, nil
}

func (p *paging) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return p.next.Withdraw(ctx, expected)
}

func (p *paging) CompleteHook(ctx context.Context, ids []string) error {
	return eachPage(ids, func(page []string) error { return p.next.CompleteHook(ctx, page) })
}

func (p *paging) ReportUnhealthy(ctx context.Context, ids []string) error {
	return eachPage(ids, func(page []string) error { return p.next.ReportUnhealthy(ctx, page) })
}

// eachPage stops at the first page that fails; both calls may be repeated.
func eachPage(ids []string, ask func(page []string) error) error {
	for page := range slices.Chunk(ids, pluginsdk.MaxInstancesPerCall) {
		if err := ask(page); err != nil {
			return err
		}
	}
	return nil
}
