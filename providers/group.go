package providers

import (
	"context"
	"crypto/rand"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Calls is what a pool's loop asks of its provider group, and what each
// decorator wraps. Errors are those of pluginsdk.
type Calls interface {
	Status(ctx context.Context) (pluginsdk.GroupStatus, error)
	ListInstances(ctx context.Context) ([]pluginsdk.Instance, error)
	SetDesired(ctx context.Context, target, expected int) (int, error)
	Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error)
	Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error)
	CompleteHook(ctx context.Context, ids []string) error
	ReportUnhealthy(ctx context.Context, ids []string) error
}

// Group is one pool's view of one provider group: [Calls], decorated.
type Group struct {
	Calls
	plugin *Plugin
}

// Group returns the view of pool on the provider group called name.
func (p *Plugin) Group(pool, name string) *Group {
	p.batch.expect(name)
	who := CallInfo{Provider: p.spec.Name, Pool: pool, Group: name}
	return &Group{Calls: Decorate(&wire{plugin: p, group: name}, who, p.timing, p.observer), plugin: p}
}

// Plugin is the plugin behind the group.
func (g *Group) Plugin() *Plugin { return g.plugin }

// wire is the innermost [Calls]: it finds the session of the moment and asks.
type wire struct {
	plugin *Plugin
	group  string
}

func (w *wire) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	return w.plugin.batch.status(ctx, w.group)
}

func (w *wire) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	return w.plugin.reads.ListInstances(ctx, w.group)
}

func (w *wire) SetDesired(ctx context.Context, target, expected int) (int, error) {
	return call(ctx, w.plugin, func(ctx context.Context, p pluginsdk.Provider) (int, error) {
		return p.SetDesired(ctx, pluginsdk.SetDesired{
			Group: w.group, Target: target, Expected: expected, Token: rand.Text(),
		})
	})
}

func (w *wire) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	return call(ctx, w.plugin, func(ctx context.Context, p pluginsdk.Provider) ([]pluginsdk.RemoveResult, error) {
		return p.Remove(ctx, w.group, ids, rand.Text())
	})
}

func (w *wire) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return call(ctx, w.plugin, func(ctx context.Context, p pluginsdk.Provider) (pluginsdk.WithdrawResult, error) {
		return p.Withdraw(ctx, w.group, expected, rand.Text())
	})
}

func (w *wire) CompleteHook(ctx context.Context, ids []string) error {
	_, err := call(ctx, w.plugin, func(ctx context.Context, p pluginsdk.Provider) (struct{}, error) {
		return struct{}{}, p.CompleteHook(ctx, w.group, ids)
	})
	return err
}

func (w *wire) ReportUnhealthy(ctx context.Context, ids []string) error {
	_, err := call(ctx, w.plugin, func(ctx context.Context, p pluginsdk.Provider) (struct{}, error) {
		return struct{}{}, p.ReportUnhealthy(ctx, w.group, ids)
	})
	return err
}
