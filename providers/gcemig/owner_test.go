package gcemig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

var ours = map[string]any{"owner": "blue"}

func owned(by string) migstub.GroupConfig {
	g := zonal("linux", 2)
	g.Labels = map[string]string{"spillway-owner": by}
	return g
}

// A group of another owner is read, and never written to.
func TestForeignGroupsAreNotWrittenTo(t *testing.T) {
	byTemplate := zonal("linux", 2)
	byTemplate.Template.Labels = map[string]string{"spillway-owner": "green"}
	for name, g := range map[string]migstub.GroupConfig{"by the group": owned("green"), "by the instances": byTemplate} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, migstub.Options{}, ours, g)
			require.Len(t, w.list("linux"), 2)
			s := w.status("linux")
			require.Contains(t, s.LaunchHalt, `belongs to spillway-owner "green"`)
			require.Equal(t, s.LaunchHalt, s.RemovalHalt)
			require.ErrorIs(t, w.raise("linux", 3, 2), pluginsdk.ErrInvalid)
			_, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			_, err = w.Withdraw(t.Context(), "linux", 2, "t")
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
			require.ErrorIs(t, w.ReportUnhealthy(t.Context(), "linux", w.ids("linux")), pluginsdk.ErrInvalid)
			require.Empty(t, w.written())
			require.Equal(t, map[string]pluginsdk.Severity{"foreign_owner": pluginsdk.FindingError}, w.codes("linux"))
		})
	}
}

// An instance of another owner is not ended, though nothing is known of its group.
func TestForeignInstancesStay(t *testing.T) {
	g := zonal("linux", 1)
	g.Template.Labels = map[string]string{"spillway-owner": "green"}
	w := newWorld(t, migstub.Options{}, ours, g)
	results, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.NotRemoved}, outcomes(results))
	require.ErrorIs(t, results[0].Err, pluginsdk.ErrInvalid)
	require.Empty(t, w.written())
}

func TestOwnersThatDoNotMatter(t *testing.T) {
	for name, c := range map[string]struct {
		config map[string]any
		group  migstub.GroupConfig
		codes  map[string]pluginsdk.Severity
	}{
		"ours":         {ours, owned("blue"), map[string]pluginsdk.Severity{}},
		"nobody's":     {ours, zonal("linux", 2), map[string]pluginsdk.Severity{"no_owner_tag": pluginsdk.FindingWarning}},
		"not asked":    {nil, owned("green"), map[string]pluginsdk.Severity{}},
		"nobody cares": {nil, zonal("linux", 2), map[string]pluginsdk.Severity{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, migstub.Options{}, c.config, c.group)
			w.list("linux")
			require.Empty(t, w.status("linux").LaunchHalt)
			require.NoError(t, w.raise("linux", 3, 2))
			require.Equal(t, c.codes, w.codes("linux"))
		})
	}
}
