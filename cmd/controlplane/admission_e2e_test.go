package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/store/storetest"
)

// controller starts one of the examples, connected to one address.
func controller(t *testing.T, example, addr string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(filepath.Join(bin, example), append(args, "-addr", addr)...), out: newOutput(t, "stdout"), err: newOutput(t, "stderr")}
	p.Stdout, p.Stderr = p.out.file, p.err.file
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	require.Eventually(t, func() bool { return strings.Contains(p.err.String(), "connected to a control plane") }, within, poll, "%v", p.err)
	return p
}

// Two replicas with a Redis, and two controllers, each at another replica: a job passes
// both, whichever replica runs it.
func TestA8_AdmissionOverTwoReplicas(t *testing.T) {
	t.Parallel()
	shows(t, "A8")
	redis := storetest.StartServer(t)
	const deadline = "deadline: 2m"
	admission := `admission:
  controllers:
    - {name: cel, scope: project, projects: [7], ` + deadline + `}
    - {name: image-policy, scope: instance, ` + deadline + `}
    - {name: trial, scope: instance, dry_run: true}
`
	configs := []string{localConfig(t, redis.Addr) + admission, localConfig(t, redis.Addr) + admission}
	paths := []string{write(t, configs[0]), write(t, configs[1])}
	one, two := startReplicaAt(t, nil, paths[0]), startReplicaAt(t, nil, paths[1])
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`rules: [{name: fast, allow: job.timeout <= duration("10m"), reason: ten minutes at most}]`), 0o600))
	controller(t, "admission-image-policy", one.api, "-allow", "ruby:*")
	cel := controller(t, "admission-cel", two.api, "-rules", rules)
	controller(t, "admission-image-policy", two.api, "-controller", "trial", "-allow", "nothing:*")

	submit := func(r *replica, id, image string, project int, limit time.Duration) {
		r.must("jobs", "submit", "--id", id, "--tag", "linux", "--script", "echo ran", "--image", image, "--project", fmt.Sprint(project), "--time-limit", limit.String())
	}
	submit(one, "good", "ruby:3.3", 7, time.Minute)
	submit(two, "good-2", "ruby:3.4", 7, time.Minute)
	submit(one, "bad-image", "miner:1", 7, time.Minute)
	submit(two, "too-long", "ruby:3.3", 7, time.Hour)
	submit(two, "elsewhere", "ruby:3.3", 8, time.Hour) // of another project: nobody minds
	for _, id := range []string{"good", "good-2", "elsewhere"} {
		one.await(id, "completed")
	}
	refused := one.await("bad-image", "rejected").Result
	require.Equal(t, "admission_rejected", refused.Reason)
	require.Equal(t, "admission controller image-policy: image miner:1 is not allowed; allowed are ruby:*", refused.Detail)
	require.Equal(t, "admission controller cel: ten minutes at most (rule fast)", one.await("too-long", "rejected").Result.Detail)

	require.Eventually(t, func() bool {
		out := one.must("admission", "status")
		return strings.Count(out, "\n") == 4 && !strings.Contains(out, "nowhere")
	}, within, 10*poll, "%v", one.err)
	require.Contains(t, one.must("admission", "list"), "no (dry_run)")
	require.Contains(t, one.must("jobs", "show", "good"), "admitted")

	// The one of project 7 leaves: its jobs fail, the others go on.
	require.NoError(t, cel.Process.Signal(syscall.SIGTERM))
	_ = cel.Wait()
	left := regexp.MustCompile(`(?m)^cel +\S+ +0 `) // instances
	for i, r := range []*replica{one, two} {
		require.Eventually(t, func() bool { return left.MatchString(r.must("admission", "status")) }, within, 10*poll, "%v", r.err)
		// Nobody is waited for any longer than a moment.
		require.NoError(t, os.WriteFile(paths[i], []byte(strings.Replace(configs[i], deadline, "deadline: 1s", 1)), 0o600))
		r.readAgain()
	}
	submit(one, "late", "ruby:3.3", 7, time.Minute)
	submit(one, "not-mine", "ruby:3.3", 8, time.Minute)
	one.await("not-mine", "completed")
	late := two.await("late", "failed").Result
	require.Equal(t, "admission_timeout", late.Reason)
	require.Contains(t, late.Detail, "admission controller cel is not connected")
	require.Eventually(t, func() bool { return strings.Contains(two.err.String()+one.err.String(), "would have refused") }, within, poll, "the dry run is told, and nobody obeys it")
}

// A8: instance, then group, then project, each by another controller, which all must
// approve. One that is silent costs its own jobs their time, and no others any.
func TestA8_AllApproveInOrderAndASilentOneDelaysItsOwnJobs(t *testing.T) {
	t.Parallel()
	shows(t, "A8")
	chain := func(team string) string {
		return `admission:
  controllers:
    - {name: four-eyes, scope: project, projects: [7], deadline: 2m}
    - {name: team, scope: group, groups: [3], deadline: ` + team + `}
    - {name: image-policy, scope: instance, deadline: 2m}
`
	}
	s := newSteadyStand(t, chain("2m"), handPool{"linux", linuxPool + ", capacity_per_instance: 4"})
	s.machine("b", "linux", "m1", "--capacity", "4")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`rules: [{name: short, allow: job.timeout <= duration("10m"), reason: ten minutes at most}]`), 0o600))
	controller(t, "admission-image-policy", s.a().api, "-allow", "ruby:*", "-allow", "rust:*")
	team := controller(t, "admission-image-policy", s.b().api, "-controller", "team", "-allow", "ruby:*")
	controller(t, "admission-cel", s.a().api, "-controller", "four-eyes", "-rules", rules)

	ours := func(id, image, limit string) job {
		return job{"id": id, "script": "true", "project": 7, "groups": []int{1, 3}, "image": image, "timeout": limit}
	}
	s.a().submit(ours("good", "ruby:3.3", "1m"), ours("group", "rust:1.90", "1h"), ours("instance", "miner:1", "1h"), ours("project", "ruby:3.3", "1h"))
	require.Equal(t, []string{"pending", "routing", "pending", "routing", "pending", "routing", "admitted", "assigned", "running", "completed"}, s.b().await("good", "completed").way())
	for id, says := range map[string]string{
		"instance": "controller image-policy: image miner:1 is not allowed",
		"group":    "controller team: image rust:1.90 is not allowed",
		"project":  "controller four-eyes: ten minutes at most",
	} {
		rec := s.b().await(id, "rejected")
		require.Equal(t, "admission_rejected", rec.Result.Reason)
		require.Contains(t, rec.Result.Detail, says)
	}

	require.NoError(t, team.Process.Signal(syscall.SIGSTOP))
	s.a().submit(ours("waits", "ruby:3.3", "1m"))
	s.a().submit(job{"id": "other", "script": "true", "project": 8, "groups": []int{4}, "image": "rust:1.90"})
	s.a().await("other", "completed")
	require.Contains(t, []string{"pending", "routing"}, s.a().record("waits").State, "the other waited for nobody")
	s.reconfigure(chain("1s"))
	rec := s.a().await("waits", "failed")
	require.Equal(t, "admission_timeout", rec.Result.Reason)
	require.Contains(t, rec.Result.Detail, "controller team")
}
