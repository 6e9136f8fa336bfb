package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// pollerHeader is where a replica says in GitLab's log who it is.
const pollerHeader = "X-Spillway-Replica"

// balance spreads connections over replicas in turn, as what stands in front of them
// does, and passes those by that are away.
func balance(t *testing.T, backends ...string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var next atomic.Int64
	dial := func() (net.Conn, error) {
		err := error(nil)
		for range backends {
			var conn net.Conn
			if conn, err = net.Dial("tcp", backends[int(next.Add(1))%len(backends)]); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { join(in, dial) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
	return listener.Addr().String()
}

// join copies both ways until either side ends.
func join(in net.Conn, dial func() (net.Conn, error)) {
	defer func() { _ = in.Close() }()
	out, err := dial()
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

// pair are two replicas behind one address.
type pair struct {
	*gitlabCloud
	replicas map[string]*replica
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{gitlabCloud: newGitLabCloud(t), replicas: map[string]*replica{}}
	p.redis = storetest.StartServer(t).Addr
	addresses := map[string][2]string{"a": {peertest.FreeAddress(t), peertest.FreeAddress(t)}, "b": {peertest.FreeAddress(t), peertest.FreeAddress(t)}}
	p.front = "http://" + balance(t, addresses["a"][0], addresses["b"][0])
	routers := balance(t, addresses["a"][1], addresses["b"][1])
	p.router = true
	for name, at := range addresses {
		p.replicas[name] = startReplicaWith(t, keys(name), p.config(fleet{
			replica: name, provider: p.aws(), max: 4,
			gitlab: fmt.Sprintf("api_token: {file: DIR/api}\njobs: {every: 1s}\nroute: {server_url: 'grpc://%s', front: true, advertise: %q}", routers, at[1]),
			pool:   "mode: route\ngitlab: {runner_id: RUNNER, token: {file: DIR/runner}}",
		}, at[0], at[1]))
	}
	return p
}

// pollers are the replicas that asked for jobs, as often as that went over to another
// one; polls are theirs, oldest first.
func (p *pair) pollers() (names []string, polls []gitlabtest.Call) {
	for _, c := range p.gitlab.CallsTo(gitlabtest.RouteRequestJob) {
		name := c.Header.Get(pollerHeader)
		if name == "" {
			continue // a runner's own, on its way through
		}
		polls = append(polls, c)
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names, polls
}

// done counts the jobs that have succeeded, themselves or as what GitLab tried instead
// of one that was lost on its way to a runner.
func (p *pair) done(ids []int64) (n int) {
	for _, id := range ids {
		if view := p.last(id); view.Status == gitlabtest.Success {
			n++
		}
	}
	return n
}

// everyMachineHasWorked: what a machine says of its jobs has been seen to pass through
// the replicas.
func (p *pair) everyMachineHasWorked() bool {
	worked := map[string]bool{}
	jobs := p.gitlab.Jobs()
	for i := range jobs {
		worked[ranOn(&jobs[i])] = true
	}
	for _, in := range p.cloud.Existing(linux) {
		if !worked[in.ID] {
			return false
		}
	}
	return true
}

// last is the job, or what GitLab tried instead of it.
func (p *pair) last(id int64) gitlabtest.JobView {
	view, found := p.gitlab.Job(id)
	require.True(p.t, found)
	if view.RetriedAs != 0 {
		require.NotContains(p.t, statuses(view), gitlabtest.Running, "it is tried again, and had begun")
		return p.last(view.RetriedAs)
	}
	return view
}

func statuses(v gitlabtest.JobView) (all []string) {
	for _, change := range v.History {
		all = append(all, change.Status)
	}
	return all
}

// The replica that polls GitLab is killed in the middle of the load. Until its lease is
// over nobody polls, then the other does, and no job is lost or run twice.
func TestTwoReplicasOfWhichThePollerIsKilled(t *testing.T) {
	t.Parallel()
	shows(t, "A4")
	p := newPair(t)
	ids := p.enqueue(30, "sleep 0.5; echo it ran")
	require.Eventually(t, func() bool { return p.done(ids) >= 6 && p.everyMachineHasWorked() }, within, 5*poll, "%v\n%v", p.replicas["a"].err, p.replicas["b"].err)
	names, _ := p.pollers()
	require.Len(t, names, 1, "one of two replicas asks")
	poller, heir := p.replicas[names[0]], p.replicas["a"]
	if heir == poller {
		heir = p.replicas["b"]
	}
	orphans := descendants(t, poller.Process.Pid)
	require.NoError(t, poller.Process.Kill())
	killed := time.Now()
	_ = poller.code()
	requireGone(t, orphans)

	require.Eventually(t, func() bool { return p.done(ids) == len(ids) }, within, 5*poll, "%d\n%v", p.done(ids), heir.err)
	lost := 0
	for _, id := range ids {
		view := p.last(id)
		if view.ID != id {
			lost++
		}
		require.Contains(t, view.Trace, "it ran")
		runs := 0
		for _, status := range statuses(view) {
			if status == gitlabtest.Running {
				runs++
			}
		}
		require.Equal(t, 1, runs, "%v", view.History)
	}
	if lost > 0 { // a machine that is booked for a job which did not reach it is kept for a while
		t.Logf("%d jobs were on their way when their replica was killed", lost)
		require.Eventually(t, func() bool { return p.cloud.Live(linux) == 0 }, route.ConfirmWithin+within, 5*poll, "%v", heir.err)
	}
	p.awaitScaledIn(heir, 0)
	names, polls := p.pollers()
	require.Len(t, names, 2, "the other took over, once: %v", names)
	for i, c := range polls {
		if c.Header.Get(pollerHeader) == names[1] {
			t.Logf("%d polls, and %d by the other replica from %s after the kill on", i, len(polls)-i, c.At.Sub(killed))
			require.True(t, c.At.After(polls[i-1].Ended) || polls[i-1].Ended.IsZero(), "never two at a time")
			break
		}
	}
	heir.stop()
}
