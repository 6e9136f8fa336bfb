package pluginsdk

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// ConfigDefaulter is a part of a configuration with defaults that are not Go's
// zero values. [DecodeConfig] calls SetDefaults before it reads anything into the
// part, also for each element of a list and each value of a map.
type ConfigDefaulter interface {
	SetDefaults()
}

// ConfigChecker is a part of a configuration that knows more rules than its Go type
// says: bounds, settings that exclude each other. [DecodeConfig] calls Check once
// the part was read, also if some of it could not be, so that one error names all
// mistakes; paths given to problems are relative to the part.
type ConfigChecker interface {
	Check(problems *Problems)
}

// DecodeConfig reads the JSON object that [Provider.Configure] is given. It is
// strict, and goes on after a mistake: its ErrInvalid names all of them, one a
// line, each with its path, such as groups[1].max. No value but a number is ever
// repeated in it: any could be a secret. What into holds after an error means
// nothing.
//
// The settings of a struct are its fields with a json tag, and those of the structs
// that it embeds. What the object does not set stays as it was or as
// [ConfigDefaulter] sets it, but a field with the tag `config:"required"` must be
// set, and must not be an empty string, list or map. Any other key is a mistake, as
// are a value of another type and null. A [time.Duration] is a string such as
// "1m30s". Types that are a [json.Unmarshaler] or [encoding.TextUnmarshaler] read
// themselves; they may use DecodeConfig for a part of it.
func DecodeConfig[T any](data []byte, into *T) error {
	data = bytes.TrimSpace(data)
	var syntax json.RawMessage
	if err := json.Unmarshal(data, &syntax); err != nil {
		return Errorf(KindInvalid, "config: not JSON: %w", err)
	}
	found := &mistakes{unread: map[string]bool{}}
	decode(data, reflect.ValueOf(into).Elem(), &Problems{found: found})
	if len(found.list) == 0 {
		return nil
	}
	return Errorf(KindInvalid, "config: %w", found)
}

// decode reads one value, with its defaults before and its own rules after.
func decode(raw json.RawMessage, v reflect.Value, at *Problems) {
	if d, ok := v.Addr().Interface().(ConfigDefaulter); ok {
		d.SetDefaults()
	}
	if !read(raw, v, at) {
		return
	}
	if c, ok := v.Addr().Interface().(ConfigChecker); ok {
		c.Check(at)
	}
}

// read reports whether the value is of v's type; parts of it may not be.
func read(raw json.RawMessage, v reflect.Value, at *Problems) bool {
	if string(raw) == "null" {
		return at.unread(mismatch(raw, v))
	}
	switch own := v.Addr().Interface().(type) {
	case *time.Duration:
		return readDuration(raw, own, at)
	case json.Unmarshaler:
		return at.unread(own.UnmarshalJSON(raw))
	case encoding.TextUnmarshaler:
		return readPlain(raw, v, at)
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		decode(raw, v.Elem(), at)
		return true
	case reflect.Struct:
		return readStruct(raw, v, at)
	case reflect.Slice:
		return readList(raw, v, at)
	case reflect.Map:
		return readMap(raw, v, at)
	default:
		return readPlain(raw, v, at)
	}
}

func readStruct(raw json.RawMessage, v reflect.Value, at *Problems) bool {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return at.unread(mismatch(raw, v))
	}
	settings := settingsOf(v.Type())
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.name
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, key) {
			at.Addf(pathKey(key), "there is no such setting; %s", suggest(key, names))
		}
	}
	for _, s := range settings {
		field, here := v.FieldByIndex(s.index), at.in(s.name)
		value, ok := given[s.name]
		switch {
		case ok && s.required && isEmpty(value):
			here.unread(errors.New("must not be empty"))
		case ok:
			decode(value, field, here)
		case s.required:
			here.unread(errors.New("missing"))
		}
	}
	return true
}

// setting is a field of a configuration's struct.
type setting struct {
	name     string
	index    []int // as in reflect.StructField
	required bool
}

func settingsOf(t reflect.Type) []setting {
	var all []setting
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			all = append(all, setting{name, f.Index, f.Tag.Get("config") == "required"})
		}
	}
	return all
}

func isEmpty(raw json.RawMessage) bool {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	return string(raw) == `""` ||
		raw[0] == '[' && json.Unmarshal(raw, &list) == nil && len(list) == 0 ||
		raw[0] == '{' && json.Unmarshal(raw, &object) == nil && len(object) == 0
}

func readList(raw json.RawMessage, v reflect.Value, at *Problems) bool {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return at.unread(mismatch(raw, v))
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		decode(item, v.Index(i), at.in(pathIndex(i)))
	}
	return true
}

func readMap(raw json.RawMessage, v reflect.Value, at *Problems) bool {
	var items map[string]json.RawMessage
	if v.Type().Key().Kind() != reflect.String {
		return readPlain(raw, v, at)
	}
	if json.Unmarshal(raw, &items) != nil {
		return at.unread(mismatch(raw, v))
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(items)))
	for _, key := range slices.Sorted(maps.Keys(items)) {
		value := reflect.New(v.Type().Elem()).Elem()
		decode(items[key], value, at.in(pathKey(key)))
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
	}
	return true
}

func readDuration(raw json.RawMessage, d *time.Duration, at *Problems) bool {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return at.unread(mismatch(raw, reflect.ValueOf(d).Elem()))
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return at.unread(errors.New("use a duration such as 90s or 1h30m"))
	}
	*d = parsed
	return true
}

// readPlain leaves the value to encoding/json.
func readPlain(raw json.RawMessage, v reflect.Value, at *Problems) bool {
	err := json.Unmarshal(raw, v.Addr().Interface())
	if wrongType := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrongType) {
		err = mismatch(raw, v)
	}
	return at.unread(err)
}
