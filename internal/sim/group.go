package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

// readDeadline is the longest that a read of a provider may take.
const readDeadline = 30 * time.Second

// group is a pool's cloud as one replica reaches it, through a plugin that can
// crash and hang.
type group struct {
	replica *replica
	site    *site
	plugin  scaler.Group // nil: the process is not there, and is started with the next call
}

var _ scaler.Group = (*group)(nil)

// reach is the way through the plugin. A call that hangs comes back with its
// deadline: until then the pool has no turn.
func (g *group) reach(ctx context.Context, deadline time.Duration) (scaler.Group, error) {
	w := g.replica.world
	switch w.faults.plugin(g.site.pool, w.now) {
	case scenario.PluginCrash:
		g.plugin = nil
		return nil, pluginsdk.Errorf(pluginsdk.KindTransient, "the plugin has crashed")
	case scenario.PluginHang:
		g.replica.hung[g.site.pool] = w.now.Add(deadline)
		return nil, pluginsdk.Errorf(pluginsdk.KindTransient, "no answer within %s", deadline)
	}
	if g.plugin == nil {
		plugin, err := g.site.cloud.Connect(ctx)
		if err != nil {
			return nil, fmt.Errorf("starting the plugin: %w", err)
		}
		g.plugin = plugin
	}
	return g.plugin, nil
}

// reachToWrite is reach for a call that changes something.
func (g *group) reachToWrite(ctx context.Context) (scaler.Group, error) {
	plugin, err := g.reach(ctx, scaler.WriteDeadline)
	if err == nil {
		g.replica.world.rules.write(g)
	}
	return plugin, err
}

func (g *group) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	plugin, err := g.reach(ctx, readDeadline)
	if err != nil {
		return pluginsdk.GroupStatus{}, err
	}
	return plugin.Status(ctx)
}

func (g *group) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	plugin, err := g.reach(ctx, readDeadline)
	if err != nil {
		return nil, err
	}
	return plugin.ListInstances(ctx)
}

func (g *group) SetDesired(ctx context.Context, target, expected int) (int, error) {
	plugin, err := g.reachToWrite(ctx)
	if err != nil {
		return 0, err
	}
	done := g.replica.world.rules.beforeSetDesired(g, target)
	n, err := plugin.SetDesired(ctx, target, expected)
	done(err)
	return n, err
}

func (g *group) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	plugin, err := g.reachToWrite(ctx)
	if err != nil {
		return nil, err
	}
	g.replica.world.rules.beforeRemove(g, ids)
	return plugin.Remove(ctx, ids)
}

func (g *group) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	plugin, err := g.reachToWrite(ctx)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	return plugin.Withdraw(ctx, expected)
}

func (g *group) CompleteHook(ctx context.Context, ids []string) error {
	plugin, err := g.reachToWrite(ctx)
	if err != nil {
		return err
	}
	g.replica.world.rules.beforeCompleteHook(g, ids)
	return plugin.CompleteHook(ctx, ids)
}

func (g *group) ReportUnhealthy(ctx context.Context, ids []string) error {
	plugin, err := g.reachToWrite(ctx)
	if err != nil {
		return err
	}
	g.replica.world.rules.beforeReportUnhealthy(g, ids)
	return plugin.ReportUnhealthy(ctx, ids)
}
