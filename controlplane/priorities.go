package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/server"
)

const (
	// prioritySetting is the kind of setting that a pool's priority is.
	prioritySetting = "priority"
	// prioritiesEvery is how often they are read when nobody tells of a change, and
	// prioritiesRetry after a read that failed.
	prioritiesEvery = 30 * time.Second
	prioritiesRetry = time.Second
)

// storedPriority is a priority that somebody has set.
type storedPriority struct {
	Fingerprint string    `json:"fingerprint"` // of the pool, then
	Priority    int       `json:"priority"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
}

// readPriorities reads what has been set. What can't be understood is of a newer
// version, and counts for nothing here.
func (c *ControlPlane) readPriorities(ctx context.Context) (map[string]storedPriority, error) {
	raw, err := c.store.Settings(ctx, prioritySetting)
	if err != nil {
		return nil, err
	}
	set := make(map[string]storedPriority, len(raw))
	for pool, data := range raw {
		var p storedPriority
		if json.Unmarshal(data, &p) == nil && p.Priority >= 0 && p.Priority <= spillway.MaxPoolPriority {
			set[pool] = p
		}
	}
	return set, nil
}

// pinPriorities brings what has been set into force at this replica.
func (c *ControlPlane) pinPriorities(ctx context.Context) error {
	set, err := c.readPriorities(ctx)
	if err != nil {
		return err
	}
	pins := make(map[string]pinned, len(set))
	for pool, p := range set {
		if fp, err := spillway.ParseFingerprint(p.Fingerprint); err == nil {
			pins[pool] = pinned{fp, p.Priority}
		}
	}
	c.poolSet.pin(pins)
	c.rebind()
	return nil
}

// followPriorities keeps them up until ctx ends.
func (c *ControlPlane) followPriorities(ctx context.Context) {
	var pokes <-chan struct{}
	for ctx.Err() == nil {
		wait := prioritiesEvery
		if pokes == nil {
			var err error
			if pokes, err = c.store.SettingPokes(ctx, prioritySetting); err != nil && ctx.Err() == nil {
				c.log.Warn("not listening for changed priorities for now: they are read now and then", "error", err)
				wait = prioritiesRetry
			}
		}
		if err := c.pinPriorities(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("the priorities that were set can't be read: they stay as they were", "error", err)
			wait = prioritiesRetry
		}
		select {
		case <-ctx.Done():
		case _, open := <-pokes:
			if !open {
				pokes = nil
			}
		case <-time.After(wait):
		}
	}
}

// Priorities implements server.Priorities.
func (a answers) Priorities(ctx context.Context) ([]server.PoolPriority, error) {
	set, err := a.c.readPriorities(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]server.PoolPriority, 0, len(set))
	for _, p := range a.c.poolSet.given() {
		is := server.PoolPriority{Pool: p, Configured: p.Priority}
		if s, ok := set[p.Name]; ok && s.Fingerprint == p.Capability.Fingerprint().String() {
			is.Pool.Priority, is.SetBy, is.SetAt = s.Priority, s.By, s.At
		}
		all = append(all, is)
	}
	return all, nil
}

// SetPriority implements server.Priorities.
func (a answers) SetPriority(ctx context.Context, pool string, priority int, by string) error {
	for _, p := range a.c.poolSet.given() {
		if p.Name != pool {
			continue
		}
		data, err := json.Marshal(storedPriority{
			Fingerprint: p.Capability.Fingerprint().String(), Priority: priority, By: by, At: time.Now().UTC(),
		})
		if err != nil {
			return err
		}
		if err := a.c.store.PutSetting(ctx, prioritySetting, pool, data); err != nil {
			return err
		}
		a.c.log.Info("priority set", "pool", pool, "from", a.c.poolSet.inForce(p).Priority, "to", priority, "by", by)
		return a.c.pinPriorities(ctx)
	}
	return fmt.Errorf("%w: no pool %s", spillway.ErrInvalid, pool)
}

// ClearPriority implements server.Priorities.
func (a answers) ClearPriority(ctx context.Context, pool string) error {
	if _, err := a.c.store.DropSetting(ctx, prioritySetting, pool); err != nil {
		return err
	}
	a.c.log.Info("priority as configured again", "pool", pool)
	return a.c.pinPriorities(ctx)
}
