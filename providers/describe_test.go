package providers

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// described is a provider of which only the description is asked for.
type described struct {
	pluginsdk.Provider
	description pluginsdk.Description
}

func (d described) Describe(context.Context) (pluginsdk.Description, error) {
	return d.description, nil
}

// TestT5_HostileDescriptions: what a plugin calls itself is in the log, in metrics and on
// pages for as long as it runs.
func TestT5_HostileDescriptions(t *testing.T) {
	describe := func(change func(*pluginsdk.Description)) error {
		d := pluginsdk.Description{
			Name: strings.Repeat("n", pluginsdk.MaxNameBytes), Version: strings.Repeat("1", pluginsdk.MaxNameBytes),
			ConfigSchema: "{}", Deviations: make([]pluginsdk.Deviation, maxDeviations),
		}
		change(&d)
		l := &launcher{spec: Spec{Name: "p", Path: "/plugin", Config: []byte("{}")}}
		return l.describe(t.Context(), &session{provider: described{description: d}})
	}
	require.NoError(t, describe(func(*pluginsdk.Description) {}))
	for name, change := range map[string]func(*pluginsdk.Description){
		"no name":              func(d *pluginsdk.Description) { d.Name = "" },
		"a long name":          func(d *pluginsdk.Description) { d.Name += "n" },
		"a terminal's escapes": func(d *pluginsdk.Description) { d.Name = "\x1b[2J" },
		"a long version":       func(d *pluginsdk.Description) { d.Version += "1" },
		"a version in lines":   func(d *pluginsdk.Description) { d.Version = "1.0\n2.0" },
		"many deviations":      func(d *pluginsdk.Description) { d.Deviations = append(d.Deviations, pluginsdk.Deviation{}) },
	} {
		err := describe(change)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
		require.ErrorIs(t, err, ErrLaunch, name)
		require.Less(t, len(err.Error()), 500, name)
	}
}
