package sim

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

// counting is a cloud that counts its plugin processes.
type counting struct {
	Cloud
	connected *int
}

func (c counting) Connect(ctx context.Context) (scaler.Group, error) {
	*c.connected++
	return c.Cloud.Connect(ctx)
}

func TestAnotherCloudTellsTheSameStory(t *testing.T) {
	s, err := scenario.Load(filepath.Join("..", "..", "testdata", "scenarios", "c42-plugin-crashes.yaml"))
	require.NoError(t, err)
	connected := 0
	r, err := RunWith(t.Context(), s, Options{Cloud: func(setup Setup) (Cloud, error) {
		cloud, err := FakeCloud(setup)
		return counting{cloud, &connected}, err
	}})
	require.NoError(t, err)
	want, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, want.Calls, r.Calls)
	require.Equal(t, ExitOK, r.ExitCode())
	crashes := 0
	for _, ev := range s.Events {
		if p, ok := ev.Action.(scenario.Plugin); ok && p.Fault == scenario.PluginCrash {
			crashes++
		}
	}
	require.Equal(t, len(s.Config.Pools)+crashes, connected, "a process that crashed is started again, and remembers nothing")
}

func TestACloudThatCannotTellTheStorySaysSo(t *testing.T) {
	s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(twoPools))
	require.NoError(t, err)
	_, err = RunWith(t.Context(), s, Options{Cloud: func(Setup) (Cloud, error) {
		return nil, fmt.Errorf("%w: partial", ErrUnsupported)
	}})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "the cloud of pool first")
}

func TestACloudThatCannotBeMadeAtAReloadEndsTheStory(t *testing.T) {
	s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(twoPools+
		"events: [{at: 60s, config: {pools: {third: {capability: {tags: [mac]}}}}}]\n"))
	require.NoError(t, err)
	_, err = RunWith(t.Context(), s, Options{Cloud: func(setup Setup) (Cloud, error) {
		if setup.Pool == "third" {
			return nil, ErrUnsupported
		}
		return FakeCloud(setup)
	}})
	require.ErrorIs(t, err, ErrUnsupported)
}

const heldStory = `
duration: 2h
config:
  pools: [{name: first, capability: {tags: [docker]}, policy: {max: 4}}]
cloud: {first: {initial: 2, termination_hook: 2h}}
jobs: [{at: 1s, id: job, count: 2, tags: [docker], duration: 1h}]
events: [{at: 50s, kill_instance: {pool: first, nth: 0}}]
`

func TestI1_LettingABusyInstanceGoIsSeen(t *testing.T) {
	w := playTo(t, heldStory, 100*time.Second)
	require.NoError(t, w.groupOf("first").CompleteHook(t.Context(), []string{"i-0001"}))
	broken(t, w, "I1")
}

func TestI1_ReportingABusyInstanceIsSeen(t *testing.T) {
	w := playTo(t, heldStory, 100*time.Second)
	require.NoError(t, w.groupOf("first").ReportUnhealthy(t.Context(), []string{"i-0002"}))
	broken(t, w, "I1")
}

func TestI8_AHookWithoutTheLeaseIsSeen(t *testing.T) {
	w := playTo(t, "replicas: 2\n"+heldStory, 100*time.Second)
	g := w.groupOf("first")
	g.replica = w.replicas[1]
	require.NoError(t, g.CompleteHook(t.Context(), nil))
	broken(t, w, "I8")
}

func TestANoticeOutlivesTheStreamThatItCameOver(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	r := w.runners["first/i-0001"]
	r.warned(pluginsdk.Interruption{InstanceID: "i-0001", Kind: pluginsdk.Maintenance, Deadline: w.now.Add(time.Hour)})
	r.complain("its disk is full")
	w.replicas[0].disconnected(r.id)
	r.replica = nil
	r.connect()
	m, ok := w.store.Machine(r.id)
	require.True(t, ok)
	require.Equal(t, "maintenance", m.InterruptionKind)
	require.Equal(t, "its disk is full", m.Unhealthy)
}
