package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// fleetShape is what the pools of one benchmark have in common.
type fleetShape struct {
	pools  int
	tick   time.Duration
	cloud  asgstub.Options
	group  asgstub.GroupConfig
	policy map[string]any
	rate   *asgstub.RateLimit // the plugin's api_rate; nil = none
	tokens bool               // each pool has one, so that machines can register
}

// served is `controlplane serve`, the plugin for Auto Scaling, Redis and a stand-in
// for the cloud, each as it is elsewhere: a process of its own, but for the cloud,
// which is here.
type served struct {
	tick  time.Duration
	redis *redisd.Server
	cloud *cloud
	plane *planeProcess
	conn  *grpc.ClientConn
	queue jobsv1.JobService_PushClient
	jobs  int // pushed so far
}

// serveFleet builds what is needed below dir and returns once the control plane
// serves.
func serveFleet(ctx context.Context, dir string, f fleetShape) (_ *served, err error) {
	if err := buildPrograms(ctx, dir, servePlane, asgPlugin); err != nil {
		return nil, err
	}
	s := &served{tick: f.tick}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.redis, err = redisd.Start(ctx); err != nil {
		return nil, err
	}
	if s.cloud, err = startCloud(f.cloud, f.pools, f.group); err != nil {
		return nil, err
	}
	if err := s.start(ctx, dir, f); err != nil {
		return nil, err
	}
	s.conn, err = grpc.NewClient("passthrough:///"+s.plane.log.at.API, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	s.queue, err = jobsv1.NewJobServiceClient(s.conn).Push(ctx)
	return s, err
}

// start starts the control plane.
func (s *served) start(ctx context.Context, dir string, f fleetShape) (err error) {
	env := slices.Clone(cloudEnvironment)
	if f.tokens {
		for i := range f.pools {
			env = append(env, tokenVariable(i)+"="+poolToken(i))
		}
	}
	s.plane, err = startPlaneProcess(ctx, dir, "spillway", s.configuration(dir, f), env...)
	return err
}

func tokenVariable(i int) string { return fmt.Sprintf("BENCH_TOKEN_%d", i) }

// poolTag is what only the jobs of that pool ask for.
func poolTag(i int) string { return fmt.Sprintf("tag-%04d", i) }

// configuration has all defaults but for what the work needs.
func (s *served) configuration(dir string, f fleetShape) map[string]any {
	plugin := s.cloud.pluginConfig()
	if f.rate != nil {
		plugin["api_rate"] = map[string]any{"per_second": f.rate.PerSecond, "burst": f.rate.Burst}
	}
	pools := make([]any, f.pools)
	for i := range pools {
		pool := map[string]any{
			"name": poolName(i), "capability": map[string]any{"tags": []string{poolTag(i)}},
			"provider": "aws", "group": groupName(i), "policy": f.policy,
		}
		if f.tokens {
			pool["runner_token"] = map[string]any{"env": tokenVariable(i)}
		}
		pools[i] = pool
	}
	return map[string]any{
		"listen":    map[string]any{"runners": "127.0.0.1:0", "api": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
		"tick":      f.tick.String(),
		"log":       map[string]any{"format": "json"},
		"store":     map[string]any{"redis": map[string]any{"addrs": []string{s.redis.Addr}}},
		"providers": asgProvider(dir, plugin),
		"pools":     pools,
	}
}

// push submits one job for each of the pools at once, and returns when the first was
// sent and how long it took until the last was acknowledged.
func (s *served) push(pools []int) (began time.Time, acked time.Duration, err error) {
	first := s.jobs
	s.jobs += len(pools)
	sent := make(chan error, 1)
	began = time.Now()
	go func() {
		for k, pool := range pools {
			err := s.queue.Send(&jobsv1.PushRequest{Job: &typesv1.Job{
				Id: fmt.Sprint(first + k), Script: "true", Requirement: &typesv1.Requirement{Tags: []string{poolTag(pool)}},
			}})
			if err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range pools {
		ack, err := s.queue.Recv()
		if err != nil {
			return began, 0, errors.Join(err, <-sent)
		}
		if ack.GetStatus() != jobsv1.PushStatus_PUSH_STATUS_ACCEPTED {
			return began, 0, fmt.Errorf("job %s was not accepted: %s %s", ack.GetJobId(), ack.GetStatus(), ack.GetDetail())
		}
	}
	return began, time.Since(began), <-sent
}

// stop takes all down: the control plane ends its plugin itself.
func (s *served) stop() error {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	var err error
	if s.plane != nil {
		err = s.plane.stop()
	}
	if s.cloud != nil {
		s.cloud.stop()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	return err
}
