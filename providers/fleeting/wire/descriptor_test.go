package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// plugin describes a plugin of our own invention: messages by their name, each field
// as in a .proto file, and what is another message as "request" or "answer" of a
// method.
type plugin map[string][]string

// usual is one that leaves nothing open.
func usual() plugin {
	return plugin{
		"InitRequest": {"bytes config"}, "InitAnswer": {},
		"UpdateRequest": {}, "UpdateAnswer": {"repeated Tree trees"},
		"IncreaseRequest": {"int32 count"}, "IncreaseAnswer": {"int64 accepted"},
		"DecreaseRequest": {"repeated string ids"}, "DecreaseAnswer": {"repeated string ids"},
		"Tree": {"string id", "State state"},
	}
}

// but is the plugin with other messages.
func (p plugin) but(message string, fields ...string) plugin {
	p[message] = fields
	return p
}

var values = []string{"STATE_UNSPECIFIED", "STATE_CREATING", "STATE_RUNNING", "STATE_DELETING"}

func (p plugin) descriptors(t *testing.T, streams ...string) *Descriptors {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("p.proto"), Package: proto.String("p"), Syntax: proto.String("proto3")}
	enum := &descriptorpb.EnumDescriptorProto{Name: proto.String("State")}
	for i, name := range values {
		enum.Value = append(enum.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String(name), Number: proto.Int32(int32(i))})
	}
	file.EnumType = append(file.EnumType, enum)
	service := &descriptorpb.ServiceDescriptorProto{Name: proto.String("Group")}
	for name, fields := range p {
		m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for i, f := range fields {
			m.Field = append(m.Field, fieldOf(f, i+1))
		}
		file.MessageType = append(file.MessageType, m)
		if method, ok := strings.CutSuffix(name, "Request"); ok {
			service.Method = append(service.Method, &descriptorpb.MethodDescriptorProto{
				Name: proto.String(method), InputType: proto.String(".p." + name), OutputType: proto.String(".p." + method + "Answer"),
				ServerStreaming: proto.Bool(strings.Contains(strings.Join(streams, ","), method)),
			})
		}
	}
	file.Service = append(file.Service, service)
	made, err := protodesc.NewFile(file, nil)
	require.NoError(t, err)
	return &Descriptors{Services: []protoreflect.ServiceDescriptor{made.Services().Get(0)}}
}

func fieldOf(text string, number int) *descriptorpb.FieldDescriptorProto {
	words := strings.Fields(text)
	label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	if words[0] == "repeated" {
		label, words = descriptorpb.FieldDescriptorProto_LABEL_REPEATED, words[1:]
	}
	f := &descriptorpb.FieldDescriptorProto{Name: proto.String(words[1]), Number: proto.Int32(int32(number)), Label: label.Enum()}
	switch scalar, ok := descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(words[0])]; {
	case ok:
		f.Type = descriptorpb.FieldDescriptorProto_Type(scalar).Enum()
	case words[0] == "State":
		f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), proto.String(".p.State")
	default:
		f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".p."+words[0])
	}
	return f
}
