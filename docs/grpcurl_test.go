package docs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// grpcurl does what grpcurl does with the flags of the pages: it asks a server what
// services it has, and calls them. The test's own program is it, under that name.
func grpcurl(args []string) int {
	flags := flag.NewFlagSet("grpcurl", flag.ContinueOnError)
	plaintext := flags.Bool("plaintext", false, "")
	data := flags.String("d", "{}", "")
	if err := flags.Parse(args); err != nil || !*plaintext || flags.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "the stand-in of grpcurl knows -plaintext and -d")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := callByReflection(ctx, flags.Args(), *data); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func callByReflection(ctx context.Context, args []string, data string) error {
	conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	name := args[len(args)-1]
	service, method, calls := name, "", args[1] != "list"
	if calls {
		service, method, _ = strings.Cut(name, "/")
	}
	descriptor, err := serviceOf(ctx, conn, service)
	if err != nil {
		return err
	}
	if !calls {
		for i := range descriptor.Methods().Len() {
			fmt.Println(descriptor.Methods().Get(i).FullName())
		}
		return nil
	}
	m := descriptor.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return fmt.Errorf("%s has no method %s", service, method)
	}
	request, answer := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(data), request); err != nil {
		return err
	}
	if err := conn.Invoke(ctx, "/"+name, request, answer); err != nil {
		return err
	}
	fmt.Println(protojson.Format(answer))
	return nil
}

// serviceOf is what a server says of a service.
func serviceOf(ctx context.Context, conn *grpc.ClientConn, service string) (protoreflect.ServiceDescriptor, error) {
	stream, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	ask := &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}
	if err := stream.Send(&reflection.ServerReflectionRequest{MessageRequest: ask}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	files := answer.GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %v", service, answer.GetErrorResponse())
	}
	var text descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(files[0], &text); err != nil {
		return nil, err
	}
	file, err := protodesc.NewFile(&text, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	if d := file.Services().ByName(protoreflect.FullName(service).Name()); d != nil {
		return d, nil
	}
	return nil, errors.New("the server's answer has no " + service)
}
