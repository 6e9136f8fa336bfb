package suite

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/scaler"
)

// callBuffer bounds the provider calls that nobody has looked at yet.
const callBuffer = 1_000

// plane is a whole control plane with one pool: real store, real plugin, real
// listeners, and a client that pushes.
type plane struct {
	redis  *redisd.Server
	cancel context.CancelFunc
	ended  chan error
	conn   *grpc.ClientConn
	pushes jobsv1.JobService_PushClient
	called chan scaler.CallInfo

	pushed, calls, launched int
}

func planeConfig(redis, plugin string) (*config.Config, error) {
	cfg, err := config.Parse("bench", fmt.Appendf(nil, `
store: {redis: {addrs: [%q]}}
providers:
  fake: {plugin: %q, config: %s}
pools:
  - name: bench
    capability: {tags: [linux]}
    provider: fake
    group: %s
    policy: {max: %d, register_timeout: 24h}
`, redis, plugin, fakeConfig(), fakeGroup, fakeMax))
	if err != nil {
		return nil, err
	}
	cfg.Listen.Runners, cfg.Listen.API, cfg.Listen.Metrics = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return cfg, nil
}

func startPlane(ctx context.Context, plugin string) (_ *plane, err error) {
	p := &plane{called: make(chan scaler.CallInfo, callBuffer), ended: make(chan error, 1)}
	if p.redis, err = redisd.Start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.redis.Stop()
		}
	}()
	cfg, err := planeConfig(p.redis.Addr, plugin)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	c, err := controlplane.New(run, cfg, controlplane.Options{Version: "bench", Scaler: scaler.Events{Called: p.note}})
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { p.ended <- c.Run(run) }()
	if err := p.connect(run, c.Addr(controlplane.API)); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// note hears of each call to the provider; the buffer is larger than all of them.
func (p *plane) note(c scaler.CallInfo) {
	select {
	case p.called <- c:
	default:
	}
}

func (p *plane) connect(ctx context.Context, addr string) (err error) {
	p.conn, err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	p.pushes, err = jobsv1.NewJobServiceClient(p.conn).Push(ctx)
	return err
}

// push submits a job of a class of its own and waits until it is acknowledged: the
// scaler then reports when that job was submitted, and no other.
func (p *plane) push() error {
	p.pushed++
	job := &typesv1.Job{
		Id: strconv.Itoa(p.pushed), Script: "true",
		Requirement: &typesv1.Requirement{Tags: []string{"linux"}, Project: int64(p.pushed)},
	}
	if err := p.pushes.Send(&jobsv1.PushRequest{Job: job}); err != nil {
		return err
	}
	ack, err := p.pushes.Recv()
	if err != nil {
		return err
	}
	if ack.GetStatus() != jobsv1.PushStatus_PUSH_STATUS_ACCEPTED {
		return fmt.Errorf("job %s was not accepted: %s %s", ack.GetJobId(), ack.GetStatus(), ack.GetDetail())
	}
	return nil
}

// stop takes all down: the control plane ends its plugin itself.
func (p *plane) stop() error {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.cancel()
	err := <-p.ended
	p.redis.Stop()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
