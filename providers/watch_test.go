package providers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// noticing is a provider of which every group has something to tell.
type noticing struct{ pluginsdk.Provider }

func (noticing) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "noticing", ConfigSchema: "{}"}, nil
}
func (noticing) Configure(context.Context, []byte) error { return nil }
func (noticing) Close(context.Context) error             { return nil }

func (noticing) Watch(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return err
	}
	for _, g := range groups {
		notify(pluginsdk.Interruption{Group: g, InstanceID: "i", Kind: pluginsdk.Rebalance})
	}
	<-ctx.Done()
	return nil
}

// A provider may have more groups than one call may name: all of them are watched.
func TestAllGroupsAreWatched(t *testing.T) {
	p, err := InProcess(t.Context(), Spec{Name: "p"}, noticing{}, Options{})
	require.NoError(t, err)
	groups := make([]string, 2*pluginsdk.MaxGroupsPerCall+1)
	for i := range groups {
		groups[i] = "g" + itoa(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := map[string]bool{} // without a lock: nobody else may be telling
	require.NoError(t, p.Watch(ctx, groups, func(i pluginsdk.Interruption) {
		if heard[i.Group] = true; len(heard) == len(groups) {
			cancel()
		}
	}))
	require.Len(t, heard, len(groups))
	require.NoError(t, p.Watch(t.Context(), nil, nil))
}
