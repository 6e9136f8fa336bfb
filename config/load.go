package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Options say what a file is for.
type Options struct {
	// ProviderOptional is for scenarios: the cloud is simulated and nothing
	// listens, so pools need no provider and no runner token.
	ProviderOptional bool
}

// Load reads and validates the file at path. Its error names every mistake and
// matches ErrInvalid, unless the file could not be read at all.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse validates data; name stands in for the file in problems.
func Parse(name string, data []byte) (*Config, error) {
	return ParseWith(name, data, Options{})
}

// ParseWith is Parse for other uses than serving.
func ParseWith(name string, data []byte, opts Options) (*Config, error) {
	t, err := readTree(name, data)
	if err != nil {
		return nil, err
	}
	return build(t, opts)
}

// ParseNode validates a configuration that is a part of another YAML file, such
// as a scenario's `config:`. Lines are those of that file.
func ParseNode(name string, node *yaml.Node, opts Options) (*Config, error) {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node == nil:
		return nil, asError([]Problem{{File: name, Text: "there is no configuration; name at least one pool"}})
	case node.Kind == yaml.DocumentNode && len(node.Content) == 1:
		return ParseNode(name, node.Content[0], opts)
	case node.Kind != yaml.MappingNode:
		return nil, asError([]Problem{{File: name, Line: node.Line, Text: "must be settings (key: value), not " + kindName(node)}})
	}
	return build(tree{name: name, root: node}, opts)
}

// build is the only way to a Config.
func build(t tree, opts Options) (*Config, error) {
	c := defaultConfig()
	d := &decoder{tree: t, at: map[string]*yaml.Node{}, unread: map[string]bool{}}
	d.decode(t.root, reflect.ValueOf(&c).Elem(), "", 0)
	c.opts, c.tree = opts, t
	v := &validator{decoder: d, config: &c}
	if !d.exhausted() { // the rules would speak of a part of the file
		v.run()
	}
	if err := asError(append(d.problems, v.rules...)); err != nil {
		return nil, err
	}
	c.warnings = inOrder(v.warnings)
	return &c, nil
}

// YAML is the whole configuration with every default spelled out. Parsing it
// gives an equal Config.
func (c *Config) YAML() ([]byte, error) {
	b, err := yaml.Marshal(c)
	if err != nil {
		return nil, errors.Join(ErrInvalid, err)
	}
	return b, nil
}

func (p *Pool) setDefaults() { *p = defaultPool() }
