package gcemig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// codes is the findings about a group.
func (w *world) codes(groups ...string) map[string]pluginsdk.Severity {
	w.t.Helper()
	all, err := w.Findings(w.t.Context(), groups)
	require.NoError(w.t, err)
	codes := make(map[string]pluginsdk.Severity, len(all))
	for _, f := range all {
		require.Contains(w.t, groups, f.Group)
		require.NotEmpty(w.t, f.Message)
		require.NotEmpty(w.t, f.Fix)
		require.NotContains(w.t, codes, f.Code, "it is found twice")
		codes[f.Code] = f.Severity
	}
	return codes
}

func TestC27_Findings(t *testing.T) {
	const warning, wrong = pluginsdk.FindingWarning, pluginsdk.FindingError
	with := func(change func(*migstub.GroupConfig)) migstub.GroupConfig {
		g := zonal("linux", 1)
		change(&g)
		return g
	}
	regional := func(change func(*migstub.GroupConfig)) migstub.GroupConfig {
		g := migstub.GroupConfig{Name: "linux", Region: regionName}
		change(&g)
		return g
	}
	for name, c := range map[string]struct {
		group migstub.GroupConfig
		want  map[string]pluginsdk.Severity
	}{
		"nothing": {with(func(*migstub.GroupConfig) {}), map[string]pluginsdk.Severity{}},
		"autoscaler on": {
			with(func(g *migstub.GroupConfig) { g.Autoscaler = &migstub.Autoscaler{Max: 5} }),
			map[string]pluginsdk.Severity{"autoscaler_attached": wrong},
		},
		"autoscaler out only": {
			with(func(g *migstub.GroupConfig) { g.Autoscaler = &migstub.Autoscaler{Max: 5, Mode: "ONLY_SCALE_OUT"} }),
			map[string]pluginsdk.Severity{"autoscaler_attached": wrong},
		},
		"autoscaler off": {
			with(func(g *migstub.GroupConfig) { g.Autoscaler = &migstub.Autoscaler{Max: 5, Mode: "OFF"} }),
			map[string]pluginsdk.Severity{},
		},
		"proactive": {
			with(func(g *migstub.GroupConfig) { g.UpdatePolicy.Type = "PROACTIVE" }),
			map[string]pluginsdk.Severity{"update_policy_proactive": warning},
		},
		"autohealing": {
			with(func(g *migstub.GroupConfig) { g.Autohealing = &migstub.Autohealing{HealthCheck: "tcp"} }),
			map[string]pluginsdk.Severity{"autohealing": warning},
		},
		"checks without repair": {with(func(g *migstub.GroupConfig) {
			g.Autohealing = &migstub.Autohealing{HealthCheck: "tcp"}
			g.Lifecycle.DefaultActionOnFailure = "DO_NOTHING"
		}), map[string]pluginsdk.Severity{}},
		"stateful": {
			with(func(g *migstub.GroupConfig) { g.StatefulDisks = []string{"data"} }),
			map[string]pluginsdk.Severity{"stateful": warning},
		},
		"even zones": {
			regional(func(*migstub.GroupConfig) {}),
			map[string]pluginsdk.Severity{"az_rebalance": warning},
		},
		"zones left alone": {
			regional(func(g *migstub.GroupConfig) { g.UpdatePolicy.InstanceRedistributionType = "NONE" }),
			map[string]pluginsdk.Severity{},
		},
		"any zone": {
			regional(func(g *migstub.GroupConfig) { g.TargetShape = migstub.ShapeAny }),
			map[string]pluginsdk.Severity{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, migstub.Options{}, nil, c.group)
			id := "linux"
			if c.group.Region != "" {
				id = "regions/europe-west1/linux"
			}
			require.Equal(t, c.want, w.codes(id))
		})
	}
}

func TestFindingsOfGroupsThatAreNotThere(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 1))
	w.Provider = w.provider(w.cloud.Transport(), nil, "linux", "typo")
	require.Equal(t, map[string]pluginsdk.Severity{"group_not_found": pluginsdk.FindingError}, w.codes("linux", "typo"))

	w = newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "list", Reason: "forbidden"}}}}, nil, zonal("linux", 1))
	require.Equal(t, map[string]pluginsdk.Severity{"group_unreadable": pluginsdk.FindingError}, w.codes("linux"))
}

// An autoscaler whose mode can't be read is told of, as it may be on.
func TestAnAutoscalerThatCannotBeRead(t *testing.T) {
	g := zonal("linux", 1)
	g.Autoscaler = &migstub.Autoscaler{Max: 5, Mode: "OFF"}
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "autoscalers.get", Reason: "forbidden"}}}}, nil, g)
	require.Equal(t, map[string]pluginsdk.Severity{"autoscaler_attached": pluginsdk.FindingWarning}, w.codes("linux"))
}
