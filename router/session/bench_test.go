package session_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// BenchmarkDispatch hands jobs that wait in Redis to machines, each with its own
// connection, and counts them from the first assignment to the last result that is
// stored and acknowledged. Its limit, in the same run and with the rounds
// interleaved, is the same conversation without queue, matching and store: a
// server that sends a job and takes the result.
//
//	go test ./router/session -run '^$' -bench Dispatch -benchtime 1x
func BenchmarkDispatch(b *testing.B) {
	for _, streams := range []int{100, 1000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			const jobs, rounds = 20_000, 5
			dispatch, plain := newDispatchBench(b, streams), newPlainBench(b, streams)
			for b.Loop() {
				var ratios, rates, cpu []float64
				for round := range rounds {
					limit, own := plain.round(jobs), dispatch.round(b, round, jobs)
					ratios = append(ratios, limit.clock/own.clock)
					rates = append(rates, 1/own.clock)
					cpu = append(cpu, limit.cpu/own.cpu)
				}
				slices.Sort(ratios)
				slices.Sort(rates)
				slices.Sort(cpu)
				b.ReportMetric(rates[rounds/2], "jobs/s")
				b.ReportMetric(ratios[rounds/2], "ratio")
				b.ReportMetric(ratios[0], "ratio-min")
				b.ReportMetric(ratios[rounds-1], "ratio-max")
				b.ReportMetric(cpu[rounds/2], "cpu-ratio")
			}
		})
	}
}

// spent is what a round took for each job: time on the clock, and CPU time of this
// process, which a busy machine disturbs less [s].
type spent struct{ clock, cpu float64 }

// measure runs f, which does so many jobs.
func measure(jobs int, f func()) spent {
	before, began := cpuTime(), time.Now()
	f()
	return spent{time.Since(began).Seconds() / float64(jobs), (cpuTime() - before).Seconds() / float64(jobs)}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var benchScript = strings.Repeat("x", 256)

// countdown is closed when so many jobs are done.
type countdown struct {
	left atomic.Int64
	done chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) one() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

// gate hides the queue until it is opened, so that jobs can be put there untimed.
type gate struct {
	*store.Store

	open atomic.Bool
}

func (g *gate) Counts(ctx context.Context) ([]router.ClassCount, error) {
	if !g.open.Load() {
		return nil, nil
	}
	return g.Store.Counts(ctx)
}

type dispatchBench struct {
	plane   *plane
	gate    *gate
	current atomic.Pointer[countdown]
}

func newDispatchBench(b *testing.B, streams int) *dispatchBench {
	s, err := store.Open(context.Background(), store.Options{Addrs: []string{storetest.StartRedis(b)}})
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	d := &dispatchBench{gate: &gate{Store: s}}
	d.plane = startPlane(b, planeConfig{
		store: s, quiet: true,
		wrap:    func(*store.Store) fullStore { return d.gate },
		options: session.Options{Pools: []spillway.Pool{linuxPool(1), macPool()}},
	})
	var registered sync.WaitGroup
	for i := range streams {
		registered.Add(1)
		d.runner(b, fmt.Sprintf("m%d", i), registered.Done)
	}
	registered.Wait()
	return d
}

// runner does every job at once.
func (d *dispatchBench) runner(b *testing.B, id string, registered func()) {
	rpc := openStream(b, d.plane.addr, id)
	go func() {
		for {
			m, err := rpc.Recv()
			switch {
			case err != nil:
				return
			case m.GetRegistered() != nil:
				registered()
			case m.GetAssign() != nil:
				for range m.GetAssign().GetAcks() {
					d.current.Load().one()
				}
				_ = rpc.Send(doneWith(m.GetAssign()))
			case m.GetStatusAck() != nil:
				d.current.Load().one()
			}
		}
	}()
}

func (d *dispatchBench) round(b *testing.B, round, jobs int) spent {
	d.gate.open.Store(false)
	c := newCountdown(jobs)
	d.current.Store(c)
	batch := make([]spillway.Job, 0, 1000)
	for i := range jobs {
		batch = append(batch, spillway.Job{
			ID: spillway.JobID(fmt.Sprint(round*jobs + i + 1)), Script: benchScript,
			Requirement: spillway.Requirement{Tags: []string{"linux"}},
		})
		if len(batch) == cap(batch) || i == jobs-1 {
			_, err := d.gate.Push(context.Background(), batch)
			require.NoError(b, err)
			batch = batch[:0]
		}
	}
	d.gate.open.Store(true)
	return measure(jobs, func() {
		d.plane.dispatcher.Poke()
		<-c.done
	})
}

// plainBench is the limit: the same messages, and nothing behind them.
type plainBench struct {
	runnerv1.UnimplementedRunnerServiceServer

	jobs    chan int
	current atomic.Pointer[countdown]
	ready   sync.WaitGroup
}

func newPlainBench(b *testing.B, streams int) *plainBench {
	p := &plainBench{jobs: make(chan int)}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := grpc.NewServer(session.ServerOptions()...)
	runnerv1.RegisterRunnerServiceServer(server, p)
	go func() { _ = server.Serve(lis) }()
	b.Cleanup(server.Stop)
	p.ready.Add(streams)
	for i := range streams {
		rpc := openStream(b, lis.Addr().String(), fmt.Sprintf("m%d", i))
		go func() {
			for {
				m, err := rpc.Recv()
				if err != nil {
					return
				}
				_ = rpc.Send(doneWith(m.GetAssign()))
			}
		}()
	}
	p.ready.Wait()
	return p
}

// Connect sends a job, takes its result, and so on.
func (p *plainBench) Connect(rpc runnerv1.RunnerService_ConnectServer) error {
	if _, err := rpc.Recv(); err != nil {
		return err
	}
	p.ready.Done()
	for {
		select {
		case i := <-p.jobs:
			err := rpc.Send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{
				Attempt: 1, Job: &typesv1.Job{Id: fmt.Sprint(i), Script: benchScript, Requirement: &typesv1.Requirement{Tags: []string{"linux"}}},
			}}})
			if err != nil {
				return err
			}
			if _, err := rpc.Recv(); err != nil {
				return err
			}
			p.current.Load().one()
		case <-rpc.Context().Done():
			return rpc.Context().Err()
		}
	}
}

func (p *plainBench) round(jobs int) spent {
	c := newCountdown(jobs)
	p.current.Store(c)
	return measure(jobs, func() {
		for i := range jobs {
			p.jobs <- i
		}
		<-c.done
	})
}

func doneWith(a *runnerv1.Assign) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: a.GetJob().GetId(), Attempt: a.GetAttempt(), Result: &typesv1.JobResult{State: completed},
	}}}
}

func openStream(b *testing.B, addr, id string) runnerv1.RunnerService_ConnectClient {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Else gRPC measures the path with a ping for nearly each small message.
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+linuxToken)
	rpc, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	require.NoError(b, err)
	require.NoError(b, rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: id, Capacity: 1, AcksInAssign: true}}}))
	return rpc
}
