package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/peertest"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// linux is the only group of a cloudStand, and its pool.
const linux = "linux"

// within bounds every wait for something that must come [time]. It is long: the
// tests share the machine with others, and none of them is about how fast it is. A
// removal that failed is asked for again after a minute.
const within = 100 * time.Second

// poll is how often a test looks again.
const poll = 10 * time.Millisecond

// cloudStand is a cloud for one test: the stand-in for Auto Scaling behind a socket,
// a Redis, and a runner on each instance that is ready.
type cloudStand struct {
	t       *testing.T
	cloud   *asgstub.Cloud
	gate    *gate
	diary   diary
	url     string
	redis   string
	token   string   // its file
	routers []string // addresses of the replicas for runners
	store   *store.Store

	mu struct {
		sync.Mutex
		closed   bool
		machines map[string]*machine
		launched int
		ended    map[string]asgstub.Cause
	}
}

const runnerToken = "a-token-of-a-test"

// newCloudStand has a group with the defaults of a group that was made for Spillway:
// new instances protected, zones not balanced.
func newCloudStand(t *testing.T, change func(*asgstub.GroupConfig)) *cloudStand {
	t.Helper()
	dir := t.TempDir()
	s := &cloudStand{
		t: t, cloud: asgstub.New(asgstub.Options{}), diary: diary{filepath.Join(dir, "diary")},
		redis: storetest.StartServer(t).Addr, token: filepath.Join(dir, "token"),
		routers: []string{peertest.FreeAddress(t), peertest.FreeAddress(t)},
	}
	require.NoError(t, os.WriteFile(s.token, []byte(runnerToken), 0o600))
	s.mu.machines, s.mu.ended = map[string]*machine{}, map[string]asgstub.Cause{}
	s.cloud.Busy = func(id string) bool { return s.diary.working(id) > 0 }
	s.cloud.Observe = s.observe
	group := asgstub.GroupConfig{
		Name: linux, Max: 10, NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"},
		Faults: &asgstub.Faults{Boot: bootTime, Victim: asgstub.BusyFirst},
	}
	if change != nil {
		change(&group)
	}
	s.cloud.AddGroup(group)
	s.gate = &gate{cloud: s.cloud, group: linux, working: s.diary.working, over: t.Context().Done()}
	server := httptest.NewServer(s.gate)
	s.url = server.URL
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.cloud.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		server.CloseClientConnections()
		server.Close()
		s.powerOff()
	})
	return s
}

// bootTime is short, but long enough to be killed in.
var bootTime = asgstub.Boot{P50: 300 * time.Millisecond, P95: 500 * time.Millisecond}

// observe starts and ends the runners.
func (s *cloudStand) observe(c asgstub.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Kind {
	case asgstub.Launched:
		s.mu.launched++
	case asgstub.Ready:
		dir := filepath.Join(filepath.Dir(s.diary.path), c.ID)
		if !s.mu.closed && os.Mkdir(dir, 0o700) == nil {
			s.mu.machines[c.ID] = boot(c.ID, dir, runnerToken, 1, s.routers)
		}
	case asgstub.Ended:
		s.mu.ended[c.ID] = c.Cause
		if m := s.mu.machines[c.ID]; m != nil {
			m.powerOff()
		}
	}
}

// powerOff ends every runner.
func (s *cloudStand) powerOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for _, m := range s.mu.machines {
		m.powerOff()
	}
	for _, m := range s.mu.machines {
		<-m.done
	}
}

// launched is how many instances were launched so far.
func (s *cloudStand) launched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.launched
}

// ended is why instances have ended.
func (s *cloudStand) ended() map[string]asgstub.Cause {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]asgstub.Cause, len(s.mu.ended))
	for id, cause := range s.mu.ended {
		out[id] = cause
	}
	return out
}

// config is that of a replica, which listens for runners at address. Machines, which are
// in the test's own process, may stand still with it for a while: none is replaced, and no
// job is given to another, for that.
func (s *cloudStand) config(replica, address string) string {
	return fmt.Sprintf(`listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
replica: %s
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 10s, assign: 20s}
plugin_dir: %s
providers:
  aws:
    plugin: spillway-provider-ec2asg
    env: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]
    config: {region: us-east-1, endpoint: %q, groups: [%s]}
pools:
  - {name: %s, capability: {tags: [linux]}, provider: aws, runner_token: {file: %s}, policy: {max: 8, idle_time: 1s}}
`, address, s.redis, replica, filepath.Join(bin, "plugins"), s.url, linux, linux, s.token)
}

// keys are credentials by which the cloud tells replicas apart.
func keys(who string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + who, "AWS_SECRET_ACCESS_KEY=secret"}
}

// cloudReplica is a control plane on a cloudStand.
type cloudReplica struct {
	*replica
	stand *cloudStand
	who   string
	jobs  jobsv1.JobServiceClient
}

// serve starts a replica by the name of replica; who is its access key.
func (s *cloudStand) serve(replica, who, address string) *cloudReplica {
	s.t.Helper()
	r := &cloudReplica{replica: startReplicaWith(s.t, keys(who), s.config(replica, address)), stand: s, who: who}
	conn, err := grpc.NewClient(r.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	r.jobs = jobsv1.NewJobServiceClient(conn)
	return r
}

// plugins are the processes of the plugin.
func (r *cloudReplica) plugins() []int {
	r.t.Helper()
	pids := descendants(r.t, r.Process.Pid)
	require.Len(r.t, pids, 1, "one process for a binary, an account and a region")
	return pids
}

// kill ends the control plane at once, and returns what it may have left behind.
func (r *cloudReplica) kill() (orphans []int) {
	r.t.Helper()
	orphans = r.plugins()
	require.NoError(r.t, r.Process.Kill())
	_ = r.code()
	return orphans
}

// push submits jobs. It may be repeated: with an error it is unknown which are known.
func (r *cloudReplica) push(ids []string, script string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	stream, err := r.jobs.Push(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		job := &typesv1.Job{Id: id, Script: script, Requirement: &typesv1.Requirement{Tags: []string{"linux"}}}
		if err := stream.Send(&jobsv1.PushRequest{Job: job}); err != nil {
			return err
		}
	}
	for range ids {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		if s := ack.GetStatus(); s != jobsv1.PushStatus_PUSH_STATUS_ACCEPTED && s != jobsv1.PushStatus_PUSH_STATUS_DUPLICATE {
			return fmt.Errorf("job %s: %s: %s", ack.GetJobId(), s, ack.GetDetail())
		}
	}
	return stream.CloseSend()
}

// submit is push for a control plane that nobody kills meanwhile.
func (r *cloudReplica) submit(ids []string, script string) {
	r.t.Helper()
	require.NoError(r.t, r.push(ids, r.stand.diary.script(script)))
}

func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return ids
}

// states counts jobs by state.
func (r *cloudReplica) states(ids []string) map[string]int {
	r.t.Helper()
	states := map[string]int{}
	for _, rec := range r.records() {
		if slices.Contains(ids, rec.GetJob().GetId()) {
			states[strings.ToLower(strings.TrimPrefix(rec.GetState().String(), "JOB_STATE_"))]++
		}
	}
	return states
}

func (r *cloudReplica) records() (records []*typesv1.JobRecord) {
	r.t.Helper()
	for token := ""; ; {
		page, err := r.jobs.List(r.t.Context(), &jobsv1.ListRequest{PageSize: 1000, PageToken: token})
		require.NoError(r.t, err)
		records = append(records, page.GetRecords()...)
		if token = page.GetNextPageToken(); token == "" {
			return records
		}
	}
}

// awaitRunning waits until so many of the jobs run.
func (r *cloudReplica) awaitRunning(ids []string, n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.states(ids)["running"] == n }, within, 5*poll, "%v\n%v", r.states(ids), r.err)
}

// known is what is on record of the pool.
type known struct {
	instances []string
	desired   int
}

// records are the replicas' store.
func (s *cloudStand) records() *store.Store {
	s.t.Helper()
	if s.store == nil {
		var err error
		s.store, err = store.Open(s.t.Context(), store.Options{Addrs: []string{s.redis}})
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = s.store.Close() })
	}
	return s.store
}

// onRecord reads what the pool's owner has persisted.
func (s *cloudStand) onRecord() (k known) {
	s.t.Helper()
	data, found, err := s.records().LoadPoolState(s.t.Context(), linux)
	require.NoError(s.t, err)
	if !found {
		return k
	}
	var state struct {
		Desired int `json:"desired"`
		Roster  struct {
			Instances map[string]json.RawMessage `json:"instances"`
		} `json:"roster"`
	}
	require.NoError(s.t, json.Unmarshal(data, &state))
	k.desired = state.Desired
	for id := range state.Roster.Instances {
		k.instances = append(k.instances, id)
	}
	slices.Sort(k.instances)
	return k
}

// inCloud is what there really is, and what of it makes up the desired number: the
// instances that are not on their way out, and those that are still to come.
func (s *cloudStand) inCloud() (k known, counted int) {
	g, _ := s.cloud.Group(linux)
	k.desired, counted = g.Desired, g.Outstanding
	for _, in := range g.Instances {
		k.instances = append(k.instances, in.ID)
		if !strings.HasPrefix(in.State, asgstub.TerminatingNow) {
			counted++
		}
	}
	slices.Sort(k.instances)
	return k, counted
}

// awaitEmpty waits until nothing is left, as the service and our records have it.
func (s *cloudStand) awaitEmpty(wait time.Duration, err *output) {
	s.t.Helper()
	deadline := time.Now().Add(wait)
	for {
		real, _ := s.inCloud()
		recorded, live := s.onRecord(), s.cloud.Live(linux)
		if real.desired == 0 && recorded.desired == 0 && len(real.instances) == 0 && len(recorded.instances) == 0 && live == 0 {
			return
		}
		if time.Now().After(deadline) {
			g, _ := s.cloud.Group(linux)
			require.FailNow(s.t, "something is left", "real %v, %d running, on record %v\n%+v\n%v", real, live, recorded, g, err)
		}
		<-time.After(5 * poll)
	}
}

// requireOnlyByName looks at every write that came: desired was only raised,
// instances were ended by name, each with a decrement and none with a job on it,
// and no protection was lifted.
func (s *cloudStand) requireOnlyByName() {
	s.t.Helper()
	for _, a := range s.gate.arrivals() {
		switch a.op {
		case setDesired:
			require.True(s.t, a.raises(), "desired from %d to %d", a.group.Desired, a.target())
			require.Equal(s.t, "false", a.args.Get("HonorCooldown"))
		case terminate:
			require.Equal(s.t, "true", a.args.Get("ShouldDecrementDesiredCapacity"))
			require.Zero(s.t, a.working, "instance %s was ended with a job on it", a.instance())
		default:
			require.Failf(s.t, "an unexpected write", "%s %v", a.op, a.args)
		}
	}
}

// requireEachOnce looks at what became of the jobs: each ran to its end, once.
func (s *cloudStand) requireEachOnce(ids []string) {
	s.t.Helper()
	executions := map[string]int{}
	for _, r := range s.diary.runs() {
		require.True(s.t, r.ended, "job %s was cut short on instance %s", r.job, r.instance)
		executions[r.job]++
	}
	for _, id := range ids {
		require.Equal(s.t, 1, executions[id], "executions of job %s", id)
	}
}
