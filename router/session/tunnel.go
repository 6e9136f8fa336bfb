package session

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

const (
	// tunnelWithin is how long a machine may take to open a tunnel that it was asked for.
	// Its target is reached within 5 s or not at all.
	tunnelWithin = 10 * time.Second
	// maxTunnels bounds the tunnels of one replica [tunnels]. Who may open how many is
	// decided before.
	maxTunnels = 4096
)

// ErrElsewhere says that no machine of this replica has the job.
var ErrElsewhere = errors.New("no machine of this replica has the job")

var (
	errJobEnded     = status.Error(codes.Aborted, "the job has ended")
	errAttemptOver  = status.Error(codes.Aborted, "this attempt of the job is over: it was taken from its machine")
	errMachineLeft  = status.Error(codes.Unavailable, "the machine of the job has lost its connection; try again when it is back")
	errTunnelAbsent = status.Error(codes.NotFound, "nobody waits for this tunnel")
)

// endedEarly is the end of the tunnels of an attempt that was taken from its machine.
func endedEarly(reason string) error {
	return status.Errorf(codes.Aborted, "the job has ended, or this attempt of it: %s", reason)
}

// Tunnel is a session with a job, from the router's end. It is bound to the attempt, to
// the stream of the machine that was told of it, and to that machine's pool. Send and
// Recv may be called from one goroutine each.
type Tunnel struct {
	Machine spillway.MachineID
	Pool    string
	Attempt int

	id     string
	job    spillway.JobID
	owner  *tunnels
	joined chan struct{} // closed when the machine has opened its end
	over   chan struct{} // closed when the tunnel is over

	stream runnerv1.RunnerService_TunnelServer // set before joined is closed
	cause  error                               // set before over is closed; nil: in order
}

// Send says f to the machine. It waits while the machine does not read.
func (t *Tunnel) Send(f *debugv1.Frame) error {
	err := t.stream.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: f}})
	return t.ended(err)
}

// Recv waits for what the machine says next. io.EOF: it has said all.
func (t *Tunnel) Recv() (*debugv1.Frame, error) {
	m, err := t.stream.Recv()
	if err != nil {
		return nil, t.ended(err)
	}
	switch m := m.GetContent().(type) {
	case *runnerv1.TunnelFrame_Frame:
		return m.Frame, nil
	case *runnerv1.TunnelFrame_Failed:
		return nil, failedOn(m.Failed)
	default:
		return nil, badMessage("a tunnel has frames after its id")
	}
}

// failedOn is what a machine says of its failure. A code that a caller would take for
// something else than this session's end is not passed on.
func failedOn(f *runnerv1.TunnelFailed) error {
	const maxDetailBytes = 1024
	code := codes.Code(uint32(f.GetCode()))
	switch code {
	case codes.FailedPrecondition, codes.ResourceExhausted, codes.InvalidArgument, codes.Aborted, codes.Unavailable:
	default:
		code = codes.Internal
	}
	return status.Error(code, f.GetDetail()[:min(len(f.GetDetail()), maxDetailBytes)])
}

// ended puts why the tunnel is over before what that did to a Send or Recv.
func (t *Tunnel) ended(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-t.over:
		if t.cause != nil {
			return t.cause
		}
	default:
	}
	return errMachineLeft
}

// Over is closed when the tunnel has ended, by whichever side; Cause is why.
func (t *Tunnel) Over() <-chan struct{} { return t.over }

// Cause is why a tunnel that is over has ended; nil: it was closed in order.
func (t *Tunnel) Cause() error { return t.cause }

// Close ends the tunnel; the machine ends what it was for. err is why, for the machine.
// Only the first call counts.
func (t *Tunnel) Close(err error) { t.owner.end(t, err) }

// tunnels are those of one replica. The dispatcher begins them and ends those of a job
// that has left its machine; machines join them.
type tunnels struct {
	mu      sync.Mutex
	waiting map[string]*Tunnel // by id: the machine has not joined
	byJob   map[spillway.JobID]map[*Tunnel]struct{}
	count   int
}

// begin makes a tunnel that waits for its machine.
func (ts *tunnels) begin(ref router.JobRef, s *stream) (*Tunnel, error) {
	t := &Tunnel{
		Machine: s.machine, Pool: s.pool.Name, Attempt: ref.Attempt,
		id: rand.Text(), job: ref.ID, owner: ts, joined: make(chan struct{}), over: make(chan struct{}),
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.count >= maxTunnels {
		return nil, status.Errorf(codes.ResourceExhausted, "%d tunnels are open at this replica", ts.count)
	}
	if ts.byJob == nil {
		ts.waiting, ts.byJob = map[string]*Tunnel{}, map[spillway.JobID]map[*Tunnel]struct{}{}
	}
	if ts.byJob[t.job] == nil {
		ts.byJob[t.job] = map[*Tunnel]struct{}{}
	}
	ts.waiting[t.id], ts.byJob[t.job][t] = t, struct{}{}
	ts.count++
	return t, nil
}

// join gives the waiting tunnel of that id to a machine of a pool, once.
func (ts *tunnels) join(id, pool string, rpc runnerv1.RunnerService_TunnelServer) (*Tunnel, bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.waiting[id]
	if t == nil || t.Pool != pool {
		return nil, false
	}
	delete(ts.waiting, id)
	t.stream = rpc
	close(t.joined)
	return t, true
}

func (ts *tunnels) end(t *Tunnel, cause error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.endLocked(t, cause)
}

func (ts *tunnels) endLocked(t *Tunnel, cause error) {
	if _, open := ts.byJob[t.job][t]; !open {
		return
	}
	t.cause = cause
	close(t.over)
	delete(ts.waiting, t.id)
	delete(ts.byJob[t.job], t)
	if len(ts.byJob[t.job]) == 0 {
		delete(ts.byJob, t.job)
	}
	ts.count--
}

// endJob ends the tunnels of a job that is no longer with its machine.
func (ts *tunnels) endJob(id spillway.JobID, cause error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for t := range ts.byJob[id] {
		ts.endLocked(t, cause)
	}
}

func (ts *tunnels) endAll(cause error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, of := range ts.byJob {
		for t := range of {
			ts.endLocked(t, cause)
		}
	}
}

// OpenTunnel has the machine of a running job open a tunnel, and waits for it.
// ErrElsewhere: the job is not with a machine that is connected to this replica. Other
// errors are statuses for the one who asked.
func (d *Dispatcher) OpenTunnel(ctx context.Context, job spillway.JobID, target *debugv1.Target) (*Tunnel, error) {
	type answer struct {
		tunnel *Tunnel
		err    error
	}
	answers := make(chan answer, 1)
	if !d.put(ctx, event{kind: called, call: func(time.Time) {
		t, err := d.beginTunnel(job, target)
		answers <- answer{t, err}
	}}) {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return nil, errGoingAway
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, a.err
		}
		return a.tunnel, a.tunnel.await(ctx)
	case <-d.done:
		return nil, errGoingAway
	}
}

// await waits for the machine to join; otherwise the tunnel is over.
func (t *Tunnel) await(ctx context.Context) error {
	late := time.NewTimer(tunnelWithin)
	defer late.Stop()
	var err error
	select {
	case <-t.joined:
		return nil
	case <-t.over:
		return t.cause
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-late.C:
		err = status.Errorf(codes.Unavailable, "machine %s did not open the tunnel within %s; try again", t.Machine, tunnelWithin)
	}
	t.Close(err)
	return err
}

// beginTunnel tells the machine of a job that runs here.
func (d *Dispatcher) beginTunnel(job spillway.JobID, target *debugv1.Target) (*Tunnel, error) {
	ref, on, held := d.engine.Holder(job)
	s := d.streams[on]
	switch {
	case !held || s == nil || !s.registered:
		return nil, ErrElsewhere
	case d.jobs[job] == nil || !d.jobs[job].started:
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has not begun on its machine; try again in a moment", job)
	case !s.tunnels:
		return nil, status.Errorf(codes.FailedPrecondition, "machine %s does not allow it: its agent has to be started with --debug on", on)
	}
	t, err := d.tunnels.begin(ref, s)
	if err != nil {
		return nil, err
	}
	s.send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_OpenTunnel{OpenTunnel: &runnerv1.OpenTunnel{
		TunnelId: t.id, JobId: string(job), Attempt: int32(ref.Attempt), Target: target,
	}}})
	return t, nil
}

// Tunnel is a machine's end of a tunnel: it stays open for as long as that does.
func (r *Runners) Tunnel(rpc runnerv1.RunnerService_TunnelServer) error {
	stopper, err := newStopper(rpc.Context())
	if err != nil {
		return err
	}
	token, ok := bearer(rpc.Context())
	if !ok {
		return status.Error(codes.Unauthenticated, "no valid bearer token")
	}
	pool, known := r.auth.Pool(rpc.Context(), token)
	if !known {
		return status.Error(codes.Unauthenticated, "no valid bearer token")
	}
	d := r.dispatcher
	late := time.AfterFunc(d.opt.RegisterTimeout, func() {
		stopper.stop(status.Errorf(codes.InvalidArgument, "no tunnel id within %s", d.opt.RegisterTimeout))
	})
	first, err := rpc.Recv()
	late.Stop()
	if err != nil {
		return stopper.ended(err)
	}
	t, ok := d.tunnels.join(first.GetTunnelId(), pool.Name, rpc)
	if !ok {
		return errTunnelAbsent
	}
	select {
	case <-t.over:
	case <-rpc.Context().Done():
		t.Close(errMachineLeft)
	}
	return t.cause
}
