package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// conn answers calls from a function for each method.
type conn struct {
	answers map[string]func(request, answer *dynamicpb.Message) error
	stream  func(request *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error)
	names   []string // of the streams that were begun
}

func (c *conn) Invoke(_ context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	in, out := request.(*dynamicpb.Message), answer.(*dynamicpb.Message)
	return c.answers[method[strings.LastIndexByte(method, '/')+1:]](in, out)
}

func (c *conn) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.names = append(c.names, method)
	return &stream{conn: c}, nil
}

type stream struct {
	grpc.ClientStream
	conn *conn
	last *reflectionv1.ServerReflectionRequest
}

func (s *stream) SendMsg(m any) error {
	s.last = m.(*reflectionv1.ServerReflectionRequest)
	return nil
}

func (s *stream) RecvMsg(m any) error {
	answer, err := s.conn.stream(s.last)
	if err == nil {
		proto.Merge(m.(proto.Message), answer)
	}
	return err
}

// client is one of a plugin that leaves nothing open.
func client(t *testing.T, p plugin) (*Client, *conn) {
	t.Helper()
	d := p.descriptors(t)
	proposal, err := Propose(d, nil)
	require.NoError(t, err)
	plan, err := Resolve(d, &proposal.Binding)
	require.NoError(t, err)
	c := &conn{answers: map[string]func(request, answer *dynamicpb.Message) error{}}
	return NewClient(c, plan), c
}

func field(m *dynamicpb.Message, name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(protoreflect.Name(name))
}

func (c *conn) lists(ids ...string) {
	c.answers[Update] = func(_, answer *dynamicpb.Message) error {
		list := answer.Mutable(field(answer, "trees")).List()
		for i, id := range ids {
			tree := list.AppendMutable().Message()
			tree.Set(tree.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString(id))
			tree.Set(tree.Descriptor().Fields().ByName("state"), protoreflect.ValueOfEnum(protoreflect.EnumNumber(i%2+1)))
		}
		return nil
	}
}

func TestUpdateRefusesNonsense(t *testing.T) {
	c, conn := client(t, usual())
	conn.lists("a", "b", "a")
	got, err := c.Update(t.Context())
	require.NoError(t, err, "the same twice is said twice")
	require.Equal(t, []Instance{{"a", Creating}, {"b", Running}}, got)
	for want, ids := range map[string][]string{
		`"a" as creating and as running`: {"a", "a"},
		"an id of 0 bytes":               {""},
		"an id of 256 bytes":             {strings.Repeat("x", MaxIDBytes+1)},
		"an id of 2 bytes":               {"\xff\xfe"},
	} {
		conn.lists(ids...)
		_, err := c.Update(t.Context())
		require.ErrorIs(t, err, ErrAnswer)
		require.ErrorContains(t, err, want)
	}
}

func TestUpdateIsBounded(t *testing.T) {
	c, conn := client(t, usual())
	ids := make([]string, MaxInstances+1)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	conn.lists(ids[1:]...)
	got, err := c.Update(t.Context())
	require.NoError(t, err)
	require.Len(t, got, MaxInstances)
	conn.lists(ids...)
	_, err = c.Update(t.Context())
	require.ErrorIs(t, err, ErrAnswer)
}

func TestIncreaseRefusesNonsense(t *testing.T) {
	c, conn := client(t, usual().but("IncreaseRequest", "sint64 count").but("IncreaseAnswer", "uint64 accepted", "string error"))
	var took uint64
	said := ""
	conn.answers[Increase] = func(request, answer *dynamicpb.Message) error {
		require.Equal(t, int64(3), request.Get(field(request, "count")).Int())
		answer.Set(field(answer, "accepted"), protoreflect.ValueOfUint64(took))
		answer.Set(field(answer, "error"), protoreflect.ValueOfString(said))
		return nil
	}
	for _, took = range []uint64{4, math.MaxUint64} {
		_, err := c.Increase(t.Context(), 3)
		require.ErrorIs(t, err, ErrAnswer)
	}
	took, said = 2, "no room"
	got, err := c.Increase(t.Context(), 3)
	require.Equal(t, 2, got, "some, together with an error")
	var e *SaidError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "no room", e.Text)
}

// reflects is a plugin that describes itself with files.
func reflects(services int, files ...*descriptorpb.FileDescriptorProto) func(*reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
	return func(r *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
		if _, ok := r.GetMessageRequest().(*reflectionv1.ServerReflectionRequest_ListServices); ok {
			list := &reflectionv1.ListServiceResponse{}
			for i := range services {
				list.Service = append(list.Service, &reflectionv1.ServiceResponse{Name: fmt.Sprintf("p.S%d", i)})
			}
			return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}}, nil
		}
		answer := &reflectionv1.FileDescriptorResponse{}
		for _, f := range files {
			raw, err := proto.Marshal(f)
			if err != nil {
				return nil, err
			}
			answer.FileDescriptorProto = append(answer.FileDescriptorProto, raw)
		}
		return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: answer}}, nil
	}
}

func TestReadIsBounded(t *testing.T) {
	file := func(i, bytes int, imports ...string) *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{
			Name: proto.String(fmt.Sprintf("f%d.proto", i)), Dependency: imports,
			Options: &descriptorpb.FileOptions{GoPackage: proto.String(strings.Repeat("x", bytes))},
		}
	}
	var many []*descriptorpb.FileDescriptorProto
	for i := range MaxFiles + 1 {
		many = append(many, file(i, 0))
	}
	for want, c := range map[string]*conn{
		"65 services":             {stream: reflects(MaxServices + 1)},
		"more than 256 files":     {stream: reflects(1, many...)},
		"more than 8388608 bytes": {stream: reflects(1, file(0, MaxDescriptorBytes))},
		`no file "other.proto"`:   {stream: reflects(1, file(0, 0, "other.proto"))},
		"service p.S0":            {stream: reflects(1, file(0, 0))},
		"don't fit together":      {stream: reflects(1, file(0, 0, "f0.proto"))},
		"the stream broke somewhere": {stream: func(*reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
			return nil, errors.New("the stream broke somewhere")
		}},
	} {
		_, err := Read(t.Context(), c)
		require.ErrorIs(t, err, ErrReflection)
		require.ErrorContains(t, err, want)
	}
}

// The older version of reflection is asked only where the newer one is not there.
func TestReadFallsBack(t *testing.T) {
	for code, asked := range map[codes.Code]int{codes.Unimplemented: 2, codes.Unavailable: 1} {
		c := &conn{stream: func(*reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
			return nil, status.Error(code, "no")
		}}
		_, err := Read(t.Context(), c)
		require.ErrorIs(t, err, ErrReflection)
		require.Len(t, c.names, asked)
	}
}

func TestUpdateStreamThatBreaks(t *testing.T) {
	d := usual().but("UpdateAnswer", "string id", "State state").descriptors(t, "Update")
	proposal, err := Propose(d, nil)
	require.NoError(t, err)
	plan, err := Resolve(d, &proposal.Binding)
	require.NoError(t, err)
	for end, complete := range map[error]bool{io.EOF: true, io.ErrUnexpectedEOF: false} {
		got, err := NewClient(&trickle{end: end}, plan).Update(t.Context())
		if complete {
			require.NoError(t, err)
			require.Equal(t, []Instance{{"a", Running}}, got)
		} else {
			require.ErrorIs(t, err, end, "half a list is no list")
			require.Nil(t, got)
		}
	}
}

// trickle answers one instance and then ends.
type trickle struct {
	grpc.ClientConnInterface
	end error
}

func (s *trickle) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return &instances{end: s.end}, nil
}

type instances struct {
	grpc.ClientStream
	end  error
	sent bool
}

func (*instances) SendMsg(any) error { return nil }
func (*instances) CloseSend() error  { return nil }

func (s *instances) RecvMsg(m any) error {
	if s.sent {
		return s.end
	}
	s.sent = true
	answer := m.(*dynamicpb.Message)
	answer.Set(field(answer, "id"), protoreflect.ValueOfString("a"))
	answer.Set(field(answer, "state"), protoreflect.ValueOfEnum(2))
	return nil
}
