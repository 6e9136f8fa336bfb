package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Limits of one file.
const (
	// MaxFileBytes holds MaxPools pools with room to spare [bytes].
	MaxFileBytes = 8 << 20
	// maxNodes bounds what anchors and aliases can multiply a small file to [nodes].
	maxNodes = 500_000
	// maxDepth bounds nesting [levels]; the schema needs 7 and a plugin's own
	// configuration a few more.
	maxDepth = 64
)

// tree is a file before it has a meaning. Nodes that a merge brought in remember
// the file that they are from.
type tree struct {
	name string
	root *yaml.Node // a mapping
	from map[*yaml.Node]string
}

func (t tree) file(n *yaml.Node) string {
	if name, ok := t.from[n]; ok {
		return name
	}
	return t.name
}

func (t tree) problem(n *yaml.Node, path, format string, args ...any) Problem {
	return Problem{File: t.file(n), Line: n.Line, Path: path, Text: fmt.Sprintf(format, args...)}
}

// readTree reads exactly one YAML document that is a mapping.
func readTree(name string, data []byte) (tree, error) {
	fail := func(line int, format string, args ...any) (tree, error) {
		return tree{}, asError([]Problem{{File: name, Line: line, Text: fmt.Sprintf(format, args...)}})
	}
	if len(data) > MaxFileBytes {
		return fail(0, "%d bytes, at most %d are allowed", len(data), MaxFileBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return fail(0, "the file is empty; name at least one pool")
	case err != nil:
		line, text := yamlError(err)
		return fail(line, "not YAML: %s", text)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fail(0, "there is more after the first YAML document; use one file with one document")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fail(root.Line, "must be settings (key: value), not %s", kindName(root))
	}
	return tree{name: name, root: root}, nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// yamlError splits the line off the library's message.
func yamlError(err error) (line int, text string) {
	s := err.Error()
	m := yamlLine.FindStringSubmatch(s)
	line, _ = strconv.Atoi(m[1])
	return line, Redact(s[len(m[0]):])
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "settings (key: value)"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.ShortTag() == "!!null" {
			return "nothing"
		}
		return "a single value"
	default:
		return "something else"
	}
}

// pairs yields the keys and values of a mapping.
func pairs(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// child returns the value of key in a mapping, nil if there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	for k, v := range pairs(n) {
		if k.Value == key {
			return v
		}
	}
	return nil
}
