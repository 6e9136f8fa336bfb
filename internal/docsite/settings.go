package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// settings is the page of all settings: their kinds are those of the fields that they
// are read into; defaults and meanings are those of the example, which a test of
// package config holds to the fields.
func settings() ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(config.Example), &doc); err != nil {
		return nil, fmt.Errorf("the example of all settings: %w", err)
	}
	s := settingsPage{kinds: map[string]string{}}
	s.learn(reflect.TypeFor[config.Config](), "")
	var err error
	if s.defaults, err = defaults(); err != nil {
		return nil, err
	}
	s.b.WriteString("# Settings\n\nAll settings of `spillway.yaml`, as `controlplane validate --example` prints them. Durations have a unit (`30s`, `10m`, `1h30m`). " +
		"Only `pools` is needed, and in each pool a name, a capability and a provider.\n\n" +
		"`[]` stands for an element of a list, `NAME` for a name of yours.\n")
	top := doc.Content[0]
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		fmt.Fprintf(&s.b, "\n## %s\n", key.Value)
		if about := comment(key.HeadComment); about != "" {
			fmt.Fprintf(&s.b, "\n%s\n", prose(about))
		}
		header(&s.b, "setting", "kind", "default", "for example", "meaning")
		s.shown = map[string]bool{}
		s.write(key.Value, key, value)
	}
	return []byte(s.b.String()), nil
}

type settingsPage struct {
	b        strings.Builder
	kinds    map[string]string // by path
	defaults map[string]string // by path
	shown    map[string]bool   // paths of this section: of several examples the first counts
}

// write writes the rows of a setting and those below it.
func (s *settingsPage) write(path string, key, value *yaml.Node) {
	if said := about(key, value); !s.shown[path] && (s.kinds[path] != "section" || said != "") {
		s.shown[path] = true
		standard, example := s.values(path, value)
		row(&s.b, quoted(path), s.kinds[path], quoted(standard), quoted(example), prose(said))
	}
	if s.kinds[path] == "secret" {
		return // one of {file: PATH} and {env: NAME}
	}
	switch value.Kind {
	case yaml.SequenceNode:
		for _, item := range value.Content {
			if item.Kind == yaml.MappingNode {
				s.children(path+"[]", item)
			}
		}
	case yaml.MappingNode:
		s.children(path, value)
	default:
	}
}

// values are a setting's default, and what the example has if that is something else.
func (s *settingsPage) values(path string, value *yaml.Node) (standard, example string) {
	if value.Kind != yaml.ScalarNode && value.Style&yaml.FlowStyle == 0 {
		return "", ""
	}
	example = flow(value)
	if sameValue(example, s.defaults[path]) {
		return example, ""
	}
	return "", example
}

func (s *settingsPage) children(path string, mapping *yaml.Node) {
	for i := 0; i < len(mapping.Content); i += 2 {
		name := mapping.Content[i].Value
		if _, known := s.kinds[path+"."+name]; !known {
			if _, named := s.kinds[path+".NAME"]; !named {
				continue // a plugin's own
			}
			name = "NAME"
		}
		s.write(path+"."+name, mapping.Content[i], mapping.Content[i+1])
	}
}

// meaning is the comment beside a setting.
func meaning(key, value *yaml.Node) string {
	for _, text := range []string{key.LineComment, value.LineComment} {
		if text != "" {
			return text
		}
	}
	for _, n := range value.Content { // beside a list or an object that stands in a line
		if value.Style&yaml.FlowStyle != 0 && n.LineComment != "" {
			return n.LineComment
		}
	}
	return ""
}

// about is what a setting means.
func about(key, value *yaml.Node) string {
	text := strings.TrimPrefix(comment(meaning(key, value)), "example")
	return strings.TrimSpace(strings.TrimPrefix(text, ";"))
}

// comment is the text of a comment.
func comment(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.Join(all, " ")
}

// flow is a value as it stands in a line.
func flow(n *yaml.Node) string {
	parts := make([]string, 0, len(n.Content))
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, n.Content[i].Value+": "+flow(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return n.Value
	}
}

// learn notes the kinds of a type's settings.
func (s *settingsPage) learn(t reflect.Type, path string) {
	if kind := kindOf(t); path != "" && kind != "" {
		s.kinds[path] = kind
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.learn(t.Elem(), path)
	case reflect.Map:
		s.learn(t.Elem(), path+".NAME")
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			s.learn(t.Elem(), path+"[]")
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && f.IsExported() {
				s.learn(f.Type, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	default:
	}
}

// kindOf is what a value is, in a word.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[config.SecretSource]():
		return "secret"
	case reflect.TypeFor[config.JSON]():
		return "object"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "yes or no"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "section"
	case reflect.Pointer:
		return kindOf(t.Elem())
	default:
		return ""
	}
}
