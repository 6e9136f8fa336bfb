package controlplane

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/plugin-sdk"
)

// hookCheckEvery is how often the plugins are asked whether the terminating hooks are
// still there. Nothing of ours removes one; a removal by somebody else is rare, and the
// question costs calls.
const hookCheckEvery = 10 * time.Minute

// hookRetry is when one that failed is repeated.
const hookRetry = 30 * time.Second

// terminatingHook is the finding of a group that has one. That nothing is found proves
// nothing: a plugin may not have looked.
const terminatingHook = "terminating_hook"

// hookChecks knows which groups have a terminating hook that the plugin can complete.
type hookChecks struct {
	c *ControlPlane

	mu struct {
		sync.Mutex
		found map[string]bool // by pool
	}
}

func newHookChecks(c *ControlPlane) *hookChecks {
	h := &hookChecks{c: c}
	h.mu.found = map[string]bool{}
	return h
}

func (h *hookChecks) verified(pool string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.found[pool]
}

func (h *hookChecks) run(ctx context.Context) {
	for {
		next := hookCheckEvery
		for i := range h.c.cfg.Pools {
			p := &h.c.cfg.Pools[i]
			if p.Mode == config.ModeOrchestrate || p.Observe.Drain != "hook" {
				continue
			}
			found, err := h.check(ctx, p)
			if err != nil && ctx.Err() == nil {
				h.c.log.Warn("whether the group has a terminating hook is not known", "pool", p.Name, "error", err)
				next = hookRetry
			}
			h.note(p.Name, found)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

func (h *hookChecks) note(pool string, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.found[pool] != found {
		h.c.log.Info("terminating hook", "pool", pool, "found", found)
	}
	h.mu.found[pool] = found
}

// check asks the plugin. A plugin that can't find out, or can't complete a hook, is one
// without.
func (h *hookChecks) check(ctx context.Context, p *config.Pool) (bool, error) {
	plugin := h.c.plugins[p.Provider]
	can := false
	for _, c := range plugin.State().Capabilities {
		can = can || c == pluginsdk.CanCompleteHook
	}
	if !can {
		return false, nil
	}
	findings, err := plugin.Findings(ctx, []string{p.Group})
	switch {
	case errors.Is(err, pluginsdk.ErrUnsupported):
		return false, nil
	case err != nil:
		return false, err
	}
	for _, f := range findings {
		if f.Group == p.Group && f.Code == terminatingHook {
			return true, nil
		}
	}
	return false, nil
}
