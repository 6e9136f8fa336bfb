package wire

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// kind is what matters of a field's type.
type kind string

// The kinds of field that a role can have.
const (
	text        kind = "string"
	octets      kind = "bytes"
	structure   kind = "google.protobuf.Struct"
	integer     kind = "integer"
	enumeration kind = "enum"
	texts       kind = "repeated string"
	list        kind = "repeated message"
	other       kind = ""
)

// maxPathFields bounds how deep in a message a field is looked for [fields].
const maxPathFields = 3

const structName = protoreflect.FullName("google.protobuf.Struct")

// Path leads from a message to a field in it, or in a message within it.
type Path []protoreflect.FieldDescriptor

func (p Path) String() string {
	names := make([]string, len(p))
	for i, f := range p {
		names[i] = string(f.Name())
	}
	return strings.Join(names, ".")
}

func (p Path) last() protoreflect.FieldDescriptor { return p[len(p)-1] }

func kindOf(f protoreflect.FieldDescriptor) kind {
	switch {
	case f.IsMap():
		return list // of entries
	case f.IsList():
		switch f.Kind() { //nolint:exhaustive // no role wants any other
		case protoreflect.StringKind:
			return texts
		case protoreflect.MessageKind:
			return list
		}
		return other
	}
	switch f.Kind() { //nolint:exhaustive // as above
	case protoreflect.StringKind:
		return text
	case protoreflect.BytesKind:
		return octets
	case protoreflect.EnumKind:
		return enumeration
	case protoreflect.MessageKind:
		if f.Message().FullName() == structName {
			return structure
		}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return integer
	}
	return other
}

// paths are all fields of m, and those of the messages in it.
func paths(m protoreflect.MessageDescriptor) []Path { return pathsBelow(m, nil) }

func pathsBelow(m protoreflect.MessageDescriptor, above Path) []Path {
	var all []Path
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		here := append(slices.Clone(above), f)
		all = append(all, here)
		if descends(f) && len(here) < maxPathFields {
			all = append(all, pathsBelow(f.Message(), here)...)
		}
	}
	return all
}

// descends reports whether fields are looked for within f. What Google's own types
// hold (a timestamp's seconds) is never meant.
func descends(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.MessageKind && f.Cardinality() != protoreflect.Repeated &&
		f.Message().FullName().Parent() != "google.protobuf"
}

// find resolves a path by its names.
func find(m protoreflect.MessageDescriptor, path string) (Path, error) {
	var found Path
	for name := range strings.SplitSeq(path, ".") {
		if len(found) > 0 {
			if !descends(found.last()) {
				return nil, fmt.Errorf("%s has no fields", found)
			}
			m = found.last().Message()
		}
		f := m.Fields().ByName(protoreflect.Name(name))
		if f == nil {
			return nil, fmt.Errorf("%s has no field %.64q", m.FullName(), name)
		}
		found = append(found, f)
	}
	return found, nil
}

// fitting are the fields of m that are of one of kinds.
func fitting(m protoreflect.MessageDescriptor, kinds []kind) []Path {
	return slices.DeleteFunc(paths(m), func(p Path) bool { return !slices.Contains(kinds, kindOf(p.last())) })
}

// named are those with one of words in their name.
func named(all []Path, words []string) []Path {
	var some []Path
	for _, p := range all {
		if slices.ContainsFunc(wordsOf(p.String()), func(w string) bool { return slices.Contains(words, w) }) {
			some = append(some, p)
		}
	}
	return some
}

// wordsOf are the words of a name in snake_case, CamelCase or CAPITALS, in lower case.
func wordsOf(name string) []string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	before := '_'
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
		} else {
			if unicode.IsUpper(r) && unicode.IsLower(before) {
				end()
			}
			word.WriteRune(r)
		}
		before = r
	}
	end()
	return words
}

func pathNames(all []Path) []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.String()
	}
	return names
}

// Type is a field's type for people.
func Type(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return "map<" + Type(f.MapKey()) + ", " + Type(f.MapValue()) + ">"
	case f.Kind() == protoreflect.EnumKind:
		name = "enum " + string(f.Enum().Name())
	case f.Message() != nil:
		name = string(f.Message().Name())
	}
	if f.IsList() {
		return "repeated " + name
	}
	return name
}
