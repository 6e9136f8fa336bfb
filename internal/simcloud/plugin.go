package simcloud

import (
	"context"
	"fmt"
	"strconv"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

// plugin is one group as a control plane sees it through a provider that runs in
// this process. It is what the host of plugins is in a control plane, without the
// process, and without the repetitions of reads: they wait, and here nobody does.
type plugin struct {
	provider pluginsdk.Provider
	group    string
	tokens   *tokens
	status   func(ctx context.Context, group string) (pluginsdk.GroupStatus, error)
}

var _ scaler.Group = (*plugin)(nil)

// tokens are those of one run. No two writes have the same one: a control plane's
// are random.
type tokens struct{ last int }

func (t *tokens) next() string {
	t.last++
	return strconv.Itoa(t.last)
}

// alone asks for the status of one group.
func alone(p pluginsdk.Provider) func(context.Context, string) (pluginsdk.GroupStatus, error) {
	return func(ctx context.Context, group string) (pluginsdk.GroupStatus, error) {
		all, err := p.Status(ctx, []string{group})
		if err != nil {
			return pluginsdk.GroupStatus{}, err
		}
		return one(all, group)
	}
}

// one is the answer about one group.
func one(all []pluginsdk.GroupStatus, group string) (pluginsdk.GroupStatus, error) {
	for i := range all {
		if all[i].Group == group {
			return all[i], all[i].Err
		}
	}
	return pluginsdk.GroupStatus{}, fmt.Errorf("the provider has not answered for group %s", group)
}

func (p *plugin) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	return p.status(ctx, p.group)
}

func (p *plugin) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	return p.provider.ListInstances(ctx, p.group)
}

func (p *plugin) SetDesired(ctx context.Context, target, expected int) (int, error) {
	return p.provider.SetDesired(ctx, pluginsdk.SetDesired{
		Group: p.group, Target: target, Expected: expected, Token: p.tokens.next(),
	})
}

func (p *plugin) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	return p.provider.Remove(ctx, p.group, ids, p.tokens.next())
}

func (p *plugin) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return p.provider.Withdraw(ctx, p.group, expected, p.tokens.next())
}

func (p *plugin) CompleteHook(ctx context.Context, ids []string) error {
	return p.provider.CompleteHook(ctx, p.group, ids)
}

func (p *plugin) ReportUnhealthy(ctx context.Context, ids []string) error {
	return p.provider.ReportUnhealthy(ctx, p.group, ids)
}
