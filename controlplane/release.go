package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
)

// Released is what a release did, or would do, to one pool's group.
type Released struct {
	Pool      string   `json:"pool"`
	Group     string   `json:"group"`
	Protected []string `json:"protected"` // instances whose protection was (or would be) taken off
	Note      string   `json:"note,omitempty"`
}

// Release gives pools back to whoever scales their groups after Spillway: it takes
// the protection from scale-in off their instances, which nothing but Spillway would
// otherwise remove. With dry nothing is written. It refuses pools that a replica
// still scales; report is told of each pool as it is done.
func Release(ctx context.Context, cfg *config.Config, pools []string, dry bool, report func(Released)) error {
	chosen, err := poolsNamed(cfg, pools)
	if err != nil {
		return err
	}
	c := &ControlPlane{cfg: cfg, log: slog.New(slog.DiscardHandler), metrics: server.NewMetrics(""), plugins: map[string]*providers.Plugin{}}
	defer func() { _ = c.close() }()
	if err := c.openStore(ctx); err != nil {
		return err
	}
	if err := c.claimPools(ctx, chosen); err != nil {
		return err
	}
	if err := c.openPlugins(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range chosen {
		done, err := c.releaseGroup(ctx, p, dry)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s, group %s: %w", p.Name, p.Group, err))
			continue
		}
		report(done)
	}
	return errors.Join(errs...)
}

func poolsNamed(cfg *config.Config, names []string) ([]*config.Pool, error) {
	var chosen []*config.Pool
	for i := range cfg.Pools {
		if p := &cfg.Pools[i]; p.Provider != "" && (len(names) == 0 || slices.Contains(names, p.Name)) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(chosen, func(p *config.Pool) bool { return p.Name == name }) {
			return nil, fmt.Errorf("there is no pool %q with a provider", name)
		}
	}
	return chosen, nil
}

// claimPools takes the pools' leases, so that no replica scales them meanwhile. An
// embedded store is a process of its own: it knows of no other replica.
func (c *ControlPlane) claimPools(ctx context.Context, pools []*config.Pool) error {
	if c.cfg.Store.Redis == nil {
		return nil
	}
	names := make([]string, len(pools))
	for i, p := range pools {
		names[i] = p.Name
	}
	leases := scaler.NewLeases(c.store, c.cfg.ReplicaName()+" (release)", names, &scaler.Events{})
	leases.Renew(ctx, time.Now())
	for _, name := range names {
		if _, _, ok := leases.Hold(name, time.Now()); !ok {
			return fmt.Errorf("a replica still scales pool %s: stop every replica, wait %s and try again", name, scaler.LeaseTTL)
		}
	}
	return nil
}

func (c *ControlPlane) releaseGroup(ctx context.Context, p *config.Pool, dry bool) (Released, error) {
	done := Released{Pool: p.Name, Group: p.Group, Protected: []string{}}
	plugin := c.plugins[p.Provider]
	list, err := plugin.Group(p.Name, p.Group).ListInstances(ctx)
	if err != nil {
		return done, err
	}
	for _, in := range list {
		if in.Protected && in.State != pluginsdk.StateDeleting {
			done.Protected = append(done.Protected, in.ID)
		}
	}
	if dry || len(done.Protected) == 0 {
		return done, nil
	}
	err = plugin.Protect(ctx, p.Group, done.Protected, false)
	if errors.Is(err, pluginsdk.ErrUnsupported) {
		done.Protected, done.Note = []string{}, "this provider has no protection to take off"
		return done, nil
	}
	return done, err
}
