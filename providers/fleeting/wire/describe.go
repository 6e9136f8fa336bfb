package wire

import "google.golang.org/protobuf/reflect/protoreflect"

// ServiceInfo shows a service to people.
type ServiceInfo struct {
	Name    string       `json:"name"`
	Methods []MethodInfo `json:"methods"`
}

// MethodInfo shows a method.
type MethodInfo struct {
	Name    string      `json:"name"`
	Stream  bool        `json:"stream"` // of answers
	Request MessageInfo `json:"request"`
	Answer  MessageInfo `json:"answer"`
}

// MessageInfo shows a message.
type MessageInfo struct {
	Name   string      `json:"name"`
	Fields []FieldInfo `json:"fields"`
}

// FieldInfo shows a field, or one of a message within.
type FieldInfo struct {
	Path string `json:"path"`
	Type string `json:"type"`
	// Values of an enum.
	Values []string `json:"values,omitempty"`
	// Fields of the elements of a list.
	Element []FieldInfo `json:"element,omitempty"`
}

// Describe shows all that a binding can be made of.
func (d *Descriptors) Describe() []ServiceInfo {
	all := make([]ServiceInfo, 0, len(d.Services))
	for _, s := range d.Services {
		info := ServiceInfo{Name: string(s.FullName())}
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			info.Methods = append(info.Methods, MethodInfo{
				Name: string(m.Name()), Stream: m.IsStreamingServer(), Request: messageInfo(m.Input()), Answer: messageInfo(m.Output()),
			})
		}
		all = append(all, info)
	}
	return all
}

func messageInfo(m protoreflect.MessageDescriptor) MessageInfo {
	return MessageInfo{string(m.Name()), fieldInfos(m, true)}
}

// fieldInfos goes into the elements of lists once: a binding needs no more, and a
// message may hold a list of itself.
func fieldInfos(m protoreflect.MessageDescriptor, elements bool) []FieldInfo {
	infos := []FieldInfo{}
	for _, p := range paths(m) {
		f := p.last()
		info := FieldInfo{Path: p.String(), Type: Type(f)}
		if f.Kind() == protoreflect.EnumKind {
			for i := range f.Enum().Values().Len() {
				info.Values = append(info.Values, string(f.Enum().Values().Get(i).Name()))
			}
		}
		if kindOf(f) == list && elements {
			info.Element = fieldInfos(f.Message(), false)
		}
		infos = append(infos, info)
	}
	return infos
}
