package wire

import (
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// within is the message at the end of a path, made where it isn't there yet.
func within(m protoreflect.Message, path Path) protoreflect.Message {
	for _, f := range path {
		m = m.Mutable(f).Message()
	}
	return m
}

func set(m protoreflect.Message, path Path, value protoreflect.Value) {
	within(m, path[:len(path)-1]).Set(path.last(), value)
}

// get is the value at a path, the default where the field isn't set; not ok where a
// message on the way isn't there.
func get(m protoreflect.Message, path Path) (protoreflect.Value, bool) {
	for _, f := range path[:len(path)-1] {
		if !m.Has(f) {
			return protoreflect.Value{}, false
		}
		m = m.Get(f).Message()
	}
	return m.Get(path.last()), true
}

// integerValue is n as a value of f's type. Counts are far below all bounds.
func integerValue(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	switch f.Kind() { // Resolve allows no other
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(min(n, math.MaxInt32))) //nolint:gosec // bounded
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(min(max(n, 0), math.MaxInt32))) //nolint:gosec // bounded
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(max(n, 0))) //nolint:gosec // not negative
	default:
		return protoreflect.ValueOfInt64(int64(n))
	}
}

func toInt(value protoreflect.Value) (n int, ok bool) {
	switch v := value.Interface().(type) {
	case int32:
		return int(v), true
	case int64:
		return int(v), true
	case uint32:
		return int(v), true
	case uint64:
		return int(min(v, math.MaxInt)), v <= math.MaxInt //nolint:gosec // bounded
	default:
		return 0, false
	}
}

// listing collects the instances of an Update.
type listing struct {
	client *Client
	list   []Instance
	states map[string]State
}

// add takes one answer: all instances, some of a stream's, or one.
func (l *listing) add(answer *dynamicpb.Message) error {
	plan := l.client.plan
	if err := l.client.said(answer, UpdateError); err != nil {
		return err
	}
	path := plan.fields[UpdateInstances]
	if path == nil {
		return l.instance(answer)
	}
	value, ok := get(answer, path)
	if !ok {
		return nil // an empty list in a message that isn't there
	}
	if path.last().IsMap() {
		return l.entries(path.last(), value.Map())
	}
	for i := range value.List().Len() {
		if err := l.instance(value.List().Get(i).Message()); err != nil {
			return err
		}
	}
	return nil
}

// entries are the instances of a map: each entry is a message with key and value.
func (l *listing) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) (err error) {
	m.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		entry := dynamicpb.NewMessage(f.Message())
		entry.Set(f.MapKey(), key.Value())
		entry.Set(f.MapValue(), value)
		err = l.instance(entry)
		return err == nil
	})
	return err
}

func (l *listing) instance(m protoreflect.Message) error {
	in := Instance{State: l.state(m)}
	if id, ok := get(m, l.client.plan.fields[UpdateID]); ok {
		in.ID = id.String()
	}
	before, twice := l.states[in.ID]
	switch {
	case in.ID == "" || len(in.ID) > MaxIDBytes || !utf8.ValidString(in.ID):
		return fmt.Errorf("%w: Update lists an instance with an id of %d bytes, use 1 to %d", ErrAnswer, len(in.ID), MaxIDBytes)
	case twice && before != in.State:
		return fmt.Errorf("%w: Update lists %q as %s and as %s", ErrAnswer, in.ID, before, in.State)
	case twice:
		return nil
	case len(l.list) == MaxInstances:
		return fmt.Errorf("%w: Update lists more than %d instances", ErrAnswer, MaxInstances)
	}
	l.states[in.ID] = in.State
	l.list = append(l.list, in)
	return nil
}

func (l *listing) state(m protoreflect.Message) State {
	path := l.client.plan.fields[UpdateState]
	value, ok := get(m, path)
	if !ok {
		return Unknown
	}
	name := ""
	if path.last().Kind() == protoreflect.EnumKind {
		if v := path.last().Enum().Values().ByNumber(value.Enum()); v != nil {
			name = string(v.Name())
		}
	} else {
		name = value.String()
	}
	if s, ok := l.client.plan.states[name]; ok {
		return s
	}
	return Unknown
}
