package controlplane

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	admissions "github.com/spillway-ci/spillway/admission/session"
	"github.com/spillway-ci/spillway/config"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	"github.com/spillway-ci/spillway/server"
	"github.com/spillway-ci/spillway/store"
)

func TestWhatAReloadTakesOver(t *testing.T) {
	old := config.Pool{Name: "linux", Mode: "orchestrate", Provider: "aws", Group: "asg", Priority: 1, Policy: config.Policy{Max: 5}}
	wanted := old
	wanted.Provider, wanted.Group, wanted.Count = "gcp", "mig", &config.Count{Metric: "m"}
	wanted.Priority, wanted.Policy.Max, wanted.CostPerJob = 2, 7, 0.5
	merged, restart := mergePool(old, wanted)
	require.Equal(t, []string{"pools.linux.provider", "pools.linux.group", "pools.linux.count"}, restart)
	want := old
	want.Priority, want.Policy.Max, want.CostPerJob = 2, 7, 0.5
	require.Equal(t, want, merged)

	a := &config.Config{Tick: time.Second, Pools: []config.Pool{old}}
	b := &config.Config{Tick: time.Second, Pools: []config.Pool{wanted}}
	require.Empty(t, otherSections(a, b), "pools are no other section")
	b.Tick, b.Log.Level, b.GitLab = time.Minute, "debug", &config.GitLab{URL: "https://gitlab.example.com"}
	require.Equal(t, []string{"tick", "log", "gitlab"}, otherSections(a, b))
}

// A field that is added to a pool is taken over unless it is named as one that is not:
// whoever adds one has to think of it.
func TestFixedPoolFieldsExist(t *testing.T) {
	merged, restart := mergePool(config.Pool{}, config.Pool{})
	require.Empty(t, restart)
	require.Equal(t, config.Pool{}, merged)
}

func TestAReloadThatIsRefusedChangesNothing(t *testing.T) {
	kept, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kept.Close()) })
	with := func(controller string, priority int) *config.Config {
		return &config.Config{
			Replica: "one", Pools: []config.Pool{{Name: "linux", CapacityPerInstance: 1, Priority: priority}},
			Admission: config.Admission{Controllers: []config.AdmissionController{{Name: controller, Scope: "cluster", Deadline: time.Second, Batch: 1}}},
		}
	}
	cfg := with("before", 1)
	c := &ControlPlane{cfg: cfg, metrics: server.NewMetrics("test"), poolSet: newPoolSet(func([]spillway.Pool) {})}
	c.rules.Store(cfg)
	require.NoError(t, c.poolSet.replace(configPart, cfg.SpillwayPools()))
	c.reviewer, err = admissions.NewReviewer(kept, admissions.Options{Replica: "one", Policy: cfg.AdmissionPolicy()})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.reviewer.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })

	_, err = c.Reload(with("after", -1))
	require.ErrorContains(t, err, "pool linux: ")
	list, err := admissions.NewService(c.reviewer).ListControllers(t.Context(), &admissionv1.ListControllersRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetControllers(), 1)
	require.Equal(t, "before", list.GetControllers()[0].GetName())
	require.Same(t, cfg, c.rules.Load())
	require.Equal(t, cfg.SpillwayPools(), c.poolSet.configured())

	r, err := c.Reload(with("after", 1))
	require.NoError(t, err)
	require.Equal(t, Reloaded{Restart: []string{}}, r)
	list, err = admissions.NewService(c.reviewer).ListControllers(t.Context(), &admissionv1.ListControllersRequest{})
	require.NoError(t, err)
	require.Equal(t, "after", list.GetControllers()[0].GetName())
}
