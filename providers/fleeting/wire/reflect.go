package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Limits of what a plugin says of itself.
const (
	MaxServices        = 64
	MaxFiles           = 256
	MaxDescriptorBytes = 8 << 20 // of all files
)

// ErrReflection is a plugin that doesn't describe itself. The text says why.
var ErrReflection = errors.New("the plugin doesn't describe itself")

// foreign are services that go-plugin and grpc add to every plugin.
var foreign = []protoreflect.FullName{
	"plugin.GRPCBroker", "plugin.GRPCController", "plugin.GRPCStdio", "grpc.health.v1.Health",
	"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
}

// The two versions of the reflection service. Their messages are the same on the
// wire, so that the types of the first serve both.
var reflectionMethods = []string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// Descriptors are the services of a plugin's own.
type Descriptors struct {
	Services []protoreflect.ServiceDescriptor
}

// Read asks a plugin for its descriptors, by reflection v1, else v1alpha.
func Read(ctx context.Context, conn grpc.ClientConnInterface) (*Descriptors, error) {
	var err error
	for _, name := range reflectionMethods {
		var d *Descriptors
		if d, err = read(ctx, conn, name); err == nil {
			return d, nil
		}
		if status.Code(err) != codes.Unimplemented {
			break
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrReflection, err)
}

func read(ctx context.Context, conn grpc.ClientConnInterface, name string) (*Descriptors, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return nil, err
	}
	r := &reflection{stream: stream, files: map[string]*descriptorpb.FileDescriptorProto{}}
	names, err := r.services()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := r.fetch(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: string(name)},
		}); err != nil {
			return nil, fmt.Errorf("service %s: %w", name, err)
		}
	}
	if err := r.fetchImports(); err != nil {
		return nil, err
	}
	return r.link(names)
}

// reflection is one conversation with the reflection service.
type reflection struct {
	stream grpc.ClientStream
	files  map[string]*descriptorpb.FileDescriptorProto
	bytes  int
}

func (r *reflection) ask(request *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
	answer := new(reflectionv1.ServerReflectionResponse)
	// The error of a send is only io.EOF; the one of the receive says why.
	sent := r.stream.SendMsg(request)
	if err := r.stream.RecvMsg(answer); err != nil {
		return nil, err
	}
	if failed := answer.GetErrorResponse(); failed != nil {
		return nil, fmt.Errorf("it answers %s: %.200q", codes.Code(uint32(failed.GetErrorCode())), failed.GetErrorMessage()) //nolint:gosec // a code is a small number, and any other is only shown
	}
	return answer, sent
}

// services are the names of the plugin's own.
func (r *reflection) services() ([]protoreflect.FullName, error) {
	answer, err := r.ask(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		return nil, err
	}
	var names []protoreflect.FullName
	for _, s := range answer.GetListServicesResponse().GetService() {
		name := protoreflect.FullName(s.GetName())
		if !slices.Contains(foreign, name) {
			names = append(names, name)
		}
	}
	if len(names) > MaxServices {
		return nil, fmt.Errorf("it has %d services, the limit is %d", len(names), MaxServices)
	}
	slices.Sort(names)
	return names, nil
}

// fetch asks for files and keeps them.
func (r *reflection) fetch(request *reflectionv1.ServerReflectionRequest) error {
	answer, err := r.ask(request)
	if err != nil {
		return err
	}
	for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		if r.bytes += len(raw); r.bytes > MaxDescriptorBytes {
			return fmt.Errorf("its descriptors have more than %d bytes", MaxDescriptorBytes)
		}
		file := new(descriptorpb.FileDescriptorProto)
		if err := proto.Unmarshal(raw, file); err != nil {
			return fmt.Errorf("a file descriptor can't be read: %w", err)
		}
		r.files[file.GetName()] = file
		if len(r.files) > MaxFiles {
			return fmt.Errorf("it has more than %d files of descriptors", MaxFiles)
		}
	}
	return nil
}

// fetchImports asks for what the files import, where it did not come with them.
func (r *reflection) fetchImports() error {
	for {
		name, missing := r.missing()
		if !missing {
			return nil
		}
		if err := r.fetch(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name},
		}); err != nil {
			return fmt.Errorf("file %.200q: %w", name, err)
		}
		if r.files[name] == nil {
			return fmt.Errorf("it has no file %.200q, which another one imports", name)
		}
	}
}

func (r *reflection) missing() (name string, missing bool) {
	for _, file := range r.files {
		for _, name := range file.GetDependency() {
			if r.files[name] == nil {
				return name, true
			}
		}
	}
	return "", false
}

// link makes descriptors of the files.
func (r *reflection) link(names []protoreflect.FullName) (*Descriptors, error) {
	set := new(descriptorpb.FileDescriptorSet)
	for _, file := range r.files {
		set.File = append(set.File, file)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("its descriptors don't fit together: %w", err)
	}
	d := new(Descriptors)
	for _, name := range names {
		found, err := files.FindDescriptorByName(name)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", name, err)
		}
		service, ok := found.(protoreflect.ServiceDescriptor)
		if !ok {
			return nil, fmt.Errorf("%s is no service", name)
		}
		d.Services = append(d.Services, service)
	}
	return d, nil
}
