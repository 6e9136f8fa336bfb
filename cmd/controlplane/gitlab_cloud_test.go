package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/internal/asgstub"
)

// gitlabCloud is a stand whose instances are virtual machines, each with a runner:
// they outlive every replica.
type gitlabCloud struct {
	*gitlabStand
	cloud   *asgstub.Cloud
	gate    *gate
	api     string // the cloud's URL
	router  bool   // the runners have FF_USE_JOB_ROUTER
	front   string // the URL that they have; empty: GitLab's own
	targets string // the file of their metrics' addresses

	mu struct {
		sync.Mutex
		closed bool
		vms    map[string]*vm
	}
}

// vm is one instance.
type vm struct {
	runner  *minirunner.Runner
	metrics *httptest.Server
	off     context.CancelFunc
	done    chan struct{}
	err     error // once done: of the runner; nil = it has left by itself
}

func newGitLabCloud(t *testing.T, hooks ...asgstub.HookConfig) *gitlabCloud {
	t.Helper()
	s := &gitlabCloud{gitlabStand: newGitLabStand(t, gitlabtest.Options{AckWithin: ackWithin}), cloud: asgstub.New(asgstub.Options{})}
	s.targets = filepath.Join(s.dir, "targets.json")
	s.mu.vms = map[string]*vm{}
	s.writeTargets()
	s.cloud.Busy = func(id string) bool { return s.working(id) > 0 }
	s.cloud.Observe = s.observe
	s.cloud.AddGroup(asgstub.GroupConfig{
		Name: linux, Max: 10, NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"}, Hooks: hooks,
		Faults: &asgstub.Faults{Boot: bootTime, Victim: asgstub.BusyFirst},
	})
	s.gate = &gate{cloud: s.cloud, group: linux, working: s.working, over: t.Context().Done()}
	server := httptest.NewServer(s.gate)
	s.api = server.URL
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

// ackWithin is how long GitLab waits for a runner's word here: a job that was on its way
// when its replica was killed is tried again after that.
const ackWithin = 20 * time.Second

// working is how many jobs run on an instance, by its runner's own word.
func (s *gitlabCloud) working(instance string) int {
	if v := s.machines()[instance]; v != nil {
		return v.runner.Stats().Running
	}
	return 0
}

// observe starts and ends the machines.
func (s *gitlabCloud) observe(c asgstub.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v := s.mu.vms[c.ID]; {
	case c.Kind == asgstub.Ready && v == nil && !s.mu.closed:
		s.mu.vms[c.ID] = s.boot(c.ID)
		s.writeTargets()
	case c.Kind == asgstub.Ended && v != nil:
		v.off()
	}
}

// boot starts a machine with a runner, and what an image has for a terminating hook: a
// script that waits for its lifecycle state, and then has the runner take no more jobs.
func (s *gitlabCloud) boot(id string) *vm {
	dir := filepath.Join(s.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	o := minirunner.Options{
		URL: s.url, Token: s.token, SystemID: id, Name: id, WorkDir: dir, Router: s.router,
		Labels: map[string]string{"spillway-pool": linux, "spillway-instance": id}, Times: minirunner.GitLabTimes().Scaled(0.1),
	}
	o.Times.Check = 100 * time.Millisecond
	if s.front != "" {
		o.URL = s.front
	}
	runner, err := minirunner.New(o)
	if err != nil {
		panic(err)
	}
	ctx, off := context.WithCancel(context.Background())
	v := &vm{runner: runner, metrics: httptest.NewServer(runner.Metrics()), off: off, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		v.err = runner.Run(ctx)
		v.metrics.Close() // it is the runner that answers
	}()
	go s.script(ctx, id, runner.Quit)
	return v
}

// script is what an instance runs for the hook.
func (s *gitlabCloud) script(ctx context.Context, id string, quit func()) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if in, _ := s.cloud.Instance(id); strings.HasPrefix(in.State, "Terminating") {
			quit()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// writeTargets tells where the machines' metrics are, all at once.
func (s *gitlabCloud) writeTargets() {
	targets := map[string]string{}
	for id, v := range s.mu.vms {
		targets[id] = v.metrics.Listener.Addr().String()
	}
	data, err := json.Marshal(targets)
	if err == nil {
		err = os.WriteFile(s.targets+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(s.targets+".new", s.targets)
	}
	if err != nil {
		panic(err)
	}
}

// powerOff ends every machine.
func (s *gitlabCloud) powerOff() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	for _, v := range s.machines() {
		v.off()
		<-v.done
	}
}

func (s *gitlabCloud) machines() map[string]*vm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.vms)
}

// aws is a provider of these instances.
func (s *gitlabCloud) aws() string {
	return fmt.Sprintf("plugin: spillway-provider-ec2asg, env: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY], config: {region: us-east-1, endpoint: %q, groups: [%s], hooks: {drain_timeout: 10m}}", s.api, linux)
}

// awaitScaledIn waits until no more instances than that are left, and looks at how the
// others went: each by its name, with no job on it, and none of their runners was cut
// short.
func (s *gitlabCloud) awaitScaledIn(r *replica, left int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		g, _ := s.cloud.Group(linux)
		return g.Desired <= left && s.cloud.Live(linux) <= left
	}, within, 5*poll, "%v", r.err)
	existing := map[string]bool{}
	for _, in := range s.cloud.Existing(linux) {
		existing[in.ID] = true
	}
	for _, in := range s.cloud.Instances(linux) {
		require.True(s.t, existing[in.ID] || in.Cause == asgstub.ByName, "%+v", in)
	}
	for _, a := range s.gate.arrivals() {
		if a.op == setDesired {
			require.True(s.t, a.raises(), "desired from %d to %d", a.group.Desired, a.target())
		}
		if a.op == terminate {
			require.Zero(s.t, a.working, "instance %s was ended with a job on it", a.instance())
		}
	}
	for id, v := range s.machines() {
		if !existing[id] {
			<-v.done
			require.NoError(s.t, v.err)
		}
	}
}
