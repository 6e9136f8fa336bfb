package ingress

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	"github.com/spillway-ci/spillway/router"
)

const patience = 80 * time.Second

// fakeTunnel is a tunnel whose machine is the test. Like a real one it holds one frame in
// each direction.
type fakeTunnel struct {
	up, down chan *debugv1.Frame
	full     chan struct{} // closed: it takes no more
	over     chan struct{}
	once     sync.Once
	cause    error
	where    Where
}

func newFakeTunnel() *fakeTunnel {
	return &fakeTunnel{up: make(chan *debugv1.Frame), down: make(chan *debugv1.Frame), full: make(chan struct{}), over: make(chan struct{}), where: Where{"m", "linux", 2, "r1"}}
}

func (f *fakeTunnel) Send(m *debugv1.Frame) error {
	select {
	case f.up <- m:
		return nil
	case <-f.full:
		return io.EOF
	case <-f.over:
		return f.cause
	}
}

func (f *fakeTunnel) Recv() (*debugv1.Frame, error) {
	select {
	case m, open := <-f.down:
		if !open {
			return nil, io.EOF
		}
		return m, nil
	case <-f.over:
		return nil, f.cause
	}
}
func (f *fakeTunnel) Over() <-chan struct{} { return f.over }
func (f *fakeTunnel) Cause() error          { return f.cause }
func (f *fakeTunnel) Where() Where          { return f.where }
func (f *fakeTunnel) Close(err error) {
	f.once.Do(func() {
		f.cause = err
		close(f.over)
	})
}

// fakeCaller is a person who is the test.
type fakeCaller struct {
	ctx   context.Context
	says  chan *debugv1.Frame // closed: it has said all
	hears chan *debugv1.Frame
}

func newFakeCaller(ctx context.Context) *fakeCaller {
	return &fakeCaller{ctx: ctx, says: make(chan *debugv1.Frame), hears: make(chan *debugv1.Frame, 1)}
}

func (f *fakeCaller) Send(m *debugv1.Frame) error {
	select {
	case f.hears <- m:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

func (f *fakeCaller) Recv() (*debugv1.Frame, error) {
	select {
	case m, open := <-f.says:
		if !open {
			return nil, io.EOF
		}
		return m, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}

func data(n int) *debugv1.Frame {
	return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: make([]byte, n)}}
}

func exit(code int32) *debugv1.Frame {
	return &debugv1.Frame{Frame: &debugv1.Frame_Exit{Exit: &debugv1.Exit{Code: code}}}
}

func endFrame() *debugv1.Frame { return &debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}} }

// board is a store in memory that several replicas share.
type board struct {
	mu      sync.Mutex
	records map[spillway.JobID]*spillway.JobRecord
	replica string // of the machine
	boards  map[string][]byte
	facts   map[string]chan []byte
	err     error
}

func newBoard(records ...*spillway.JobRecord) *board {
	b := &board{records: map[spillway.JobID]*spillway.JobRecord{}, boards: map[string][]byte{}, facts: map[string]chan []byte{}}
	for _, r := range records {
		b.records[r.Job.ID] = r
	}
	return b
}

func recordOf(id string, state spillway.JobState) *spillway.JobRecord {
	r := &spillway.JobRecord{Job: spillway.Job{ID: spillway.JobID(id)}, State: state, Pool: "linux", Attempt: 2}
	if state == spillway.Running {
		r.Machine = "m"
	}
	return r
}

func (b *board) GetMany(_ context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error) {
	return []*spillway.JobRecord{b.records[ids[0]]}, b.err
}

func (b *board) Machine(_ context.Context, pool string, id spillway.MachineID) (router.Machine, bool, error) {
	return router.Machine{ID: id, Pool: pool, Replica: b.replica}, b.replica != "", b.err
}

func (b *board) PutBoard(_ context.Context, name string, _ uint64, text []byte, _ time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boards[name] = text
	return b.err
}

func (b *board) Board(_ context.Context, name string) ([]byte, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, found := b.boards[name]
	return text, found, b.err
}

func (b *board) topic(name string) chan []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.facts[name] == nil {
		b.facts[name] = make(chan []byte, 16)
	}
	return b.facts[name]
}

func (b *board) PublishFact(_ context.Context, topic string, text []byte) error {
	b.topic(topic) <- text
	return b.err
}

func (b *board) Facts(ctx context.Context, topic string) (<-chan []byte, error) {
	out, in := make(chan []byte), b.topic(topic)
	go func() {
		defer close(out)
		for {
			select {
			case text := <-in:
				select {
				case out <- text:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, b.err
}

// machines opens tunnels for the test.
type machines func(job spillway.JobID, target *debugv1.Target) (Tunnel, error)

func (m machines) Open(_ context.Context, job spillway.JobID, target *debugv1.Target) (Tunnel, error) {
	return m(job, target)
}

// kept is an audit that remembers.
type kept struct {
	mu      sync.Mutex
	entries []access.Entry
	who     []string
}

func (k *kept) Record(ctx context.Context, e access.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, _ := access.From(ctx)
	k.entries, k.who = append(k.entries, e), append(k.who, i.Name)
}

func (k *kept) all() []access.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]access.Entry(nil), k.entries...)
}

func ann(ctx context.Context) context.Context {
	return access.With(ctx, access.Identity{Name: "ann", Via: access.ViaToken, Roles: []access.Role{access.Debug}})
}

func newService(t *testing.T, b *board, m machines, limits Limits) (*Service, *kept) {
	t.Helper()
	audit := &kept{}
	s, err := New(Options{Replica: "r1", Machines: m, Store: b, Limits: limits, Audit: audit, Advertise: func() string { return "" }})
	require.NoError(t, err)
	return s, audit
}

// here opens tunnels whose target is there at once, and hands their other end to the test.
func here(opened chan<- *fakeTunnel) machines {
	return func(spillway.JobID, *debugv1.Target) (Tunnel, error) {
		f := newFakeTunnel()
		go func() { f.down <- &debugv1.Frame{Frame: &debugv1.Frame_Opened{Opened: &debugv1.Opened{}}} }()
		opened <- f
		return f, nil
	}
}

func execRequest(job string) request {
	return request{kind: "exec", object: "exec", job: spillway.JobID(job), target: &debugv1.Target{Target: &debugv1.Target_Exec{Exec: &debugv1.Exec{Command: []string{"true"}}}}}
}
