package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// scaleIns is how many instances have to go while jobs come, for each way of asking
// [instances].
const scaleIns = 12

// Instances go as soon as they idle, while jobs come in bursts and last up to three
// seconds. An instance that goes cuts its job short, so that every job that succeeds
// shows that none did. The runners ask the job router, or GitLab itself through the
// front proxy.
func TestC26_NoJobIsCutShortUnderLoad(t *testing.T) {
	for name, command := range map[string][]string{
		"router": {"--router", "--labels", "spillway-pool=linux,spillway-instance={instance}"},
		"direct": {"--labels", "spillway-pool=linux,spillway-instance={instance}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newGitLabStand(t, gitlabtest.Options{})
			f := s.route("grpc", true)
			f.command, f.max, f.stop = command, 8, "SIGTERM"
			f.gitlab = "api_token: {file: DIR/api}\njobs: {every: 1s}\n" + f.gitlab
			f.pool = "mode: route\ngitlab: {runner_id: RUNNER, token: {file: DIR/runner}}"
			r := startReplica(t, s.config(f, s.listen, s.jobRouter))
			ids := s.bursts(r)
			s.awaitSuccess(r, ids, "it ran")
			r.awaitEmpty()
			s.requireIdleRemovals(r)
			r.stop()
		})
	}
}

// bursts makes jobs until enough instances have gone.
func (s *gitlabStand) bursts(r *replica) (ids []int64) {
	s.t.Helper()
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, seed))
	for deadline := time.Now().Add(3 * within); len(r.removals()) < scaleIns; { // they are many
		require.True(s.t, time.Now().Before(deadline), "%v", r.err)
		for range 4 + dice.IntN(6) {
			ids = append(ids, s.enqueue(1, fmt.Sprintf("sleep %.2f; echo it ran", 3*dice.Float64()))...)
		}
		// About as long as it takes from a job's end to the removal: the next burst comes
		// while some are chosen, ordered to take no more jobs, or looked at again.
		<-time.After(3*time.Second + time.Duration(dice.IntN(3500))*time.Millisecond)
	}
	return ids
}

// removal is an instance that the control plane has removed, by its log.
type removal struct {
	instance string
	at       time.Time // when the removal had been made
}

var removed = regexp.MustCompile(`(?m)^time=(\S+) .*msg=decided .*action="?.*remove\(([^)]*)\).*result=ok$`)

func (r *replica) removals() (all []removal) {
	for _, match := range removed.FindAllStringSubmatch(r.err.String(), -1) {
		at, err := time.Parse(time.RFC3339Nano, match[1])
		require.NoError(r.t, err)
		for _, one := range strings.Split(match[2], ", ") {
			instance, _, _ := strings.Cut(one, ":")
			all = append(all, removal{instance, at})
		}
	}
	return all
}

// requireIdleRemovals looks up, for each removal, what ran on the instance.
func (s *gitlabStand) requireIdleRemovals(r *replica) {
	s.t.Helper()
	gone := r.removals()
	require.GreaterOrEqual(s.t, len(gone), scaleIns)
	jobs := s.gitlab.Jobs()
	for _, g := range gone {
		for i := range jobs {
			if ranOn(&jobs[i]) == g.instance {
				began, ended := lifetime(jobs[i])
				require.False(s.t, began.Before(g.at) && ended.After(g.at), "instance %s was removed at %s with job %d on it: %v\n%s", g.instance, g.at, jobs[i].ID, jobs[i].History, r.about(g.instance))
			}
		}
	}
	s.t.Logf("%d jobs, %d removals", len(jobs), len(gone))
}

var saysWhere = regexp.MustCompile(`(?m)^Running with minirunner \S+ on \S+ (\S+)$`)

// ranOn is the system_id of the machine that has run a job, by its own word in the
// job's log; empty = it has not said anything yet. GitLab names the machine whose
// question got the job: when that one may take it no more, another runs it.
func ranOn(v *gitlabtest.JobView) string {
	if said := saysWhere.FindStringSubmatch(v.Trace); said != nil {
		return said[1]
	}
	return ""
}

// about is what the control plane has logged of an instance.
func (r *replica) about(instance string) string {
	var lines []string
	for line := range strings.Lines(r.err.String()) {
		if strings.Contains(line, instance) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// lifetime is when a job ran.
func lifetime(v gitlabtest.JobView) (began, ended time.Time) {
	for _, change := range v.History {
		if change.Status == gitlabtest.Running && began.IsZero() {
			began = change.At
		}
		ended = change.At
	}
	return began, ended
}

// GitLab holds the question of a runner that asks it directly, and gives it a job after
// the machine was ordered to take no more. The job goes to the next that asks, and not
// only when GitLab has waited for two minutes.
func TestC26_AJobOfAnOrderedMachineGoesToAnother(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{LongPoll: 20 * time.Second})
	f := s.route("grpc", true)
	f.command, f.max = f.command[1:], 1 // not --router
	f.gitlab = "api_token: {file: DIR/api}\njobs: {every: 1s}\n" + f.gitlab
	f.pool = "mode: route\ngitlab: {runner_id: RUNNER, token: {file: DIR/runner}}"
	r := startReplica(t, s.config(f, s.listen, s.jobRouter))
	s.lateJob(r)
	for deadline := time.Now().Add(within); !strings.Contains(r.err.String(), `why="the machine is ordered to drain"`); {
		require.True(t, time.Now().Before(deadline), "%v", r.err)
		s.lateJob(r) // the machine did not ask just then, or it was gone already
	}
	kept := func(v gitlabtest.JobView) bool { return v.Kept > 0 }
	require.True(t, slices.ContainsFunc(s.gitlab.Jobs(), kept), "%v", r.err)
	r.awaitEmpty()
	r.stop()
}

// lateJob runs a job that comes when the machine of the one before it was ordered to drain.
func (s *gitlabStand) lateJob(r *replica) {
	s.t.Helper()
	orders := func() int { return strings.Count(r.err.String(), "action=drain(") }
	before := orders()
	s.awaitSuccess(r, s.enqueue(1, "echo it ran"), "it ran")
	require.Eventually(s.t, func() bool { return orders() > before }, within, poll, "%v", r.err)
	s.awaitSuccess(r, s.enqueue(1, "echo it ran"), "it ran")
}
