package suite

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/child"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

const (
	// serveTimeout is how long a control plane may take until it serves.
	serveTimeout = time.Minute
	// endTimeout is how long it may take to end: its own patience with plugins, and more.
	endTimeout = 20 * time.Second
	// maxTroubles bounds the kinds of trouble that are remembered.
	maxTroubles = 100
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
	cmd   *exec.Cmd
	log   *serveLog
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
	s.conn, err = grpc.NewClient("passthrough:///"+s.log.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	s.queue, err = jobsv1.NewJobServiceClient(s.conn).Push(ctx)
	return s, err
}

// start starts the control plane and waits until it says that it serves.
func (s *served) start(ctx context.Context, dir string, f fleetShape) error {
	file := filepath.Join(dir, "spillway.json")
	text, err := json.Marshal(s.configuration(dir, f))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil { // JSON is YAML too
		return err
	}
	cmd := exec.Command(filepath.Join(dir, filepath.Base(servePlane)), "serve", "--config", file)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=none")
	if f.tokens {
		for i := range f.pools {
			cmd.Env = append(cmd.Env, tokenVariable(i)+"="+poolToken(i))
		}
	}
	child.DieWithParent(cmd)
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.log = cmd, followLog(out)
	select {
	case <-s.log.serving:
		return nil
	case <-s.log.ended:
		return fmt.Errorf("the control plane has ended: %s", s.log.last)
	case <-time.After(serveTimeout):
		return fmt.Errorf("the control plane did not serve within %s", serveTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func tokenVariable(i int) string { return fmt.Sprintf("BENCH_TOKEN_%d", i) }

// poolTag is what only the jobs of that pool ask for.
func poolTag(i int) string { return fmt.Sprintf("tag-%04d", i) }

// configuration has all defaults but for what the work needs.
func (s *served) configuration(dir string, f fleetShape) map[string]any {
	plugin := map[string]any{"region": asgstub.DefaultRegion, "endpoint": s.cloud.url, "groups": s.cloud.Groups()}
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
		"listen": map[string]any{"runners": "127.0.0.1:0", "api": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
		"tick":   f.tick.String(),
		"log":    map[string]any{"format": "json"},
		"store":  map[string]any{"redis": map[string]any{"addrs": []string{s.redis.Addr}}},
		"providers": map[string]any{"aws": map[string]any{
			"plugin": filepath.Join(dir, filepath.Base(asgPlugin)), "config": plugin,
			"env": []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
		}},
		"pools": pools,
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
	if s.cmd != nil {
		s.log.stopping.Store(true)
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		hard := time.AfterFunc(endTimeout, func() { _ = s.cmd.Process.Kill() })
		<-s.log.ended // its output must be read before Wait
		err = s.cmd.Wait()
		hard.Stop()
	}
	if s.cloud != nil {
		s.cloud.stop()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	if err != nil {
		return fmt.Errorf("the control plane: %w: %s", err, s.log.last)
	}
	return nil
}

// serveLog is what a control plane says of itself.
type serveLog struct {
	serving, ended chan struct{}
	stopping       atomic.Bool    // it was told to end: what it cannot finish then is no trouble
	api, runners   string         // constant once serving is closed
	last           string         // the last line; constant once ended is closed
	trouble        map[string]int // constant once ended is closed
}

func followLog(out io.Reader) *serveLog {
	l := &serveLog{serving: make(chan struct{}), ended: make(chan struct{}), trouble: map[string]int{}}
	go func() {
		defer close(l.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			l.take(s.Bytes())
		}
	}()
	return l
}

func (l *serveLog) take(line []byte) {
	l.last = string(line)
	var said struct{ Level, Msg, API, Runners, Doing, Error string }
	if json.Unmarshal(line, &said) != nil {
		return // a word of somebody else's
	}
	switch {
	case said.Msg == "serving":
		l.api, l.runners = said.API, said.Runners
		close(l.serving)
	case !l.stopping.Load() && (said.Level == "WARN" || said.Level == "ERROR"):
		if len(l.trouble) < maxTroubles {
			l.trouble[said.Msg+" "+said.Doing+": "+said.Error]++
		}
	}
}

// maxComplaints bounds what a table tells of a control plane's log.
const maxComplaints = 5

// complain adds what the control plane warned of, the most frequent first.
func (l *serveLog) complain(b *bench) {
	kinds := slices.SortedFunc(maps.Keys(l.trouble), func(x, y string) int {
		return cmp.Or(cmp.Compare(l.trouble[y], l.trouble[x]), cmp.Compare(x, y))
	})
	for _, kind := range kinds[:min(maxComplaints, len(kinds))] {
		b.note("the control plane warned %d times: %.200s", l.trouble[kind], kind)
	}
}
