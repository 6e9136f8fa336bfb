package controlplane

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
)

// fixedPoolFields are what a pool is connected to: it is set up once, when the control
// plane starts.
var fixedPoolFields = []string{"Mode", "GitLab", "Observe", "Provider", "Group", "RunnerToken", "Count"}

// Reloaded says what a new configuration has changed.
type Reloaded struct {
	Pools   []string // that go by other rules from now on
	Restart []string // settings that differ, and that only a restart brings into force
}

// Reload takes over what another configuration says of the pools that there are: their
// policies, priorities, costs and capabilities. What can't be changed while the control
// plane runs stays as it is and is named in the answer.
func (c *ControlPlane) Reload(cfg *config.Config) (Reloaded, error) {
	old := c.rules.Load()
	next := *old
	next.Pools = slices.Clone(old.Pools)
	r := Reloaded{Restart: otherSections(c.cfg, cfg)}
	for i := range next.Pools {
		name := next.Pools[i].Name
		wanted, ok := cfg.Pool(name)
		if !ok {
			r.Restart = append(r.Restart, "pools."+name+" (removed)")
			continue
		}
		merged, fixed := mergePool(next.Pools[i], wanted)
		r.Restart = append(r.Restart, fixed...)
		if !reflect.DeepEqual(merged, next.Pools[i]) {
			r.Pools = append(r.Pools, name)
		}
		next.Pools[i] = merged
	}
	for i := range cfg.Pools {
		if _, ok := old.Pool(cfg.Pools[i].Name); !ok {
			r.Restart = append(r.Restart, "pools."+cfg.Pools[i].Name+" (added)")
		}
	}
	if len(r.Pools) > 0 {
		if err := c.takeOver(&next, r.Pools); err != nil {
			return Reloaded{}, err
		}
	}
	r.Restart = c.reloadAdmission(cfg, r.Restart) // once nothing can be refused any more
	return r, nil
}

// takeOver brings the rules of some pools into force.
func (c *ControlPlane) takeOver(next *config.Config, changed []string) error {
	pools := next.SpillwayPools()
	var errs []error
	for i := range pools {
		if err := pools[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", pools[i].Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.rules.Store(next)
	err := c.poolSet.update(configPart, func(learned []spillway.Pool) []spillway.Pool {
		for i := range pools {
			if next.Pools[i].CapabilityFromGitLab() {
				pools[i].Capability = learned[i].Capability
			}
		}
		return pools
	})
	if err != nil {
		return err
	}
	for _, name := range changed { // also where only the policy differs
		c.loop.Reconfigure(c.poolConfig(c.definition(name)))
	}
	c.rebind()
	c.poke()
	return nil
}

// mergePool is what can be taken over of a pool, and what can't.
func mergePool(old, wanted config.Pool) (merged config.Pool, restart []string) {
	merged = wanted
	from, to := reflect.ValueOf(old), reflect.ValueOf(&merged).Elem()
	for _, field := range fixedPoolFields {
		if !reflect.DeepEqual(from.FieldByName(field).Interface(), to.FieldByName(field).Interface()) {
			restart = append(restart, "pools."+old.Name+"."+settingOf(to.Type(), field))
			to.FieldByName(field).Set(from.FieldByName(field))
		}
	}
	return merged, restart
}

// otherSections names the sections beside the pools that differ.
func otherSections(old, wanted *config.Config) (names []string) {
	from, to := reflect.ValueOf(old).Elem(), reflect.ValueOf(wanted).Elem()
	for i := range from.NumField() {
		field := from.Type().Field(i)
		if !field.IsExported() || field.Name == "Pools" {
			continue
		}
		if !reflect.DeepEqual(from.Field(i).Interface(), to.Field(i).Interface()) {
			names = append(names, settingOf(from.Type(), field.Name))
		}
	}
	return names
}

// settingOf is a field as the file has it.
func settingOf(t reflect.Type, field string) string {
	f, _ := t.FieldByName(field)
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}
