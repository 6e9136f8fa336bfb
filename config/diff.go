package config

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Change is one setting that differs between two configurations. Pools go by
// name, so that moving one in the file changes nothing.
type Change struct {
	Path          string // "pools.linux.policy.max"
	Before, After string // as YAML; empty = not there
}

func (c Change) String() string {
	switch {
	case c.Before == "":
		return fmt.Sprintf("%s: added %s", c.Path, c.After)
	case c.After == "":
		return fmt.Sprintf("%s: removed %s", c.Path, c.Before)
	default:
		return fmt.Sprintf("%s: %s → %s", c.Path, c.Before, c.After)
	}
}

// Diff lists what differs between two configurations, defaults included, in the
// order of the paths.
func Diff(before, after *Config) ([]Change, error) {
	old, err := settingsOf(before)
	if err != nil {
		return nil, err
	}
	now, err := settingsOf(after)
	if err != nil {
		return nil, err
	}
	paths := maps.Clone(old)
	maps.Copy(paths, now)
	var changes []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if old[path] != now[path] {
			changes = append(changes, Change{Path: path, Before: old[path], After: now[path]})
		}
	}
	return changes, nil
}

// settingsOf is a configuration as one value for each path.
func settingsOf(c *Config) (map[string]string, error) {
	var doc yaml.Node
	if err := doc.Encode(c); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	all := map[string]string{}
	flatten(&doc, "", all)
	return all, nil
}

func flatten(n *yaml.Node, path string, into map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for key, value := range pairs(n) {
			flatten(value, join(path, key.Value), into)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			if path == "pools" {
				at = join(path, poolName(item))
			}
			flatten(item, at, into)
		}
	default:
		into[path] = fmt.Sprintf("%.200s", n.Value)
		if n.Value == "" {
			into[path] = `""`
		}
	}
}
