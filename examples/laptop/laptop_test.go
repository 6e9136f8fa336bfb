package laptop_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/examples/laptop"
	"github.com/spillway-ci/spillway/jobfile"
)

// The README and the demo promise what is in the files.
func TestTheExampleIsWhatItSays(t *testing.T) {
	jobs, err := jobfile.Parse("jobs.jsonl", bytes.NewReader(laptop.Jobs))
	require.NoError(t, err)
	require.Len(t, jobs, 48)
	byID := map[spillway.JobID]spillway.Job{}
	tags := map[string]int{}
	for _, j := range jobs {
		byID[j.ID] = j
		for _, tag := range j.Requirement.Tags {
			tags[tag]++
		}
	}
	require.Contains(t, byID["test-broken"].Script, "exit 3")
	require.Equal(t, time.Second, byID["test-hangs"].Timeout)
	require.Equal(t, []string{"gpu"}, byID["train-model"].Requirement.Tags)
	require.Equal(t, 1, tags["gpu"])
	require.Equal(t, 6, tags["large"])
	require.Equal(t, 4, tags["deploy"])

	c, err := config.Parse("spillway.yaml", laptop.Config)
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1, "only that the plugin is not pinned")
	require.Nil(t, c.Store.Redis)
	require.Equal(t, 3*time.Second, c.Timeouts.Unmatched)
	require.Len(t, c.Pools, 3)
	instances := 0
	for _, p := range c.Pools {
		instances += p.Policy.Max
		require.Equal(t, 2*time.Second, p.Policy.IdleTime)
		require.Contains(t, string(c.Providers["local"].Config), `"name":"`+p.Group+`"`)
	}
	require.LessOrEqual(t, instances+2, 8, "with control plane and plugin")
}
