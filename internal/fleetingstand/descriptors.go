package main

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "google.golang.org/protobuf/types/known/structpb" // registers what struct-config imports
)

const (
	pkg      = "orchard.v1"
	repeated = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	single   = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
)

// field is one field of a message. A type that isn't a scalar is a name in our
// package or, with a dot before it, anywhere.
type field struct {
	name  string
	typ   string
	label descriptorpb.FieldDescriptorProto_Label
}

func one(name, typ string) field  { return field{name, typ, single} }
func many(name, typ string) field { return field{name, typ, repeated} }

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING,
	"bytes":  descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"int32":  descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"int64":  descriptorpb.FieldDescriptorProto_TYPE_INT64,
	"uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
}

const enumName = "Phase"

func message(name string, fields ...field) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
	for i, f := range fields {
		d := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(f.name), Number: proto.Int32(int32(i + 1)), Label: f.label.Enum(), //nolint:gosec // a few fields
		}
		switch scalar, ok := scalars[f.typ]; {
		case ok:
			d.Type = scalar.Enum()
		case f.typ == enumName:
			d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), proto.String("."+pkg+"."+enumName)
		case f.typ[0] == '.':
			d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(f.typ)
		default:
			d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String("."+pkg+"."+f.typ)
		}
		m.Field = append(m.Field, d)
	}
	return m
}

// phases of a tree, in the words of the fleeting library's states.
var phases = []string{"PHASE_UNSAID", "PHASE_CREATING", "PHASE_RUNNING", "PHASE_DELETING", "PHASE_DELETED", "PHASE_TIMEOUT"}

// file describes the plugin of a shape.
func (s shape) file() *descriptorpb.FileDescriptorProto {
	f := &descriptorpb.FileDescriptorProto{
		Name: proto.String("orchard/v1/orchard.proto"), Package: proto.String(pkg), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/struct.proto"},
		EnumType:   []*descriptorpb.EnumDescriptorProto{s.phaseEnum()},
		MessageType: []*descriptorpb.DescriptorProto{
			s.gateRequest(),
			message("Terms", one("gardener", "string"), one("config", ".google.protobuf.Struct")),
			message("GateAnswer", one("label", "string"), one("max_trees", "int64")),
			message("LookRequest"),
			s.tree(),
			s.lookAnswer(),
			message("PlantRequest", one("more", "int32")),
			message("PlantAnswer", one("taken", "uint32")),
			message("FellRequest", many("trees", "string")),
			message("FellAnswer", many("felled", "string"), one("error", "string")),
			message("TreeRequest", one("tree", "string")),
			message("Nothing"),
		},
		Service: []*descriptorpb.ServiceDescriptorProto{s.service("Orchard")},
	}
	if s["twins"] {
		f.Service = append(f.Service, s.service("Nursery"))
	}
	return f
}

func (s shape) phaseEnum() *descriptorpb.EnumDescriptorProto {
	e := &descriptorpb.EnumDescriptorProto{Name: proto.String(enumName)}
	for i, name := range phases {
		if s["vague"] && name == "PHASE_RUNNING" {
			name = "PHASE_GREEN"
		}
		e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String(name), Number: proto.Int32(int32(i))}) //nolint:gosec // six
	}
	return e
}

func (s shape) gateRequest() *descriptorpb.DescriptorProto {
	switch {
	case s["struct-config"]:
		return message("GateRequest", one("terms", "Terms"))
	case s["ambiguous"]:
		return message("GateRequest", one("config", "bytes"), one("config_text", "string"))
	default:
		return message("GateRequest", one("loudness", "uint32"), one("terms", "bytes"))
	}
}

func (s shape) tree() *descriptorpb.DescriptorProto {
	if s["string-state"] {
		return message("Tree", one("id", "string"), one("phase", "string"))
	}
	return message("Tree", one("id", "string"), one("phase", enumName))
}

func (s shape) lookAnswer() *descriptorpb.DescriptorProto {
	switch {
	case s["stream"]:
		m := s.tree() // each answer is a tree
		m.Name = proto.String("LookAnswer")
		return m
	case s["map"]:
		m := message("LookAnswer", many("trees", ".orchard.v1.LookAnswer.TreesEntry"))
		entry := message("TreesEntry", one("key", "string"), one("value", enumName))
		entry.Options = &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}
		m.NestedType = append(m.NestedType, entry)
		return m
	default:
		return message("LookAnswer", many("weather", "string"), many("trees", "Tree"))
	}
}

func (s shape) service(name string) *descriptorpb.ServiceDescriptorProto {
	d := &descriptorpb.ServiceDescriptorProto{Name: proto.String(name)}
	add := func(method, request, answer string, stream bool) {
		d.Method = append(d.Method, &descriptorpb.MethodDescriptorProto{
			Name: proto.String(method), InputType: proto.String("." + pkg + "." + request), OutputType: proto.String("." + pkg + "." + answer),
			ServerStreaming: proto.Bool(stream),
		})
	}
	add("Init", "GateRequest", "GateAnswer", false)
	add("Update", "LookRequest", "LookAnswer", s["stream"])
	add("Increase", "PlantRequest", "PlantAnswer", false)
	add("Decrease", "FellRequest", "FellAnswer", false)
	if !s["minimal"] {
		add("Heartbeat", "TreeRequest", "Nothing", false)
		add("Shutdown", "Nothing", "Nothing", false)
	}
	return d
}

// register makes the descriptors known to the reflection service.
func (s shape) register() (protoreflect.FileDescriptor, error) {
	file, err := protodesc.NewFile(s.file(), protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	return file, protoregistry.GlobalFiles.RegisterFile(file)
}
