package sim

import (
	"context"
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
}

var _ scaler.Group = (*group)(nil)

// reach is the way through the plugin. A call that hangs comes back with its
// deadline: until then the pool has no turn.
func (g *group) reach(deadline time.Duration) error {
	w := g.replica.world
	switch w.faults.plugin(g.site.pool, w.now) {
	case scenario.PluginCrash:
		return pluginsdk.Errorf(pluginsdk.KindTransient, "the plugin has crashed")
	case scenario.PluginHang:
		g.replica.hung[g.site.pool] = w.now.Add(deadline)
		return pluginsdk.Errorf(pluginsdk.KindTransient, "no answer within %s", deadline)
	default:
		return nil
	}
}

func (g *group) Status(context.Context) (pluginsdk.GroupStatus, error) {
	if err := g.reach(readDeadline); err != nil {
		return pluginsdk.GroupStatus{}, err
	}
	st := g.site.cloud.Status(g.replica.world.now)
	st.Group = g.site.pool
	return st, nil
}

func (g *group) ListInstances(context.Context) ([]pluginsdk.Instance, error) {
	if err := g.reach(readDeadline); err != nil {
		return nil, err
	}
	return g.site.cloud.List(g.replica.world.now), nil
}

func (g *group) SetDesired(_ context.Context, target, expected int) (int, error) {
	if err := g.reach(scaler.WriteDeadline); err != nil {
		return 0, err
	}
	w := g.replica.world
	done := w.rules.beforeSetDesired(g, target)
	n, err := g.site.cloud.SetDesired(w.now, target, expected)
	done(err)
	return n, err
}

func (g *group) Remove(_ context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	if err := g.reach(scaler.WriteDeadline); err != nil {
		return nil, err
	}
	w := g.replica.world
	w.rules.beforeRemove(g, ids)
	return g.site.cloud.Remove(w.now, ids)
}

func (g *group) Withdraw(_ context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	if err := g.reach(scaler.WriteDeadline); err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	w := g.replica.world
	w.rules.write(g)
	return g.site.cloud.Withdraw(w.now, expected)
}

// CompleteHook and ReportUnhealthy are not what this cloud has.
func (g *group) CompleteHook(context.Context, []string) error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "no hooks")
}

func (g *group) ReportUnhealthy(context.Context, []string) error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "no health checks")
}
