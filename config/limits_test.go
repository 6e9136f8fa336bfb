package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
)

func TestPoolLimit(t *testing.T) {
	var b strings.Builder
	b.WriteString("pools:\n")
	for i := range spillway.MaxPools {
		fmt.Fprintf(&b, "  - {name: p%d, capability: {tags: [a, b, c, d]}, policy: {min: 0, max: 3, idle_time: 5m}}\n", i)
	}
	scenario := config.Options{ProviderOptional: true}
	c, err := config.ParseWith("f", []byte(b.String()), scenario)
	require.NoError(t, err)
	require.Len(t, c.Pools, spillway.MaxPools)

	b.WriteString("  - {name: last, policy: {max: 0}}\n")
	_, err = config.ParseWith("f", []byte(b.String()), scenario)
	require.Equal(t, []string{"f:2: pools: 5001 pools, at most 5000 are allowed"}, problems(t, err))
}

func TestProviderLimits(t *testing.T) {
	file := func(providers, env, bytes int) string {
		var b strings.Builder
		b.WriteString("providers:\n")
		for i := range providers {
			fmt.Fprintf(&b, "  p%d: {plugin: ./p}\n", i)
		}
		fmt.Fprintf(&b, "  mine:\n    plugin: ./p\n    config: {x: %s}\n    env: [%s]\n", strings.Repeat("y", bytes), strings.TrimSuffix(strings.Repeat("A, ", env), ", "))
		b.WriteString("pools:\n  - {name: a, capability: {run_untagged: true}, provider: mine}\n")
		return b.String()
	}
	room := config.MaxProviderConfigBytes - len(`{"x":""}`)
	_, err := config.Parse("f", []byte(file(config.MaxProviders-1, config.MaxEnvNames, room)))
	require.NoError(t, err)
	_, err = config.Parse("f", []byte(file(config.MaxProviders, 1, 1)))
	require.ErrorContains(t, err, "providers: 101 providers, at most 100 are allowed")
	_, err = config.Parse("f", []byte(file(0, config.MaxEnvNames+1, 1)))
	require.ErrorContains(t, err, "providers.mine.env: 65 names, at most 64 are allowed")
	_, err = config.Parse("f", []byte(file(0, 1, room+1)))
	require.ErrorContains(t, err, "providers.mine.config: 1048577 bytes as JSON, at most 1048576 are allowed")
}

// Each bound is taken, and the next value is not.
func TestBoundsOfSettings(t *testing.T) {
	for _, c := range []struct{ setting, takes, refuses string }{
		{"tick", "100ms", "99ms"},
		{"tick", "5m", "5m1ms"},
		{"debounce", "5s", "5001ms"},
		{"pool.priority", "1000", "1001"},
		{"pool.capacity_per_instance", "1000", "1001"},
		{"policy.max", "10000", "10001"},
		{"policy.idle_count", "10000", "10001"},
		{"policy.idle_factor", "10", "10.01"},
		{"policy.tolerance", "0.99", "1"},
		{"policy.max_uses", "1000000", "1000001"},
		{"policy.idle_time", "744h", "744h1s"},
		{"policy.register_timeout", "1s", "999ms"},
		{"policy.silent_timeout", "45s", "44s"},
		{"policy.max_age", "1h", "59m59s"},
		{"policy.drain_timeout", "744h", "744h1s"},
		{"policy.step", "1", "0"},
		{"replica", strings.Repeat("x", 128), strings.Repeat("x", 129)},
	} {
		file := func(value string) []byte {
			where, key, _ := strings.Cut(c.setting, ".")
			switch where {
			case "pool":
				return []byte(pool(key + ": " + value))
			case "policy":
				return []byte(pool("policy: {" + key + ": " + value + "}"))
			default:
				return []byte(c.setting + ": " + value + "\n" + minimal)
			}
		}
		_, err := config.Parse("f", file(c.takes))
		require.NoError(t, err, "%s: %s", c.setting, c.takes)
		_, err = config.Parse("f", file(c.refuses))
		require.ErrorIs(t, err, config.ErrInvalid, "%s: %s", c.setting, c.refuses)
		require.Len(t, problems(t, err), 1)
	}
}

// No setting has to keep a waiting job from counting at once: not even the pause that
// collects changes, and what damps growth is off unless it is asked for.
func TestX11_NothingHasToKeepAJobWaiting(t *testing.T) {
	c, err := config.Parse("f", []byte("debounce: 0s\n"+minimal))
	require.NoError(t, err)
	require.Zero(t, c.Debounce)
	c, err = config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Zero(t, c.Pools[0].Policy.ScaleOut)
	require.LessOrEqual(t, c.Debounce, 10*time.Millisecond)
}

func TestDeepNesting(t *testing.T) {
	nested := func(n int) []byte {
		return []byte("providers: {m: {plugin: ./p, config: {x: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "}}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]")
	}
	_, err := config.Parse("f", nested(40))
	require.NoError(t, err)
	_, err = config.Parse("f", nested(80))
	require.ErrorContains(t, err, "too large or too deep")
}
