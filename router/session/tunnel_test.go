package session_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
)

var somePort = &debugv1.Target{Target: &debugv1.Target_Port{Port: &debugv1.Port{Port: 80}}}

// openMachine is linux for a machine that takes tunnels.
func (p *plane) openMachine(id string) *runner {
	p.t.Helper()
	return p.connect(linuxToken, &runnerv1.Register{MachineId: id, Capacity: 1, Version: "1.0", Tunnels: true})
}

// runs has a machine run a job.
func (p *plane) runs(r *runner, id string) {
	p.t.Helper()
	p.mustPush(job(id))
	require.Equal(p.t, id, r.assigned().GetJob().GetId())
	r.accept(id, 1)
	p.waitFor(id, typesv1.JobState_JOB_STATE_RUNNING)
}

type opening struct {
	tunnel *session.Tunnel
	err    error
}

// ask asks for a tunnel to a job, beside the test.
func (p *plane) ask(ctx context.Context, id string) <-chan opening {
	answer := make(chan opening, 1)
	go func() {
		t, err := p.dispatcher.OpenTunnel(ctx, spillway.JobID(id), somePort)
		answer <- opening{t, err}
	}()
	return answer
}

func (p *plane) answer(answers <-chan opening) opening {
	p.t.Helper()
	select {
	case o := <-answers:
		return o
	case <-time.After(patience):
		require.Fail(p.t, "no answer")
		return opening{}
	}
}

// tunnel opens a machine's end of a tunnel.
func (p *plane) tunnel(token, id string) runnerv1.RunnerService_TunnelClient {
	p.t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token))
	p.t.Cleanup(cancel)
	rpc, err := runnerv1.NewRunnerServiceClient(p.dial()).Tunnel(ctx)
	require.NoError(p.t, err)
	_ = rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_TunnelId{TunnelId: id}})
	return rpc
}

func dataFrame(text string) *debugv1.Frame {
	return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: []byte(text)}}
}

func say(t *testing.T, rpc runnerv1.RunnerService_TunnelClient, f *debugv1.Frame) {
	t.Helper()
	require.NoError(t, rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: f}}))
}

// joined is a tunnel to a job of a machine, both ends.
func (p *plane) joined(r *runner, id string) (*session.Tunnel, runnerv1.RunnerService_TunnelClient) {
	p.t.Helper()
	answers := p.ask(context.Background(), id)
	rpc := p.tunnel(linuxToken, expect(r, (*runnerv1.RouterMessage).GetOpenTunnel).GetTunnelId())
	o := p.answer(answers)
	require.NoError(p.t, o.err)
	return o.tunnel, rpc
}

func TestTunnel(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.openMachine("m")
	p.runs(r, "1")
	answers := p.ask(context.Background(), "1")
	order := expect(r, (*runnerv1.RouterMessage).GetOpenTunnel)
	require.Equal(t, "1", order.GetJobId())
	require.Equal(t, int32(1), order.GetAttempt())
	require.Equal(t, int32(80), order.GetTarget().GetPort().GetPort())
	rpc := p.tunnel(linuxToken, order.GetTunnelId())
	tunnel := p.answer(answers).tunnel
	require.Equal(t, spillway.MachineID("m"), tunnel.Machine)

	say(t, rpc, dataFrame("down"))
	f, err := tunnel.Recv()
	require.NoError(t, err)
	require.Equal(t, "down", string(f.GetData()))
	require.NoError(t, tunnel.Send(dataFrame("up")))
	m, err := rpc.Recv()
	require.NoError(t, err)
	require.Equal(t, "up", string(m.GetFrame().GetData()))

	require.NoError(t, rpc.CloseSend())
	_, err = tunnel.Recv()
	require.ErrorIs(t, err, io.EOF)
	tunnel.Close(nil)
	tunnel.Close(io.ErrUnexpectedEOF) // the first counts
	_, err = rpc.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, tunnel.Cause())
	require.Equal(t, typesv1.JobState_JOB_STATE_RUNNING, p.record("1").GetState())
}

// Nobody but the machine that was told can answer: not one of another pool, not one that
// guesses, and nobody twice.
func TestATunnelIsItsMachinesOwn(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.openMachine("m")
	p.runs(r, "1")
	answers := p.ask(context.Background(), "1")
	id := expect(r, (*runnerv1.RouterMessage).GetOpenTunnel).GetTunnelId()
	for _, c := range []struct {
		name, token, id string
		code            codes.Code
	}{
		{"no pool's token", "wrong", id, codes.Unauthenticated},
		{"another pool's", macToken, id, codes.NotFound},
		{"another id", linuxToken, id + "x", codes.NotFound},
		{"no id", linuxToken, "", codes.NotFound},
	} {
		_, err := p.tunnel(c.token, c.id).Recv()
		require.Equal(t, c.code, status.Code(err), c.name)
	}
	p.tunnel(linuxToken, id)
	require.NoError(t, p.answer(answers).err)
	_, err := p.tunnel(linuxToken, id).Recv()
	require.Equal(t, codes.NotFound, status.Code(err), "it is for one use")
}

func TestNoTunnel(t *testing.T) {
	p := startPlane(t, planeConfig{})
	_, err := p.dispatcher.OpenTunnel(t.Context(), "unknown", somePort)
	require.ErrorIs(t, err, session.ErrElsewhere)

	shy := p.linux("shy", 1)
	p.runs(shy, "1")
	_, err = p.dispatcher.OpenTunnel(t.Context(), "1", somePort)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "--debug on")

	r := p.openMachine("m")
	p.mustPush(job("2"))
	r.assigned()
	_, err = p.dispatcher.OpenTunnel(t.Context(), "2", somePort)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "job 2 has not begun on its machine")
	r.accept("2", 1)
	p.waitFor("2", typesv1.JobState_JOB_STATE_RUNNING)

	// Whoever asked leaves: what the machine opens then is nobody's.
	ctx, cancel := context.WithCancel(t.Context())
	answers := p.ask(ctx, "2")
	id := expect(r, (*runnerv1.RouterMessage).GetOpenTunnel).GetTunnelId()
	cancel()
	require.Equal(t, codes.Canceled, status.Code(p.answer(answers).err))
	_, err = p.tunnel(linuxToken, id).Recv()
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestAFailureIsPassedOn(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.openMachine("m")
	p.runs(r, "1")
	for sent, want := range map[codes.Code]codes.Code{
		codes.FailedPrecondition: codes.FailedPrecondition, codes.Aborted: codes.Aborted,
		codes.OK: codes.Internal, codes.Unauthenticated: codes.Internal, codes.Code(9999): codes.Internal,
	} {
		tunnel, rpc := p.joined(r, "1")
		require.NoError(t, rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Failed{Failed: &runnerv1.TunnelFailed{Code: int32(sent), Detail: "why not"}}}))
		_, err := tunnel.Recv()
		require.Equal(t, want, status.Code(err))
		require.ErrorContains(t, err, "why not")
		tunnel.Close(err)
	}
	tunnel, rpc := p.joined(r, "1")
	require.NoError(t, rpc.Send(&runnerv1.TunnelFrame{}))
	_, err := tunnel.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// Tunnels end with the job, with the attempt, and with the connection.
func TestWhatEndsATunnel(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *plane, r *runner, rpc runnerv1.RunnerService_TunnelClient)
		code codes.Code
		says string
	}{
		"the job ends":   {func(_ *plane, r *runner, _ runnerv1.RunnerService_TunnelClient) { r.finish("1", 1) }, codes.Aborted, "the job has ended"},
		"it is canceled": {func(p *plane, _ *runner, _ runnerv1.RunnerService_TunnelClient) { p.cancelJob("1") }, codes.Aborted, "canceled"},
		"it is refused": {func(_ *plane, r *runner, _ runnerv1.RunnerService_TunnelClient) {
			r.refuse("1", 1, runnerv1.RefusalCode_REFUSAL_CODE_INVALID)
		}, codes.Aborted, "this attempt of the job is over"},
		"the plane stops": {func(p *plane, _ *runner, _ runnerv1.RunnerService_TunnelClient) { go p.stop() }, codes.Unavailable, ""}, // its connections may go first
	} {
		t.Run(name, func(t *testing.T) {
			p := startPlane(t, planeConfig{})
			r := p.openMachine("m")
			p.runs(r, "1")
			tunnel, rpc := p.joined(r, "1")
			waiting := p.ask(context.Background(), "1")
			expect(r, (*runnerv1.RouterMessage).GetOpenTunnel)
			c.end(p, r, rpc)
			_, err := tunnel.Recv()
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			<-tunnel.Over()
			require.Equal(t, c.code, status.Code(tunnel.Cause()))
			require.Error(t, p.answer(waiting).err, "one that the machine has not opened yet")
			_, err = rpc.Recv()
			require.Error(t, err)
		})
	}
}

func TestTheMachinesConnectionBreaks(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.openMachine("m")
	p.runs(r, "1")
	answers := p.ask(context.Background(), "1")
	id := expect(r, (*runnerv1.RouterMessage).GetOpenTunnel).GetTunnelId()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+linuxToken))
	rpc, err := runnerv1.NewRunnerServiceClient(p.dial()).Tunnel(ctx)
	require.NoError(t, err)
	require.NoError(t, rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_TunnelId{TunnelId: id}}))
	tunnel := p.answer(answers).tunnel
	cancel()
	_, err = tunnel.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "has lost its connection")
}

// A session that nobody reads holds up neither the machine's stream nor other sessions.
func TestADeafSessionHoldsNothingUp(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.openMachine("m")
	p.runs(r, "1")
	_, deaf := p.joinedOn(r, "1")
	stuck, sent := make(chan struct{}), 0
	go func() {
		defer close(stuck)
		piece := dataFrame(string(make([]byte, 32<<10)))
		for deaf.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: piece}}) == nil {
			sent++
		}
	}()
	for range 20 {
		tunnel, rpc := p.joinedOn(r, "1")
		say(t, rpc, dataFrame("hello"))
		f, err := tunnel.Recv()
		require.NoError(t, err)
		require.Equal(t, "hello", string(f.GetData()))
		tunnel.Close(nil)
	}
	r.finish("1", 1)
	r.acked()
	<-stuck
	require.Less(t, sent*(32<<10), 2<<20, "what nobody reads is held up, and not kept")
}

// joinedOn is joined, on the connection of the machine's own stream.
func (p *plane) joinedOn(r *runner, id string) (*session.Tunnel, runnerv1.RunnerService_TunnelClient) {
	p.t.Helper()
	answers := p.ask(context.Background(), id)
	order := expect(r, (*runnerv1.RouterMessage).GetOpenTunnel)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+linuxToken))
	p.t.Cleanup(cancel)
	rpc, err := runnerv1.NewRunnerServiceClient(r.conn).Tunnel(ctx)
	require.NoError(p.t, err)
	require.NoError(p.t, rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_TunnelId{TunnelId: order.GetTunnelId()}}))
	o := p.answer(answers)
	require.NoError(p.t, o.err)
	return o.tunnel, rpc
}

func (p *plane) cancelJob(id string) {
	p.t.Helper()
	_, err := p.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{JobIds: []string{id}})
	require.NoError(p.t, err)
}
