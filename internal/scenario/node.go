package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// reader turns YAML nodes into values and goes on after a mistake, so that one
// look at the answer is enough to mend a file.
type reader struct {
	file     string
	problems []config.Problem
}

// field reads the node of one setting.
type field func(n *yaml.Node, path string)

func (r *reader) failf(line int, path, format string, args ...any) {
	r.problems = append(r.problems, config.Problem{
		File: r.file, Line: line, Path: path, Text: fmt.Sprintf(format, args...),
	})
}

// problemsOf adds an error of a whole section, line by line.
func (r *reader) problemsOf(line int, path string, err error) {
	if err == nil {
		return
	}
	for text := range strings.SplitSeq(err.Error(), "\n") {
		r.failf(line, path, "%s", text)
	}
}

// mapping reads n by fields and returns the keys that were there.
func (r *reader) mapping(n *yaml.Node, path string, fields map[string]field) map[string]bool {
	seen := make(map[string]bool)
	if n.Kind != yaml.MappingNode {
		r.failf(n.Line, path, "must be settings (key: value)")
		return seen
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, known := fields[key.Value]
		switch {
		case !known:
			r.failf(key.Line, join(path, key.Value), "unknown setting; there are %s",
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case seen[key.Value]:
			r.failf(key.Line, join(path, key.Value), "is set a second time; keep one of them")
		default:
			seen[key.Value] = true
			read(resolve(value), join(path, key.Value))
		}
	}
	return seen
}

// list reads each item of a sequence. A section with everything commented out is
// an empty one.
func (r *reader) list(n *yaml.Node, path string, item field) {
	switch {
	case isNull(n):
	case n.Kind != yaml.SequenceNode:
		r.failf(n.Line, path, "must be a list")
	default:
		for i, child := range n.Content {
			item(resolve(child), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// scalar reads one single value with parse, which says what it wanted.
func scalar[T any](r *reader, dst *T, want string, parse func(*yaml.Node) (T, bool)) field {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.ScalarNode || isNull(n) {
			r.failf(n.Line, path, "must be %s", want)
			return
		}
		v, ok := parse(n)
		if !ok {
			r.failf(n.Line, path, "%.60q is not %s", n.Value, want)
			return
		}
		*dst = v
	}
}

func (r *reader) text(dst *string) field {
	return scalar(r, dst, "text", func(n *yaml.Node) (string, bool) { return n.Value, true })
}

func (r *reader) count(dst *int) field {
	return scalar(r, dst, "a whole number of 0 or more", func(n *yaml.Node) (int, bool) {
		v, err := strconv.Atoi(n.Value)
		return v, err == nil && v >= 0 && n.ShortTag() == "!!int"
	})
}

func (r *reader) number(dst *float64) field {
	return scalar(r, dst, "a number", func(n *yaml.Node) (float64, bool) {
		v, err := strconv.ParseFloat(n.Value, 64)
		return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
	})
}

func (r *reader) truth(dst *bool) field {
	return scalar(r, dst, "true or false", func(n *yaml.Node) (v, ok bool) {
		return n.Value == "true", n.ShortTag() == "!!bool" && (n.Value == "true" || n.Value == "false")
	})
}

func (r *reader) duration(dst *time.Duration) field {
	return scalar(r, dst, "a time of 0s or more, such as 30s or 1h30m", func(n *yaml.Node) (time.Duration, bool) {
		d, err := parseDuration(n.Value)
		return d, err == nil && d >= 0 && d <= MaxDuration
	})
}

// oneOf reads one of the names of a closed set.
func oneOf[T ~string](r *reader, dst *T, names ...T) field {
	want := make([]string, len(names))
	for i, n := range names {
		want[i] = string(n)
	}
	return scalar(r, dst, "one of "+strings.Join(want, ", "), func(n *yaml.Node) (T, bool) {
		return T(n.Value), slices.Contains(names, T(n.Value))
	})
}

// texts reads a list of texts.
func (r *reader) texts(dst *[]string) field {
	return func(n *yaml.Node, path string) {
		*dst = nil
		r.list(n, path, func(item *yaml.Node, path string) {
			var s string
			r.text(&s)(item, path)
			*dst = append(*dst, s)
		})
	}
}

// numbers reads a list of ids.
func (r *reader) numbers(dst *[]int64) field {
	return func(n *yaml.Node, path string) {
		*dst = nil
		r.list(n, path, func(item *yaml.Node, path string) {
			var v int
			r.count(&v)(item, path)
			*dst = append(*dst, int64(v))
		})
	}
}

// parseDuration reads "90s", or 90 as seconds.
func parseDuration(s string) (time.Duration, error) {
	if secs, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(secs) || math.Abs(secs) > MaxDuration.Seconds() {
			return 0, fmt.Errorf("%q is not a time", s)
		}
		return time.Duration(math.Round(secs * float64(time.Second))), nil
	}
	return time.ParseDuration(s)
}
