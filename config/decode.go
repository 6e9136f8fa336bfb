package config

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills Go values from a tree by their yaml tags, as yaml.Decode does,
// but goes on after a mistake, refuses unknown and repeated keys with the nearest
// known one, keeps what is not in the tree as it was (so defaults are what the
// value held before), and remembers where each path stands.
type decoder struct {
	tree     tree
	at       map[string]*yaml.Node // path → the node that a problem with it points to
	problems []Problem             // at most maxKept
	unread   map[string]bool
	nodes    int
}

// defaulter is a type whose new list elements and map values are not zero.
type defaulter interface{ setDefaults() }

// nodeDecoder is a type that reads its node itself.
type nodeDecoder interface {
	decodeNode(d *decoder, n *yaml.Node, path string)
}

// failf records a problem, and that neither the setting at path nor the sections
// around it could be read as a whole.
func (d *decoder) failf(n *yaml.Node, path, format string, args ...any) {
	if len(d.problems) >= maxKept {
		return
	}
	d.problems = append(d.problems, d.tree.problem(n, path, format, args...))
	for ; path != "" && !d.unread[path]; path = around(path) {
		d.unread[path] = true
	}
}

// around is the path of the section that a setting is in.
func around(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, depth int) {
	if !d.visit(n, path, depth) {
		return
	}
	if n.Kind == yaml.AliasNode {
		d.decode(n.Alias, v, path, depth+1)
		return
	}
	d.at[path] = n
	if own, ok := v.Addr().Interface().(nodeDecoder); ok {
		own.decodeNode(d, n, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(newWithDefaults(v.Type().Elem()))
		d.decode(n, v.Elem(), path, depth+1)
	case reflect.Struct:
		d.decodeStruct(n, v, path, depth)
	case reflect.Map:
		d.decodeMap(n, v, path, depth)
	case reflect.Slice:
		d.decodeList(n, v, path, depth)
	default:
		d.decodeScalar(n, v, path)
	}
}

// visit counts a node. Once there are too many it reports so, once, and reading
// is over: every further node is refused.
func (d *decoder) visit(n *yaml.Node, path string, depth int) bool {
	if d.exhausted() {
		return false
	}
	if d.nodes++; d.exhausted() || depth > maxDepth {
		d.nodes = maxNodes + 1
		d.failf(n, path, "too large or too deep: at most %d values in %d levels, aliases counted each time", maxNodes, maxDepth)
		return false
	}
	return true
}

func (d *decoder) exhausted() bool { return d.nodes > maxNodes }

func newWithDefaults(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if def, ok := p.Interface().(defaulter); ok {
		def.setDefaults()
	}
	return p
}

// settings checks that n is a mapping and yields each key once. A section with
// nothing in it (all of it commented out) is one without settings.
func (d *decoder) settings(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.failf(n, path, "must be settings (key: value), not %s", kindName(n))
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for k, v := range pairs(n) {
		switch line, again := seen[k.Value]; {
		case d.exhausted():
			return
		case k.Kind != yaml.ScalarNode:
			d.failf(k, path, "a key must be a single word")
		case k.ShortTag() == "!!merge":
			d.failf(k, join(path, k.Value), "merging with << is not supported; write the settings out or use a whole alias (*name)")
		case again:
			d.failf(k, join(path, k.Value), "is set a second time (first in line %d); keep one of them", line)
		default:
			seen[k.Value] = k.Line
			each(k, v)
		}
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string, depth int) {
	fields := fieldsOf(v.Type())
	d.settings(n, path, func(key, value *yaml.Node) {
		index, known := fields.index[key.Value]
		if !known && isSecretKey(key.Value) {
			d.failf(key, join(path, key.Value), "unknown setting, and a secret must not stand in this file; %s", list(fields.names))
			return
		}
		if !known {
			d.failf(key, join(path, key.Value), "unknown setting; %s", suggest(key.Value, fields.names))
			return
		}
		d.decode(value, v.FieldByIndex(index), join(path, key.Value), depth+1)
	})
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path string, depth int) {
	m := reflect.MakeMap(v.Type())
	d.settings(n, path, func(key, value *yaml.Node) {
		e := newWithDefaults(v.Type().Elem())
		d.decode(value, e.Elem(), join(path, key.Value), depth+1)
		m.SetMapIndex(reflect.ValueOf(key.Value), e.Elem())
	})
	v.Set(m)
}

func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.failf(n, path, "must be a list ([a, b] or lines that begin with -), not %s", kindName(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		if d.exhausted() {
			break
		}
		e := newWithDefaults(v.Type().Elem())
		d.decode(item, e.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
		list = reflect.Append(list, e.Elem())
	}
	v.Set(list)
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		d.failf(n, path, "must be %s, not %s", scalarName(v), kindName(n))
		return
	}
	if _, ok := v.Interface().(time.Duration); ok {
		t, err := time.ParseDuration(n.Value)
		if err != nil {
			d.failf(n, path, "%s is not a duration; write a number with its unit, such as 30s, 10m or 1h30m", quote(n.Value))
			return
		}
		v.SetInt(int64(t))
		return
	}
	if v.Kind() == reflect.String {
		if n.ShortTag() != "!!str" {
			d.failf(n, path, "%s is not text here; put it in quotes", quote(n.Value))
			return
		}
		v.SetString(n.Value)
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil || !sameKind(n, v) {
		d.failf(n, path, "%s is not %s", quote(n.Value), scalarName(v))
	}
}

// sameKind refuses what the YAML library would convert: quoted numbers, floats
// for integers, and what no number is.
func sameKind(n *yaml.Node, v reflect.Value) bool {
	switch tag := n.ShortTag(); v.Kind() {
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Float64:
		return (tag == "!!int" || tag == "!!float") && !math.IsNaN(v.Float()) && !math.IsInf(v.Float(), 0)
	default:
		return tag == "!!int"
	}
}

func scalarName(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Float64:
		return "a number"
	case v.Kind() == reflect.String:
		return "text"
	default:
		return "a whole number"
	}
}

// quote shows a value that somebody wrote, shortened, and never a secret that
// stands in the wrong place.
func quote(s string) string { return fmt.Sprintf("%.60q", Redact(s)) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fields are the settings of a struct type.
type fields struct {
	names []string
	index map[string][]int
}

func fieldsOf(t reflect.Type) fields {
	f := fields{index: map[string][]int{}}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if !field.IsExported() || name == "" {
			continue
		}
		f.names = append(f.names, name)
		f.index[name] = field.Index
	}
	return f
}
