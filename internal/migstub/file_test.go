package migstub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestReadFaults(t *testing.T) {
	f, err := migstub.ReadFaults(filepath.Join("testdata", "faults.yaml"))
	require.NoError(t, err)
	require.Equal(t, uint64(7), f.Seed)
	require.Equal(t, 90*time.Second, f.Groups[0].Faults.Boot.P95)
	require.Equal(t, time.Minute, f.Groups[1].Faults.Boot.P50)
	require.Equal(t, migstub.PoolExhausted, f.Groups[1].Faults.Errors[0].Code)
	require.Equal(t, 429, f.Rate.Status)
	require.Equal(t, migstub.DoHang, f.Faults.Calls[1].Do)
	clk := newClock()
	c := f.New(clk.now)
	require.Equal(t, 3, c.Live("linux"))
	require.Equal(t, 2, c.Live("windows"))
}

func TestEveryMistakeIsNamed(t *testing.T) {
	_, err := migstub.ReadFaults(write(t, `
sead: 1
project: Mine
rate: {calls: -1}
faults:
  throttle_pct: 101
  page_size: 501
  calls:
    - {on: delete_everything, reason: backendError}
    - {on: resize, do: explode}
    - {on: resize, reason: somethingElse}
    - {on: resize, do: operation}
    - {on: resize, reason: backendError, from: 2s, to: 1s, ratio: 2, status: 200}
groups:
  - {name: Linux, zone: europe-west1-b, region: europe-west1, size: -1}
  - name: linux
    zone: europe-west1-b
    target_shape: ANY
    template: {spot: true, preemptible: true, on_host_maintenance: MOVE}
    autoscaler: {min: 3, max: 2}
    lifecycle: {default_action_on_failure: PANIC}
    update_policy: {type: SOMETIMES}
    faults:
      boot: {p50: 60s, p95: 30s}
      never_register: {every: -1}
      errors: [{code: OUT_OF_LUCK}, {code: QUOTA_EXCEEDED, from: 2s, to: 1s}]
      missing: 2
      victim: youngest
      stop: -1s
      typo: 1
  - {name: linux, zone: europe-west1-b}
`))
	require.Error(t, err)
	for _, mistake := range []string{
		"sead", "project", "rate", "throttle_pct", "page_size", "calls[0].on", "calls[1].do", "calls[2]: reason", "calls[3]: reason",
		"calls[4]: from", "calls[4].ratio", "calls[4].status", "groups[0]: name", "groups[0]: zone, region", "groups[0]: size",
		"target_shape: it goes with region", "spot or preemptible", "on_host_maintenance", "autoscaler: min 3", "default_action_on_failure",
		"update_policy.type", "p95 30s is below", "never_register.every", "errors[0].code", "errors[1]: from", "faults.missing", "faults.victim",
		"stop", "typo", "groups[2].name",
	} {
		require.ErrorContains(t, err, mistake)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no YAML": "a: [", "no map": "- a", "no groups": "seed: 1", "a key twice": "seed: 1\nseed: 2\ngroups: [{name: a, zone: b-c}]",
		"a number as key": "groups: [{name: a, zone: b-c}]\n1: 2", "no code": "groups: [{name: a, zone: b-c, faults: {errors: [{to: 1s}]}}]",
		"too large": strings.Repeat("#", 1<<20+1),
	} {
		_, err := migstub.ReadFaults(write(t, text))
		require.Error(t, err, name)
	}
	_, err := migstub.ReadFaults(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// In a program a mistake is a panic, at once.
func TestMistakesInPrograms(t *testing.T) {
	c := migstub.New(migstub.Options{})
	require.Panics(t, func() { c.AddGroup(migstub.GroupConfig{}) })
	c.AddGroup(linuxGroup(1, migstub.GroupFaults{}))
	require.Panics(t, func() { c.AddGroup(linuxGroup(1, migstub.GroupFaults{})) })
	require.Panics(t, func() { migstub.New(migstub.Options{Faults: migstub.Faults{PageSize: -1}}) })
	require.Equal(t, 1, c.Live("linux"), "it works on")
}
