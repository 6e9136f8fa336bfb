package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/roster"
	"github.com/spillway-ci/spillway/store"
)

// openPlugins starts every provider's plugin, side by side. One that doesn't come
// up at the start is an error: nothing runs yet, and somebody is looking. Later a
// crash is survived.
func (c *ControlPlane) openPlugins(ctx context.Context) (err error) {
	c.host, err = providers.NewHost(providers.Options{Logger: c.log, Redact: config.Redact, Observer: c.hostObserver()})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for name, p := range c.cfg.Providers {
		g.Go(func() error {
			spec, err := c.spec(name, p)
			if err != nil {
				return err
			}
			plugin, err := c.host.Open(ctx, spec)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			c.plugins[name] = plugin
			return nil
		})
	}
	return g.Wait()
}

func (c *ControlPlane) spec(name string, p config.Provider) (providers.Spec, error) {
	spec, err := specOf(c.cfg, name, p)
	if err == nil && c.opt.ProviderConfig != nil {
		if spec.Config, err = c.opt.ProviderConfig(name, spec.Config, c.Addr(Runners)); err != nil {
			err = fmt.Errorf("providers.%s.config: %w", name, err)
		}
	}
	return spec, err
}

// specOf says how to run a provider of a configuration.
func specOf(cfg *config.Config, name string, p config.Provider) (providers.Spec, error) {
	path := p.Plugin
	if !strings.ContainsRune(path, filepath.Separator) {
		path = filepath.Join(cfg.PluginDir, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return providers.Spec{}, fmt.Errorf("providers.%s.plugin: %w", name, err)
	}
	return providers.Spec{Name: name, Path: path, SHA256: p.SHA256, Config: []byte(p.Config), Env: p.Env}, nil
}

// closePlugins leaves no plugin process behind.
func (c *ControlPlane) closePlugins() error {
	if c.host == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return c.host.Close(ctx)
}

// makeScaler makes one loop for each pool.
func (c *ControlPlane) makeScaler(context.Context) error {
	names := make([]string, len(c.pools))
	for i := range c.pools {
		names[i] = c.pools[i].Name
	}
	c.leases = scaler.NewLeases(c.store, c.cfg.ReplicaName(), names, &c.events)
	if c.gitlab != nil {
		if err := c.gitlab.watchGitLab(); err != nil {
			return err
		}
	}
	loops := make([]*scaler.Pool, 0, len(c.pools))
	c.scaled = make(map[string]*scaler.Pool, len(c.pools))
	for i := range c.pools {
		p := c.pools[i]
		plugin, ok := c.plugins[p.Provider]
		if !ok {
			return fmt.Errorf("pool %s: no provider %q", p.Name, p.Provider)
		}
		loops = append(loops, scaler.NewPool(c.poolConfig(p), c.group(p.Name, plugin.Group(p.Name, p.Group)), c.allMachines(), c.store, c.leases, &c.events))
		c.scaled[p.Name] = loops[i]
	}
	fleet := scaler.NewFleet(c.demand(), c.allMachines(), c.cfg.Tick, c.cfg.Timeouts.Silent, &c.events)
	counts, err := c.counts()
	if err != nil {
		return err
	}
	if len(counts) > 0 {
		c.polls = scaler.NewPolls(counts, &c.events)
		fleet.SetCounts(c.polls)
	}
	c.loop = scaler.NewLoop(fleet, loops, c.cfg.Tick, c.cfg.Debounce)
	c.notices = c.newNotices()
	return nil
}

// machines are the store's. Those that are forgotten with their instances are given
// up by every router at once.
type machines struct {
	*store.Store
	c *ControlPlane
}

// RemoveMachines implements scaler.Machines.
func (m machines) RemoveMachines(ctx context.Context, pool string, ids []spillway.MachineID) error {
	defer m.c.notices.ended(pool, ids)
	return m.Store.RemoveMachines(ctx, pool, ids)
}

// counts are the numbers of jobs that pools have.
func (c *ControlPlane) counts() (map[string]scaler.CountSource, error) {
	sources := map[string]scaler.CountSource{}
	for i := range c.cfg.Pools {
		p := &c.cfg.Pools[i]
		if p.Count == nil {
			continue
		}
		read, err := c.reader(p.Count)
		if err != nil {
			return nil, fmt.Errorf("pools[%d].count: %w", i, err)
		}
		s := scaler.CountSource{Every: p.Count.Every, Read: read}
		// GitLab serves it without us, and is not asked which jobs wait.
		s.Drives = p.Mode == config.ModeObserve && c.cfg.GitLab.Jobs.Scope == "none"
		if p.Count.Means == "instances" {
			s.Each = c.pools[i].CapacityPerInstance
		}
		sources[p.Name] = s
	}
	return sources, nil
}

// reader reads a count where it is: in a cloud or a Prometheus server.
func (c *ControlPlane) reader(from *config.Count) (func(context.Context) (pluginsdk.Count, error), error) {
	if from.Prometheus == nil {
		plugin, metric := c.plugins[from.Provider], from.Metric
		return func(ctx context.Context) (pluginsdk.Count, error) { return plugin.Count(ctx, metric) }, nil
	}
	query, err := newPrometheus(from.Prometheus)
	if err != nil {
		return nil, err
	}
	return query.Count, nil
}

// rulesOf turns a pool's times into those of its roster. An acknowledgement or a
// removal that takes longer than a machine may be silent is not coming.
func rulesOf(l config.Lifecycle, max, capacity int, t config.Timeouts) roster.Rules {
	return roster.Rules{
		Capacity: capacity, Max: max, MaxUses: l.MaxUses, IdleTime: l.IdleTime, RegisterTimeout: l.RegisterTimeout,
		SilentAfter: l.SilentAfter, SilentTimeout: l.SilentTimeout, MaxAge: l.MaxAge, DrainTimeout: l.DrainTimeout, SecondLook: l.SecondLook,
		AckTimeout: 2 * t.HeartbeatEvery, RemoveRetry: roster.DefaultRemoveRetry,
	}
}

// watchInterruptions hands the providers' notices to the pools they concern, here
// and on every other replica.
func (c *ControlPlane) watchInterruptions(ctx context.Context, wg *sync.WaitGroup) {
	c.notices.run(ctx, wg)
	for name, plugin := range c.plugins {
		pools := map[string]string{}
		var groups []string
		for i := range c.pools {
			if c.pools[i].Provider == name {
				pools[c.pools[i].Group] = c.pools[i].Name
				groups = append(groups, c.pools[i].Group)
			}
		}
		wg.Go(func() {
			err := plugin.Watch(ctx, groups, func(n pluginsdk.Interruption) {
				if pool, ok := pools[n.Group]; ok {
					c.notices.told(pool, n)
				}
			})
			if err != nil && !errors.Is(err, pluginsdk.ErrUnsupported) && ctx.Err() == nil {
				c.log.Warn("not told of interruptions any more", "provider", name, "error", err)
			}
		})
	}
}
