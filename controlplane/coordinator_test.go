package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/coordinator"
)

// The configuration allows what the coordinator does, and no more.
func TestTheCoordinatorsBoundsAreTheConfigurations(t *testing.T) {
	require.Equal(t, []any{coordinator.DefaultMaxWorkers, coordinator.MaxWorkers, coordinator.DefaultMaxQueued, coordinator.MaxQueued},
		[]any{config.DefaultMaxWorkers, config.MaxWorkers, config.DefaultMaxQueued, config.MaxQueuedPerPool})
	require.Equal(t, []any{coordinator.DefaultPollWait, coordinator.MaxPollWait}, []any{config.DefaultPollWait, config.MaxPollWait})
}
