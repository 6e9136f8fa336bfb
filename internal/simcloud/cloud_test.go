package simcloud_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// The clouds, each for one run.
var newClouds = map[string]func() sim.NewCloud{
	"ASG": func() sim.NewCloud { return simcloud.NewASG(simcloud.ASGOptions{}).Cloud },
	"MIG": func() sim.NewCloud { return simcloud.NewMIG(simcloud.MIGOptions{}).Cloud },
}

// TestEqualSeedsAreEqualStories: the same story goes the same way, byte for byte,
// however much goes wrong in it.
func TestEqualSeedsAreEqualStories(t *testing.T) {
	for name, cloud := range newClouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf(onePool, "max: 6, idle_time: 1m") + `
duration: 1h
cloud:
  linux:
    {boot: {p50: 40s, p95: 2m}, partial: 0.5, late_fill: 1m, victim: random, never_register: {every: 4},
     errors: [{from: 1m, to: 10m, kind: throttled, ratio: 0.5}, {from: 0s, to: 20m, kind: capacity, ratio: 0.5, delivery: activity}]}
jobs: [{at: 1s, id: a, count: 9, tags: [docker], duration: 90s}, {at: 15m, id: b, count: 5, tags: [docker], duration: 5m}]
events: [{at: 5m, kill_instance: {pool: linux, nth: 1}}, {at: 16m, plugin: {pool: linux, fault: crash}}]
`
			var told [2]bytes.Buffer
			for i := range told {
				r, err := sim.RunWith(t.Context(), parse(t, text), sim.Options{Cloud: cloud()})
				require.NoError(t, err)
				require.NotEmpty(t, r.Calls)
				require.NoError(t, sim.WriteJSON(&told[i], r))
			}
			require.Equal(t, told[0].String(), told[1].String())
		})
	}
}

// TestWhatACloudCantDoIsSaid: nobody takes a story that was not told for one that
// went well.
func TestWhatACloudCantDoIsSaid(t *testing.T) {
	failing := func(w fake.ErrorWindow) func(*fake.Config) {
		w.To, w.Ratio = time.Minute, 1
		return func(c *fake.Config) { c.Errors = []fake.ErrorWindow{w} }
	}
	for _, c := range []struct {
		cloud, what string
		ask         func(*fake.Config)
	}{
		{"ASG", "capacity", failing(fake.ErrorWindow{Kind: pluginsdk.KindCapacity, Delivery: fake.ByCall})},
		{"ASG", "quota", failing(fake.ErrorWindow{Kind: pluginsdk.KindQuota, Delivery: fake.ByCall})},
		{"ASG", "when to ask again", failing(fake.ErrorWindow{Kind: pluginsdk.KindThrottled, Delivery: fake.ByCall, RetryAfter: time.Second})},
		{"ASG", "named by its launch", func(c *fake.Config) { c.Kept = []string{"mine"} }},
		{"MIG", "capacity", failing(fake.ErrorWindow{Kind: pluginsdk.KindCapacity, Delivery: fake.ByCall})},
		{"MIG", "throttled", failing(fake.ErrorWindow{Kind: pluginsdk.KindThrottled, Delivery: fake.ByActivity})},
		{"MIG", "minimum", func(c *fake.Config) { c.Min, c.Initial = 1, 1 }},
		{"MIG", "hooks", func(c *fake.Config) { c.LaunchHook = time.Minute }},
		{"MIG", "hooks", func(c *fake.Config) { c.TerminationHook = time.Minute }},
		{"MIG", "suspended", func(c *fake.Config) { c.Halts = []fake.Halt{{To: time.Minute, Launch: "no"}} }},
		{"MIG", "named by its launch", func(c *fake.Config) { c.NeverRegister.IDs = []string{"i-1"} }},
	} {
		config := fake.Defaults()
		c.ask(&config)
		_, err := newClouds[c.cloud]()(sim.Setup{Pool: "linux", Config: config, Now: func() time.Time { return epoch }})
		require.ErrorIs(t, err, pluginsdk.ErrUnsupported, "%s: %s", c.cloud, c.what)
		require.ErrorContains(t, err, c.what)
	}
}

func TestACloudIsForOneRun(t *testing.T) {
	for name, newCloud := range newClouds {
		cloud := newCloud()
		s := sim.Setup{Pool: "linux", Config: fake.Defaults(), Now: func() time.Time { return epoch }}
		_, err := cloud(s)
		require.NoError(t, err, name)
		_, err = cloud(s)
		require.ErrorContains(t, err, "one run", name)
	}
}
