package local_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/local"
)

func TestInstancesAreProcesses(t *testing.T) {
	agent, s := stub(t, sleeps)
	p := configured(t, settings(t, agent))
	require.Equal(t, pluginsdk.GroupStatus{Group: "linux", Max: 5}, status(t, p))

	before := time.Now()
	set(t, p, 2, 0)
	list := awaitRunning(t, p, 2)
	require.NotEqual(t, list[0].ID, list[1].ID)
	for _, in := range list {
		require.True(t, runs(s.pid(t, in.ID)))
		require.WithinRange(t, in.LaunchedAt, before, time.Now())
	}
	require.Equal(t, pluginsdk.GroupStatus{Group: "linux", Desired: 2, Max: 5}, status(t, p))
	require.Equal(t, 2, s.started(t))
}

func TestGroupsBeginAtTheirMin(t *testing.T) {
	agent, _ := stub(t, sleeps)
	c := settings(t, agent)
	c["groups"] = []any{map[string]any{"name": "linux", "min": 1, "max": 2}}
	p := configured(t, c)
	awaitRunning(t, p, 1)
	for _, target := range []int{0, 3} {
		_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: target, Expected: 1})
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	}
	results, err := p.Remove(t.Context(), "linux", []string{awaitRunning(t, p, 1)[0].ID}, "")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.NotRemoved, results[0].Outcome)
	require.ErrorIs(t, results[0].Err, pluginsdk.ErrInvalid)
	awaitRunning(t, p, 1)
}

func TestBootDelayAndWithdraw(t *testing.T) {
	agent, s := stub(t, sleeps)
	c := settings(t, agent)
	c["boot_delay"] = "1h"
	p := configured(t, c)
	set(t, p, 3, 0)
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, pluginsdk.StateCreating, list[0].State)
	require.True(t, status(t, p).InTransition)

	_, err = p.Withdraw(t.Context(), "linux", 2, "w1")
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	for range 2 { // the same token: the same answer, and nothing more happens
		got, err := p.Withdraw(t.Context(), "linux", 3, "w2")
		require.NoError(t, err)
		require.Equal(t, pluginsdk.WithdrawResult{Desired: 0, Withdrawn: 3}, got)
	}
	list, err = p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, p.Close(t.Context()))
	require.Zero(t, s.started(t), "what was withdrawn was started")
}

func TestWithdrawSparesWhatRuns(t *testing.T) {
	agent, s := stub(t, sleeps)
	p := configured(t, settings(t, agent))
	set(t, p, 2, 0)
	list := awaitRunning(t, p, 2)
	got, err := p.Withdraw(t.Context(), "linux", 2, "w")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 2}, got)
	require.True(t, runs(s.pid(t, list[0].ID)) && runs(s.pid(t, list[1].ID)))
}

func TestCompareAndSet(t *testing.T) {
	agent, _ := stub(t, sleeps)
	p := configured(t, settings(t, agent))
	set(t, p, 1, 0)
	set(t, p, 1, 7) // already there: what was expected doesn't matter
	observed, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: 3, Expected: 2})
	var conflict *pluginsdk.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, pluginsdk.KindConflict, conflict.Kind)
	require.Equal(t, 1, conflict.Observed)
	require.Equal(t, 1, observed)

	// Of many who saw the same number and want different ones, one is heard.
	var wins atomic.Int64
	var all sync.WaitGroup
	for target := range 4 {
		all.Go(func() {
			if _, err := p.SetDesired(context.Background(), pluginsdk.SetDesired{Group: "linux", Target: 2 + target, Expected: 1}); err == nil {
				wins.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, wins.Load())
}

func TestRemoveEndsTheNamedOnesOnly(t *testing.T) {
	agent, s := stub(t, sleeps)
	p := configured(t, settings(t, agent))
	set(t, p, 3, 0)
	list := awaitRunning(t, p, 3)
	gone, kept := list[1].ID, []int{s.pid(t, list[0].ID), s.pid(t, list[2].ID)}
	pid := s.pid(t, gone)
	for range 2 { // the same token: the same answer, and nothing more happens
		results, err := p.Remove(t.Context(), "linux", []string{gone, gone, "never-seen"}, "r1")
		require.NoError(t, err)
		require.Equal(t, []pluginsdk.RemoveResult{
			{ID: gone, Outcome: pluginsdk.Removed},
			{ID: gone, Outcome: pluginsdk.AlreadyGone},
			{ID: "never-seen", Outcome: pluginsdk.AlreadyGone},
		}, results)
	}
	require.Equal(t, 2, status(t, p).Desired)
	requireGone(t, pid)
	awaitRunning(t, p, 2)
	require.True(t, runs(kept[0]) && runs(kept[1]))
	require.Equal(t, 3, s.started(t), "what was removed was replaced")

	results, err := p.Remove(t.Context(), "linux", []string{gone}, "r2")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.AlreadyGone, results[0].Outcome)
	require.Equal(t, 2, status(t, p).Desired)
}

// removeStubborn removes an agent that doesn't obey, which has grace.
func removeStubborn(t *testing.T, grace string) (p *local.Provider, id string, pid int) {
	t.Helper()
	agent, s := stub(t, `trap "" TERM; note $$; while :; do sleep 0.05; done`)
	c := settings(t, agent)
	c["stop_grace"] = grace
	p = configured(t, c)
	set(t, p, 1, 0)
	id = awaitRunning(t, p, 1)[0].ID
	pid = s.pid(t, id)
	_, err := p.Remove(t.Context(), "linux", []string{id}, "")
	require.NoError(t, err)
	return p, id, pid
}

// An agent that doesn't obey is deleting for its grace, and then ended.
func TestRemoveOfAStubbornAgent(t *testing.T) {
	p, id, pid := removeStubborn(t, "1h")
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.StateDeleting, list[0].State)
	require.True(t, status(t, p).InTransition)
	results, err := p.Remove(t.Context(), "linux", []string{id}, "")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.AlreadyGone, results[0].Outcome)
	require.True(t, runs(pid))

	p, _, pid = removeStubborn(t, "300ms")
	awaitRunning(t, p, 0)
	requireGone(t, pid)
}

// Like a VM, an instance takes along all that ran on it.
func TestNothingOfAnInstanceIsLeft(t *testing.T) {
	agent, s := stub(t, `setsid sleep 1000 & note $! session-; sleep 1000 & note $! group-; note $$; exec sleep 1000`)
	p := configured(t, settings(t, agent))
	set(t, p, 1, 0)
	id := awaitRunning(t, p, 1)[0].ID
	pids := []int{s.pid(t, id), s.pid(t, "group-"+id), s.pid(t, "session-"+id)}
	_, err := p.Remove(t.Context(), "linux", []string{id}, "")
	require.NoError(t, err)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

func TestLowerDesiredEndsTheNewest(t *testing.T) {
	agent, s := stub(t, sleeps)
	p := configured(t, settings(t, agent))
	set(t, p, 1, 0)
	oldest := awaitRunning(t, p, 1)[0].ID
	set(t, p, 3, 1)
	awaitRunning(t, p, 3)
	set(t, p, 1, 3)
	require.Equal(t, oldest, awaitRunning(t, p, 1)[0].ID)
	require.True(t, runs(s.pid(t, oldest)))
}

// Desired stays, so the group replaces what ended by itself; one that ended at
// once is told of, and its replacement waits.
func TestCrashIsReplacedLater(t *testing.T) {
	agent, s := stub(t, "note $$; exit 7")
	p := configured(t, settings(t, agent))
	set(t, p, 1, 0)
	require.Eventually(t, func() bool { return len(status(t, p).Failures) > 0 }, within, poll)
	got := status(t, p)
	require.Equal(t, 1, got.Desired)
	require.Equal(t, pluginsdk.KindTransient, got.Failures[0].Kind)
	require.Contains(t, got.Failures[0].Message, "exit status 7")
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, 1)
	if time.Since(got.Failures[0].At) < time.Second { // else a busy machine has us look too late
		require.Equal(t, pluginsdk.StateCreating, list[0].State)
	}
	require.NotEqual(t, got.Failures[0].ID, list[0].ID)
	require.Eventually(t, func() bool { return s.started(t) >= 2 }, within, poll)
}

func TestCloseEndsAllAtOnce(t *testing.T) {
	agent, s := stub(t, `trap "" TERM HUP; note $$; while :; do sleep 0.05; done`)
	c := settings(t, agent)
	delete(c, "work_dir")
	t.Setenv("TMPDIR", t.TempDir())
	p := configured(t, c)
	set(t, p, 2, 0)
	var pids []int
	for _, in := range awaitRunning(t, p, 2) {
		pids = append(pids, s.pid(t, in.ID))
	}
	require.NoError(t, p.Close(t.Context()))
	for _, pid := range pids {
		requireGone(t, pid)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "the work directory is still there")
	_, err = p.ListInstances(t.Context(), "linux")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}

func TestAgentSeesNothingOfTheHost(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	agent, s := stub(t, `note "$(env | cut -d= -f1 | sort | tr '\n' ' ')"; note "$*" args-; note $(stat -c %a .) mode-; exec sleep 1000`)
	c := settings(t, agent)
	p := configured(t, c)
	set(t, p, 1, 0)
	id := awaitRunning(t, p, 1)[0].ID
	s.pid(t, "mode-"+id)
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(s.dir, name))
		require.NoError(t, err)
		return string(content)
	}
	require.NotContains(t, read(id), "AWS")
	require.Contains(t, read(id), "HOME")
	require.Contains(t, read(id), "PATH")
	require.Equal(t, "700\n", read("mode-"+id))
	for _, want := range []string{
		"--router 127.0.0.1:1 ", "--plaintext", "--capacity 3 ", "--instance-id " + id + " ",
		"--token-file " + c["token_file"].(string) + " ", "--drain-timeout 7s ", "--stop-grace 2s",
	} {
		require.Contains(t, read("args-"+id), want)
	}
	require.NotContains(t, read("args-"+id), "a-token")
}

func TestWhatIsNotThere(t *testing.T) {
	p := local.New()
	_, err := p.ListInstances(t.Context(), "linux")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid, "not configured")

	agent, _ := stub(t, sleeps)
	p = configured(t, settings(t, agent))
	statuses, err := p.Status(t.Context(), []string{"absent", "linux"})
	require.NoError(t, err)
	require.ErrorIs(t, statuses[0].Err, pluginsdk.ErrNotFound)
	require.NoError(t, statuses[1].Err)
	_, err = p.ListInstances(t.Context(), "absent")
	require.ErrorIs(t, err, pluginsdk.ErrNotFound)
	require.ErrorIs(t, p.Protect(t.Context(), "linux", nil, true), pluginsdk.ErrUnsupported)
	require.ErrorIs(t, p.Watch(t.Context(), []string{"linux"}, nil), pluginsdk.ErrUnsupported)
	require.ErrorIs(t, p.Configure(t.Context(), object(t, settings(t, agent))), pluginsdk.ErrInvalid)
	_, err = p.Status(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.Remove(t.Context(), "linux", make([]string, pluginsdk.MaxInstancesPerCall+1), "")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)

	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	require.True(t, d.Has(pluginsdk.CanWithdraw) && d.Has(pluginsdk.CanCompareAndSet))
	require.False(t, d.Has(pluginsdk.CanProtect) || d.Has(pluginsdk.CanWatch))
}

// asPlugin, set in the environment, makes the test's own binary a process that
// holds a provider with one instance until it is killed.
const asPlugin = "SPILLWAY_TEST_AS_PLUGIN_WITH"

func TestMain(m *testing.M) {
	sidecartest.Main()
	if config := os.Getenv(asPlugin); config != "" {
		// With nohup it would be ignored here, and a shell can't trap what it was started to
		// ignore.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		p := local.New()
		if p.Configure(context.Background(), []byte(config)) != nil {
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

func TestInstancesDieWithThePlugin(t *testing.T) {
	agent, s := stub(t, "trap 'exit 0' HUP; note $$ only-; while :; do sleep 0.05; done")
	c := settings(t, agent)
	c["groups"] = []any{map[string]any{"name": "linux", "min": 1, "max": 1}}
	plugin, err := os.StartProcess(os.Args[0], os.Args[:1], &os.ProcAttr{
		Env: []string{asPlugin + "=" + string(object(t, c)), "PATH=" + os.Getenv("PATH")},
	})
	require.NoError(t, err)
	defer plugin.Wait()                  //nolint:errcheck // it was killed
	defer plugin.Signal(syscall.SIGKILL) //nolint:errcheck // it may be dead
	var name string
	require.Eventually(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(s.dir, "only-*"))
		if len(found) == 1 {
			name = filepath.Base(found[0])
		}
		return len(found) == 1
	}, within, poll)
	pid := s.pid(t, name)
	require.True(t, runs(pid))
	require.NoError(t, plugin.Kill())
	requireGone(t, pid)
}

// What a process is can't be seen while it is in execve. This instance's is in
// little else, and must not get away.
func TestProcessInExecveDoesNotGetAway(t *testing.T) {
	agent, s := stub(t, `again=$PWD/again; echo "exec sh $again" >$again; setsid sh $again & note $!; exec sleep 1000`)
	p := configured(t, settings(t, agent))
	for range 15 {
		set(t, p, 1, 0)
		id := awaitRunning(t, p, 1)[0].ID
		pid := s.pid(t, id)
		_, err := p.Remove(t.Context(), "linux", []string{id}, "")
		require.NoError(t, err)
		awaitRunning(t, p, 0)
		require.False(t, runs(pid), "process %d is left", pid)
	}
}
