package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
)

// until is a script that goes on until the file is there.
func until(file string) string {
	return fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done", file)
}

func touch(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, nil, 0o600))
}

// C24: lowering desired would let the group choose, and it would choose a busy one.
func TestC24_RealProcessesScaleInByNameOnly(t *testing.T) {
	t.Parallel()
	s := newCloudStand(t, nil)
	r := s.serve("one", "one", s.routers[0])
	short, long := filepath.Join(t.TempDir(), "short"), filepath.Join(t.TempDir(), "long")
	r.submit([]string{"a", "c"}, until(long))
	r.submit([]string{"b"}, until(short))
	ids := []string{"a", "b", "c"}
	r.awaitRunning(ids, 3)
	touch(t, short)
	require.Eventually(t, func() bool { return len(s.ended()) == 1 }, within, poll, "%v", r.err)
	g, _ := s.cloud.Group(linux)
	require.Equal(t, 2, g.Desired)
	for _, run := range s.diary.runs() {
		_, ended := s.ended()[run.instance]
		require.Equal(t, run.job == "b", ended, "only the idle one goes: %v", run)
	}

	burst := names("burst", 9) // one more than there can be instances
	r.submit(burst, "sleep 0.5")
	touch(t, long)
	s.awaitEmpty(within, r.err)
	s.requireOnlyByName()
	s.requireEachOnce(append(ids, burst...))
	for id, cause := range s.ended() {
		require.Equal(t, asgstub.ByName, cause, id)
	}
	require.LessOrEqual(t, s.launched(), 1+8+len(ids), "no job launched two")
}

// C33: somebody else lowers desired under eight running jobs.
func TestC33_SomebodyResetsDesired(t *testing.T) {
	t.Parallel()
	s := newCloudStand(t, nil)
	r := s.serve("one", "one", s.routers[0])
	release := filepath.Join(t.TempDir(), "release")
	ids := names("job", 8)
	r.submit(ids, until(release))
	r.awaitRunning(ids, 8)

	written := len(s.gate.arrivals())
	before, ok := s.cloud.SetDesiredExternally(linux, 2)
	looks := s.cloud.CountOf(describe)
	require.True(t, ok)
	require.Equal(t, 8, before)
	require.Eventually(t, func() bool {
		g, _ := s.cloud.Group(linux)
		return g.Desired == 8
	}, within, poll, "%v", r.err)
	raised := s.gate.arrivals()[written]
	require.True(t, raised.raises(), "%v", raised)
	require.LessOrEqual(t, raised.looks-looks, 3, "the look under way, the one that saw it, and the next tick's")
	require.Empty(t, s.ended())
	require.Contains(t, r.err.String(), "somebody else set desired from 8 to 2")
	require.Eventually(t, func() bool {
		return strings.Contains(r.must("explain", linux), "set_desired(8, expected 2)") // once it is answered
	}, within, 5*poll, "%v", r.err)

	touch(t, release)
	s.awaitEmpty(within, r.err)
	s.requireOnlyByName()
	s.requireEachOnce(ids)
	require.Equal(t, 8, s.launched())
}

// C41: a killed control plane leaves no plugin that goes on writing.
func TestC41_AKilledControlPlaneWritesNoMore(t *testing.T) {
	t.Parallel()
	s := newCloudStand(t, nil)
	r := s.serve("one", "killed", s.routers[0])
	release := filepath.Join(t.TempDir(), "release")
	ids := names("job", 3)
	caught := newTrap(raisesTo(len(ids)))
	s.gate.set(caught)
	r.submit(ids, until(release))
	<-caught.caught
	orphans := r.kill()
	caught.fate <- carriedOut
	<-caught.over
	requireGone(t, orphans)
	written := len(s.gate.arrivals())
	require.Eventually(t, func() bool { return s.cloud.Live(linux) == 3 }, within, poll)

	next := s.serve("one", "next", s.routers[0])
	next.awaitRunning(ids, 3)
	touch(t, release)
	s.awaitEmpty(within, next.err)
	require.Equal(t, 3, s.launched(), "what the killed one had asked for was taken over")
	for _, a := range s.gate.arrivals()[written:] {
		require.Equal(t, "next", a.who)
	}
	s.requireOnlyByName()
	s.requireEachOnce(ids)
}

// X20: an orderly end leaves everything as it is, however often it is asked for.
func TestX20_SIGTERMTwiceLeavesTheInstances(t *testing.T) {
	t.Parallel()
	s := newCloudStand(t, nil)
	r := s.serve("one", "first", s.routers[0])
	release := filepath.Join(t.TempDir(), "release")
	ids := names("job", 3)
	r.submit(ids, until(release))
	r.awaitRunning(ids, 3)
	left := r.plugins()
	written := len(s.gate.arrivals())
	ended := make(chan int, 1)
	go func() { ended <- r.code() }()
	for r.Process.Signal(syscall.SIGTERM) == nil {
		// Whoever asks again may do so until the very end.
	}
	require.Equal(t, exitOK, <-ended, r.err)
	requireGone(t, left)

	g, _ := s.cloud.Group(linux)
	require.Equal(t, 3, g.Desired)
	require.Len(t, g.Instances, 3)
	for _, in := range g.Instances {
		require.True(t, in.Protected, in.ID)
	}
	require.Len(t, s.gate.arrivals(), written)

	touch(t, release) // the jobs end while nobody is there to hear it
	next := s.serve("one", "next", s.routers[0])
	s.awaitEmpty(within, next.err)
	require.Equal(t, map[string]int{"completed": 3}, next.states(ids))
	s.requireOnlyByName()
	s.requireEachOnce(ids)
}

// run starts a command with the credentials that the cloud wants, and waits for it.
func (s *cloudStand) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	p := startWith(s.t, keys("somebody"), args...)
	code = p.code()
	return code, p.out.String(), p.err.String()
}

func TestReleaseUnprotectsAWholeGroup(t *testing.T) {
	t.Parallel()
	const instances, perCall = 120, 50
	s := newCloudStand(t, func(g *asgstub.GroupConfig) { g.Max, g.Desired = 200, instances })
	path := write(t, s.config("one", s.routers[0]))
	code, out, stderr := s.run("release", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, fmt.Sprintf("pool linux, group linux: %d instances would be unprotected", instances))
	require.Empty(t, s.gate.arrivals())

	code, out, stderr = s.run("release", "--config", path, "--yes")
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, fmt.Sprintf("pool linux, group linux: %d instances unprotected\n", instances))
	released := map[string]bool{}
	for _, a := range s.gate.arrivals() {
		require.Equal(t, protect, a.op)
		require.Equal(t, "false", a.args.Get("ProtectedFromScaleIn"))
		n := 0
		for key, value := range a.args {
			if strings.HasPrefix(key, "InstanceIds.member.") {
				n++
				released[value[0]] = true
			}
		}
		require.LessOrEqual(t, n, perCall)
	}
	require.Len(t, released, instances)
	for _, in := range s.cloud.Existing(linux) {
		require.False(t, in.Protected, in.ID)
	}
	require.Empty(t, s.ended())
}

// bad are groups that work against Spillway, each in its own way.
var bad = map[string]asgstub.GroupConfig{
	"busybody": {
		Max: 8, NewInstancesProtected: true, InstanceRefreshInProgress: true,
		ScalingPolicies: []asgstub.Policy{{Name: "cpu", Type: "TargetTrackingScaling", PredefinedMetric: "ASGAverageCPUUtilization", TargetValue: 50}},
	},
	"theirs": {
		Max: 8, NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"},
		Tags: []asgstub.Tag{{Key: "spillway-owner", Value: "somebody-else"}},
	},
	"zero": {NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"}},
}

// C27 and C31: what would end jobs, or launch nothing, is said before it does.
func TestC27_ValidateOnlineFindsWhatWorksAgainstUs(t *testing.T) {
	t.Parallel()
	s := newCloudStand(t, nil)
	for name, g := range bad {
		g.Name = name
		s.cloud.AddGroup(g)
	}
	for _, c := range []struct {
		groups            []string
		found             []string
		code, codeStrict  int
		codeWithoutOnline int
	}{
		{[]string{linux}, []string{"linux:no_owner_tag"}, exitOK, exitUsage, exitOK},
		{[]string{"busybody"}, []string{"busybody:az_rebalance", "busybody:instance_refresh", "busybody:no_owner_tag", "busybody:scaling_policy"}, exitOK, exitUsage, exitOK},
		{[]string{"theirs", "zero"}, []string{"theirs:foreign_owner", "zero:max_zero", "zero:no_owner_tag"}, exitUsage, exitUsage, exitOK},
	} {
		path := write(t, s.fleet(c.groups))
		code, _, stderr := s.run("validate", "-o", "json", path)
		require.Equal(t, c.codeWithoutOnline, code, stderr)
		code, out, stderr := s.run("validate", "--online", "-o", "json", path)
		require.Equal(t, c.code, code, stderr)
		found := codes(decodeVerdict(t, out).Findings)
		slices.Sort(found)
		require.Equal(t, c.found, found)
		code, _, stderr = s.run("validate", "--online", "--strict", path)
		require.Equal(t, c.codeStrict, code, stderr)
	}
	require.Empty(t, s.gate.arrivals(), "nothing is written")
	require.Subset(t, slices.Collect(maps.Keys(s.cloud.Counts())), []string{describe, "DescribePolicies", "DescribeInstanceRefreshes"})
}

// fleet is a configuration with one pool for each group.
func (s *cloudStand) fleet(groups []string) string {
	pools := ""
	for _, g := range groups {
		pools += fmt.Sprintf("  - {name: %s, capability: {tags: [%s]}, provider: aws, runner_token: {file: %s}, policy: {max: 8}}\n", g, g, s.token)
	}
	return fmt.Sprintf(`plugin_dir: %s
providers:
  aws:
    plugin: spillway-provider-ec2asg
    env: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]
    config: {region: us-east-1, endpoint: %q, owner: us, groups: [%s]}
pools:
%s`, filepath.Join(bin, "plugins"), s.url, strings.Join(groups, ", "), pools)
}
