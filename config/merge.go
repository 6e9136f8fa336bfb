package config

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Merge returns c with a patch applied, validated as a whole; c stays as it is.
// A patch has the settings to change and nothing else: what is null in it is
// removed, lists are replaced, and `pools` is keyed by name: {pools: {linux: {policy: {max: 5}}, old: null}}. A name that is not there
// adds a pool. Problems in what the patch brought name the file name.
func (c *Config) Merge(name string, patch *yaml.Node) (*Config, error) {
	if patch != nil && patch.Kind == yaml.DocumentNode && len(patch.Content) == 1 {
		patch = patch.Content[0]
	}
	if patch == nil || patch.Kind != yaml.MappingNode {
		return nil, asError([]Problem{{File: name, Text: "a change must be settings (key: value)"}})
	}
	m := merger{name: name, tree: tree{name: c.tree.name, from: maps.Clone(c.tree.from)}}
	if m.tree.from == nil {
		m.tree.from = map[*yaml.Node]string{}
	}
	root := m.copy(c.tree.root, 0)
	m.mapping(root, patch, "", 0)
	if err := asError(m.problems); err != nil {
		return nil, err
	}
	m.tree.root = root
	return build(m.tree, c.opts)
}

// merger builds a new tree; it changes neither of the two that it reads.
type merger struct {
	name     string
	tree     tree
	problems []Problem
	nodes    int
}

func (m *merger) failf(n *yaml.Node, path, format string, args ...any) {
	m.problems = append(m.problems, Problem{File: m.name, Line: n.Line, Path: path, Text: fmt.Sprintf(format, args...)})
}

// copy returns a deep copy without aliases, which keeps its files.
func (m *merger) copy(n *yaml.Node, depth int) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d := *n
	d.Anchor, d.Content = "", nil
	if file, ok := m.tree.from[n]; ok {
		m.tree.from[&d] = file
	}
	if m.nodes++; m.nodes > maxNodes || depth > maxDepth {
		m.failf(n, "", "too large or too deep")
		return &d
	}
	for _, child := range n.Content {
		if m.nodes > maxNodes {
			break
		}
		d.Content = append(d.Content, m.copy(child, depth+1))
	}
	return &d
}

// take returns a copy of a patch's node that is known to be from the patch.
func (m *merger) take(n *yaml.Node, depth int) *yaml.Node {
	d := m.copy(n, depth)
	m.mark(d)
	return d
}

func (m *merger) mark(n *yaml.Node) {
	m.tree.from[n] = m.name
	for _, child := range n.Content {
		m.mark(child)
	}
}

// mapping applies patch to base, which is changed.
func (m *merger) mapping(base, patch *yaml.Node, path string, depth int) {
	for key, value := range pairs(patch) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		at := join(path, key.Value)
		switch i := indexOf(base, key.Value); {
		case at == "pools":
			m.pools(base, value)
		case value.ShortTag() == "!!null":
			if i >= 0 {
				base.Content = slices.Delete(base.Content, i, i+2)
			}
		case i >= 0 && value.Kind == yaml.MappingNode && base.Content[i+1].Kind == yaml.MappingNode && depth < maxDepth:
			m.mapping(base.Content[i+1], value, at, depth+1)
		case i >= 0:
			base.Content[i] = m.take(key, depth)
			base.Content[i+1] = m.take(value, depth)
		default:
			base.Content = append(base.Content, m.take(key, depth), m.take(value, depth))
		}
	}
}

func indexOf(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// pools applies a patch that is keyed by the pools' names to their list.
func (m *merger) pools(base, patch *yaml.Node) {
	if patch.Kind != yaml.MappingNode {
		m.failf(patch, "pools", "a change names the pools that it is about: {pools: {NAME: {policy: {max: 5}}}}")
		return
	}
	list := child(base, "pools")
	if list == nil || list.Kind != yaml.SequenceNode {
		m.failf(patch, "pools", "there is no list of pools to change")
		return
	}
	for key, value := range pairs(patch) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		path := "pools." + key.Value
		i := slices.IndexFunc(list.Content, func(p *yaml.Node) bool { return poolName(p) == key.Value })
		switch null := value.ShortTag() == "!!null"; {
		case i >= 0 && null:
			list.Content = slices.Delete(list.Content, i, i+1)
		case i >= 0 && value.Kind == yaml.MappingNode:
			m.mapping(list.Content[i], value, fmt.Sprintf("pools[%d]", i), 1)
		case i < 0 && value.Kind == yaml.MappingNode && child(value, "capability") != nil:
			list.Content = append(list.Content, m.named(key, value))
		case i < 0:
			m.failf(key, path, "there is no such pool (to add one, give its capability); %s", suggest(key.Value, poolNames(list)))
		default:
			m.failf(value, path, "must be settings (key: value) or null, not %s", kindName(value))
		}
	}
}

// named is a new pool whose name is its key in the patch.
func (m *merger) named(key, value *yaml.Node) *yaml.Node {
	p := m.take(value, 1)
	if child(p, "name") == nil {
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "name", Line: key.Line}
		m.tree.from[name] = m.name
		p.Content = append([]*yaml.Node{name, m.take(key, 1)}, p.Content...)
	}
	return p
}

func poolName(p *yaml.Node) string {
	if name := child(p, "name"); p.Kind == yaml.MappingNode && name != nil {
		return name.Value
	}
	return ""
}

func poolNames(list *yaml.Node) []string {
	var names []string
	for _, p := range list.Content {
		names = append(names, poolName(p))
	}
	return names
}
