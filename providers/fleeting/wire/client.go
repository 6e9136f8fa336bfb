package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// MaxInstances bounds what one Update may list [instances].
const MaxInstances = 10_000

// MaxIDBytes bounds an instance's id [bytes].
const MaxIDBytes = 255

// ErrAnswer is an answer that makes no sense. The text says why.
var ErrAnswer = errors.New("the answer makes no sense")

// SaidError is an error that the plugin put into an answer.
type SaidError struct{ Text string }

func (e *SaidError) Error() string { return e.Text }

// Instance is one line of an Update.
type Instance struct {
	ID    string
	State State
}

// Client makes the calls of a plan. It may be used concurrently.
type Client struct {
	conn grpc.ClientConnInterface
	plan *Plan
}

// NewClient makes a client. conn's messages are bounded by whoever made it.
func NewClient(conn grpc.ClientConnInterface, plan *Plan) *Client { return &Client{conn, plan} }

// Has reports whether the plugin has a method. It may still be unimplemented.
func (c *Client) Has(method string) bool { return c.plan.Has(method) }

// Init hands over plugin_config, a JSON object, and returns the largest size of the
// group; 0 = the plugin doesn't say.
func (c *Client) Init(ctx context.Context, config []byte) (maxSize int, err error) {
	request, err := c.initRequest(config)
	if err != nil {
		return 0, err
	}
	answer, err := c.unary(ctx, Init, request)
	if err != nil {
		return 0, err
	}
	if err := c.said(answer, InitError); err != nil {
		return 0, err
	}
	if c.plan.fields[InitMaxSize] == nil {
		return 0, nil
	}
	return c.integer(answer, InitMaxSize)
}

func (c *Client) initRequest(config []byte) (*dynamicpb.Message, error) {
	request, path := c.request(Init), c.plan.fields[InitConfig]
	switch kindOf(path.last()) { // Resolve allows no other
	case octets:
		set(request, path, protoreflect.ValueOfBytes(config))
	case text:
		set(request, path, protoreflect.ValueOfString(string(config)))
	default:
		var object map[string]any
		if err := json.Unmarshal(config, &object); err != nil {
			return nil, err
		}
		fields, err := structpb.NewStruct(object)
		if err != nil {
			return nil, err
		}
		// The plugin's own type has the same fields, and is another one.
		raw, err := proto.Marshal(fields)
		if err != nil {
			return nil, err
		}
		if err := proto.Unmarshal(raw, within(request, path[:len(path)-1]).Mutable(path.last()).Message().Interface()); err != nil {
			return nil, err
		}
	}
	return request, nil
}

// Update lists all instances. A list that might be incomplete is an error.
func (c *Client) Update(ctx context.Context) ([]Instance, error) {
	l := &listing{client: c, states: map[string]State{}}
	m := c.plan.methods[Update]
	if !m.IsStreamingServer() {
		answer, err := c.unary(ctx, Update, c.request(Update))
		if err == nil {
			err = l.add(answer)
		}
		return l.list, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, fullMethod(m))
	if err == nil {
		err = stream.SendMsg(c.request(Update))
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = stream.CloseSend()
	}
	for err == nil {
		answer := dynamicpb.NewMessage(m.Output())
		if err = stream.RecvMsg(answer); err == nil {
			err = l.add(answer)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return l.list, nil
}

// Increase asks for n instances more and returns how many of them it will make.
func (c *Client) Increase(ctx context.Context, n int) (accepted int, err error) {
	request := c.request(Increase)
	path := c.plan.fields[IncreaseCount]
	set(request, path, integerValue(path.last(), n))
	answer, err := c.unary(ctx, Increase, request)
	if err != nil {
		return 0, err
	}
	accepted, err = c.integer(answer, IncreaseTook)
	if err == nil && (accepted < 0 || accepted > n) {
		err = fmt.Errorf("%w: Increase(%d) accepted %d: is Increase.accepted bound to the wrong field?", ErrAnswer, n, accepted)
	}
	if err != nil {
		return 0, err
	}
	return accepted, c.said(answer, IncreaseError)
}

// Decrease ends instances and returns which of them it will end. They can come
// together with an error.
func (c *Client) Decrease(ctx context.Context, ids []string) (accepted []string, err error) {
	request, path := c.request(Decrease), c.plan.fields[DecreaseIDs]
	list := within(request, path[:len(path)-1]).Mutable(path.last()).List()
	for _, id := range ids {
		list.Append(protoreflect.ValueOfString(id))
	}
	answer, err := c.unary(ctx, Decrease, request)
	if err != nil {
		return nil, err
	}
	if took, ok := get(answer, c.plan.fields[DecreaseTook]); ok {
		for i := range min(took.List().Len(), len(ids)) {
			accepted = append(accepted, took.List().Get(i).String())
		}
	}
	return accepted, c.said(answer, DecreaseError)
}

// Heartbeat asks whether an instance is well.
func (c *Client) Heartbeat(ctx context.Context, id string) error {
	request := c.request(Heartbeat)
	set(request, c.plan.fields[HeartbeatID], protoreflect.ValueOfString(id))
	answer, err := c.unary(ctx, Heartbeat, request)
	if err != nil {
		return err
	}
	return c.said(answer, HeartbeatError)
}

// Shutdown tells the plugin that it will not be called again.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.unary(ctx, Shutdown, c.request(Shutdown))
	return err
}

func (c *Client) request(method string) *dynamicpb.Message {
	return dynamicpb.NewMessage(c.plan.methods[method].Input())
}

func (c *Client) unary(ctx context.Context, method string, request *dynamicpb.Message) (*dynamicpb.Message, error) {
	m := c.plan.methods[method]
	answer := dynamicpb.NewMessage(m.Output())
	if err := c.conn.Invoke(ctx, fullMethod(m), request, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func fullMethod(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// said is the error within an answer.
func (c *Client) said(answer *dynamicpb.Message, role string) error {
	path := c.plan.fields[role]
	if path == nil {
		return nil
	}
	if value, ok := get(answer, path); ok && value.String() != "" {
		return &SaidError{value.String()}
	}
	return nil
}

func (c *Client) integer(answer *dynamicpb.Message, role string) (int, error) {
	value, ok := get(answer, c.plan.fields[role])
	if !ok {
		return 0, nil
	}
	n, ok := toInt(value)
	if !ok {
		return 0, fmt.Errorf("%w: %s is beyond all numbers", ErrAnswer, role)
	}
	return n, nil
}
