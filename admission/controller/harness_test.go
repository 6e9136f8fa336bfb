package controller

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

// deadline is that of the tests' reviews.
const deadline = 30 * time.Second

// plane is a control plane that does with each stream what a test says.
type plane struct {
	admissionv1.UnimplementedAdmissionServiceServer

	handle func(*conversation) error
	lis    *bufconn.Listener

	mu struct {
		sync.Mutex
		down   bool
		dialed []time.Time
		hellos []*admissionv1.Hello
	}
}

// conversation is one stream, after its Hello.
type conversation struct {
	admissionv1.AdmissionService_ConnectServer

	number int // 1 is the first
}

func (p *plane) Connect(rpc admissionv1.AdmissionService_ConnectServer) error {
	m, err := rpc.Recv()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.mu.hellos = append(p.mu.hellos, m.GetHello())
	c := &conversation{rpc, len(p.mu.hellos)}
	p.mu.Unlock()
	return p.handle(c)
}

func (p *plane) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.down = down
}

func (p *plane) hellos() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.hellos)
}

func (p *plane) dial(ctx context.Context, _ string) (net.Conn, error) {
	p.mu.Lock()
	p.mu.dialed = append(p.mu.dialed, time.Now())
	down := p.mu.down
	p.mu.Unlock()
	if down {
		return nil, net.ErrClosed
	}
	return p.lis.DialContext(ctx)
}

func (c *conversation) welcome() {
	_ = c.Send(&admissionv1.RouterMessage{Message: &admissionv1.RouterMessage_Welcome{Welcome: &admissionv1.Welcome{
		Controller: "a", Deadline: durationpb.New(deadline),
	}}})
}

func (c *conversation) review(batch uint64, ids ...string) {
	r := &admissionv1.Review{BatchId: batch}
	for _, id := range ids {
		r.Jobs = append(r.Jobs, &admissionv1.ReviewedJob{JobId: id})
	}
	_ = c.Send(&admissionv1.RouterMessage{Message: &admissionv1.RouterMessage_Review{Review: r}})
}

// verdicts are the next that the controller says.
func (c *conversation) verdicts() (*admissionv1.Verdicts, error) {
	m, err := c.Recv()
	return m.GetVerdicts(), err
}

// wait keeps the stream until the controller leaves.
func (c *conversation) wait() error {
	<-c.Context().Done()
	return c.Context().Err()
}

// told is what a controller was told of a connection.
type told struct {
	at  time.Time
	err error
}

// connect runs a controller against p until the test ends, and returns what it was told.
// It is called in a bubble, where every channel is to be made that the test waits for.
func connect(t *testing.T, p *plane, o Options, judge Judge) (said func() []told) {
	t.Helper()
	p.lis = bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	admissionv1.RegisterAdmissionServiceServer(server, p)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(p.lis) })

	var mu sync.Mutex
	var all []told
	o.Told = func(_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, told{time.Now(), err})
	}
	options, err := o.dialOptions()
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///plane", append(options, grpc.WithContextDialer(p.dial))...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { o.stay(ctx, conn, "plane", judge) })
	t.Cleanup(func() {
		cancel()
		require.NoError(t, conn.Close())
		server.Stop()
		running.Wait()
	})
	return func() []told {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func allowAll(context.Context, *admissionv1.ReviewedJob) (bool, string) { return true, "" }
