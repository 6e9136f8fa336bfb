package config

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxProviderConfigBytes bounds one plugin's configuration [bytes of JSON]; a
// plugin refuses messages over 4 MiB.
const MaxProviderConfigBytes = 1 << 20

// JSON is a plugin's own configuration: an object that only the plugin
// understands. It is canonical (keys sorted, no blanks), so equal configurations
// are equal bytes.
type JSON json.RawMessage

// MarshalYAML writes the object as YAML.
func (j JSON) MarshalYAML() (any, error) {
	var v any
	if err := yaml.Unmarshal(j, &v); err != nil { // JSON is YAML, and keeps integers whole
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	return v, nil
}

// MarshalJSON returns the object as it is.
func (j JSON) MarshalJSON() ([]byte, error) { return json.RawMessage(j).MarshalJSON() }

// IsZero reports whether there is no configuration.
func (j JSON) IsZero() bool { return len(j) == 0 }

func (j *JSON) decodeNode(d *decoder, n *yaml.Node, path string) {
	problems := len(d.problems)
	var v any = map[string]any{}
	switch {
	case n.Kind == yaml.MappingNode:
		v = d.plain(n, path, 0)
	case n.ShortTag() != "!!null":
		d.failf(n, path, "must be settings (key: value), not %s", kindName(n))
	}
	if len(d.problems) > problems || d.exhausted() {
		return
	}
	b, err := json.Marshal(v)
	switch {
	case err != nil:
		d.failf(n, path, "cannot be written as JSON: %v", err)
	case len(b) > MaxProviderConfigBytes:
		d.failf(n, path, "%d bytes as JSON, at most %d are allowed", len(b), MaxProviderConfigBytes)
	default:
		*j = b
	}
}

// plain turns a node into what encoding/json writes.
func (d *decoder) plain(n *yaml.Node, path string, depth int) any {
	if !d.visit(n, path, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return d.plain(n.Alias, path, depth+1)
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		d.settings(n, path, func(key, value *yaml.Node) {
			at := join(path, key.Value)
			if !d.literalSecret(key.Value, value, at) {
				m[key.Value] = d.plain(value, at, depth+1)
			}
		})
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			if d.exhausted() {
				break
			}
			list = append(list, d.plain(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
		return list
	default:
		return d.plainScalar(n, path)
	}
}

func (d *decoder) plainScalar(n *yaml.Node, path string) any {
	var v any
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!int", "!!float", "!!bool":
		if err := n.Decode(&v); err != nil {
			d.failf(n, path, "%s is not a value that JSON has; put it in quotes", quote(n.Value))
			return nil
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			d.failf(n, path, "%s is not a number that JSON has", quote(n.Value))
			return nil
		}
		return v
	default: // text, and what looks like a time: the plugin reads it
		return n.Value
	}
}

// secretKeys are settings whose value is a secret whatever the plugin is.
var secretKeys = []string{
	"password", "passwd", "token", "secret", "api_key", "apikey", "access_token", "auth_token",
	"secret_key", "secret_access_key", "private_key", "client_secret",
}

func isSecretKey(key string) bool {
	return slices.Contains(secretKeys, strings.ReplaceAll(strings.ToLower(key), "-", "_"))
}

// literalSecret reports, and refuses, a secret that stands in the file.
func (d *decoder) literalSecret(key string, value *yaml.Node, path string) bool {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || value.Value == "" {
		return false
	}
	if !isSecretKey(key) && Redact(value.Value) == value.Value {
		return false
	}
	d.failf(value, path, "a secret must not stand in this file; let the plugin read it from a file, or from a variable that the provider's env list names")
	return true
}

func (s *SecretSource) decodeNode(d *decoder, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		d.failf(n, path, "a secret must not stand in this file; write {env: NAME} or {file: PATH}")
		return
	}
	d.settings(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		switch key.Value {
		case "file", "env":
			target := &s.File
			if key.Value == "env" {
				target = &s.Env
			}
			if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || value.Value == "" {
				d.failf(value, at, "must be the name of a %s", map[string]string{"file": "file", "env": "variable"}[key.Value])
				return
			}
			*target = value.Value
		default:
			d.failf(key, at, "unknown setting; a secret is named by env or file and never stands in this file")
		}
	})
	if s.File != "" && s.Env != "" {
		d.failf(n, path, "names both a file and a variable; keep one of them")
	}
}
