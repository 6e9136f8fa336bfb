package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// exitCrash is the exit status of a crash that was asked for.
const exitCrash = 7

// orchard is the plugin.
type orchard struct {
	shape shape
	file  protoreflect.FileDescriptor
	// stderr is the real one, which a panic goes to. go-plugin carries what is written
	// to os.Stderr over the connection, where last words are lost.
	stderr *os.File
	mu     struct {
		sync.Mutex
		config *config // nil before Init
	}
}

func newOrchard(s shape) (*orchard, error) {
	file, err := s.register()
	return &orchard{shape: s, file: file, stderr: os.Stderr}, err
}

// register adds the services to a server.
func (o *orchard) register(s *grpc.Server) {
	for i := range o.file.Services().Len() {
		service := o.file.Services().Get(i)
		d := grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil), Metadata: o.file.Path()}
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if m.IsStreamingServer() {
				d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ServerStreams: true, Handler: o.streamed(m)})
			} else {
				d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: string(m.Name()), Handler: o.unary(m)})
			}
		}
		s.RegisterService(&d, o)
	}
}

func (o *orchard) unary(m protoreflect.MethodDescriptor) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := dynamicpb.NewMessage(m.Input())
		if err := decode(request); err != nil {
			return nil, err
		}
		answer := dynamicpb.NewMessage(m.Output())
		err := o.serve(ctx, string(m.Name()), request, func(fill func(*dynamicpb.Message)) error {
			fill(answer)
			return nil
		})
		return answer, err
	}
}

func (o *orchard) streamed(m protoreflect.MethodDescriptor) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		request := dynamicpb.NewMessage(m.Input())
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return o.serve(stream.Context(), string(m.Name()), request, func(fill func(*dynamicpb.Message)) error {
			answer := dynamicpb.NewMessage(m.Output())
			fill(answer)
			return stream.SendMsg(answer)
		})
	}
}

// send fills an answer and sends it.
type send func(fill func(*dynamicpb.Message)) error

// serve carries out one call, with its faults. Errors are what the Go interface's
// become: code Unknown and a text.
func (o *orchard) serve(ctx context.Context, method string, request *dynamicpb.Message, answer send) error {
	if o.shape["unimplemented"] && (method == "Heartbeat" || method == "Shutdown") {
		return status.Errorf(codes.Unimplemented, "method %s not implemented", method)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if method == "Init" {
		if err := o.init(request); err != nil {
			return err
		}
	}
	if o.mu.config == nil {
		return errors.New("call Init first")
	}
	in, err := o.mu.config.load()
	if err != nil {
		return err
	}
	fault := in.Faults
	switch method {
	case fault.HangIn:
		in.Hangs++
		if err := o.mu.config.save(in); err != nil {
			return err
		}
		o.mu.Unlock() // only this call hangs
		select {
		case <-ctx.Done():
		case <-time.After(hang):
		}
		o.mu.Lock()
		return ctx.Err()
	case fault.FailIn:
		return errors.New(fault.FailWith)
	case fault.CrashIn:
		in.Faults.CrashIn = ""
		if !fault.CrashLate {
			o.crash(method, in)
		}
	}
	err = o.act(method, in, request, answer)
	if method == fault.CrashIn {
		o.crash(method, in)
	}
	return errors.Join(err, o.mu.config.save(in))
}

func (o *orchard) crash(method string, in *cloud) {
	_ = o.mu.config.save(in)
	fmt.Fprintf(o.stderr, "a branch broke in %s\n", method)
	os.Exit(exitCrash)
}

func (o *orchard) init(request *dynamicpb.Message) error {
	raw, err := o.terms(request)
	if err != nil {
		return err
	}
	c := new(config)
	if err := json.Unmarshal(raw, c); err != nil {
		return fmt.Errorf("plugin_config: %w", err)
	}
	if c.Cloud == "" {
		return errors.New("plugin_config has no cloud")
	}
	o.mu.config = c
	return nil
}

// terms is plugin_config as JSON, from wherever the shape has it.
func (o *orchard) terms(request *dynamicpb.Message) ([]byte, error) {
	fields := request.Descriptor().Fields()
	switch {
	case o.shape["struct-config"]:
		terms := request.Get(fields.ByName("terms")).Message()
		return protojson.Marshal(terms.Get(terms.Descriptor().Fields().ByName("config")).Message().Interface())
	case o.shape["ambiguous"]:
		return request.Get(fields.ByName("config")).Bytes(), nil
	default:
		return request.Get(fields.ByName("terms")).Bytes(), nil
	}
}

func (o *orchard) act(method string, in *cloud, request *dynamicpb.Message, answer send) error {
	field := func(name string) protoreflect.Value {
		return request.Get(request.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	switch method {
	case "Init":
		in.Inits++
		return answer(func(m *dynamicpb.Message) {
			put(m, "label", protoreflect.ValueOfString("orchard"))
			put(m, "max_trees", protoreflect.ValueOfInt64(int64(o.mu.config.Max)))
		})
	case "Update":
		return o.look(in.look(), answer)
	case "Increase":
		n := in.plant(int(field("more").Int()))
		return answer(func(m *dynamicpb.Message) { put(m, "taken", protoreflect.ValueOfUint32(uint32(n))) }) //nolint:gosec // a few
	case "Decrease":
		return o.fell(in, field("trees").List(), answer)
	case "Heartbeat":
		if id := field("tree").String(); id == in.Faults.Sick {
			return fmt.Errorf("%s is sick", id)
		}
	}
	return answer(func(*dynamicpb.Message) {})
}

func put(m *dynamicpb.Message, name string, value protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), value)
}

func (o *orchard) fell(in *cloud, list protoreflect.List, answer send) error {
	var ids []string
	for i := range list.Len() {
		ids = append(ids, list.Get(i).String())
	}
	felled := in.fell(ids)
	return answer(func(m *dynamicpb.Message) {
		out := m.Mutable(m.Descriptor().Fields().ByName("felled")).List()
		for _, id := range felled {
			out.Append(protoreflect.ValueOfString(id))
		}
		if len(felled) < len(ids) {
			put(m, "error", protoreflect.ValueOfString(fmt.Sprintf("%d of %d trees stand", len(ids)-len(felled), len(ids))))
		}
	})
}

// look answers an Update, in the shape's way.
func (o *orchard) look(trees []tree, answer send) error {
	if o.shape["stream"] {
		for _, t := range trees {
			if err := answer(func(m *dynamicpb.Message) { o.fill(m, t) }); err != nil {
				return err
			}
		}
		return nil
	}
	return answer(func(m *dynamicpb.Message) {
		f := m.Descriptor().Fields().ByName("trees")
		for _, t := range trees {
			if f.IsMap() {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(t.ID).MapKey(), phase(t))
				continue
			}
			list := m.Mutable(f).List()
			o.fill(list.AppendMutable().Message().Interface().(*dynamicpb.Message), t) //nolint:forcetypeassert // dynamicpb makes no other
		}
	})
}

func (o *orchard) fill(m *dynamicpb.Message, t tree) {
	put(m, "id", protoreflect.ValueOfString(t.ID))
	if o.shape["string-state"] {
		put(m, "phase", protoreflect.ValueOfString(t.Phase))
	} else {
		put(m, "phase", phase(t))
	}
}

func phase(t tree) protoreflect.Value {
	for i, name := range phases {
		if strings.EqualFold(name, "PHASE_"+t.Phase) {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(i)) //nolint:gosec // six
		}
	}
	return protoreflect.ValueOfEnum(0)
}
