package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

func TestCoordinator(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Equal(t, config.Coordinator{MaxWorkers: 10_000, MaxQueued: 1_000, PollWait: 5 * time.Second}, c.Coordinator)
	c, err = config.Parse("f", []byte(minimal+"coordinator: {max_workers: 1, max_queued: 1000000, poll_wait: 30s}\n"))
	require.NoError(t, err)
	require.Equal(t, config.Coordinator{MaxWorkers: 1, MaxQueued: 1_000_000, PollWait: 30 * time.Second}, c.Coordinator)

	_, err = config.Parse("f", []byte(minimal+"coordinator: {max_workers: 0, max_queued: 1000001, poll_wait: 31s, pool_wait: 1s}\n"))
	require.ErrorContains(t, err, "coordinator.max_workers: 0 is out of range; use 1 to 100000")
	require.ErrorContains(t, err, "coordinator.max_queued: 1000001 is out of range; use 1 to 1000000")
	require.ErrorContains(t, err, "coordinator.poll_wait: 31s is out of range; use 100ms to 30s")
	require.ErrorContains(t, err, "coordinator.pool_wait: unknown setting; did you mean poll_wait?")
}
