package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/ingress"
)

const debugPool = "pools: [{name: a, capability: {run_untagged: true}, provider: p}]\nproviders: {p: {plugin: ./p}}\n"

func TestDebugDefaultsAndExample(t *testing.T) {
	c, err := config.Parse("f", []byte(debugPool))
	require.NoError(t, err)
	require.Empty(t, aboutDebug(c))
	require.Empty(t, c.Listen.Debug)
	require.Equal(t, ingress.Limits{IdleTimeout: 10 * time.Minute, MaxDuration: time.Hour, MaxBytes: 1 << 30, MaxSessions: 256, MaxPerJob: 32}, c.DebugLimits())
	example, err := config.Parse("example.yaml", []byte(config.Example))
	require.NoError(t, err)
	require.Equal(t, c.DebugLimits(), example.DebugLimits())
}

func aboutDebug(c *config.Config) (found []config.Problem) {
	for _, w := range c.Warnings() {
		if strings.Contains(w.Path, "debug") {
			found = append(found, w)
		}
	}
	return found
}

func TestDebugMistakes(t *testing.T) {
	for _, c := range []struct{ section, says string }{
		{"{idle_timeout: 999ms}", "debug.idle_timeout: 999ms is out of range; use 1s to 24h0m0s"},
		{"{idle_timeout: 24h1s}", "debug.idle_timeout"},
		{"{max_duration: 0s}", "debug.max_duration"},
		{"{max_bytes: 0}", "debug.max_bytes: 0 is out of range"},
		{"{max_bytes: 1099511627777}", "debug.max_bytes"},
		{"{max_sessions: 0}", "debug.max_sessions"},
		{"{max_sessions: 4097}", "debug.max_sessions"},
		{"{max_sessions_per_job: 0}", "debug.max_sessions_per_job"},
		{"{advertise: here}", "debug.advertise: \"here\": write HOST:PORT"},
		{"{idle: 1s}", "unknown setting"},
	} {
		_, err := config.Parse("f", []byte("debug: "+c.section+"\n"+debugPool))
		require.ErrorContains(t, err, c.says, c.section)
	}
	for _, good := range []string{"{idle_timeout: 1s, max_duration: 24h, max_bytes: 1099511627776, max_sessions: 4096, max_sessions_per_job: 1, advertise: '10.0.0.1:7701'}"} {
		c, err := config.Parse("f", []byte("debug: "+good+"\n"+debugPool))
		require.NoError(t, err)
		require.Len(t, aboutDebug(c), 1)
		require.Contains(t, aboutDebug(c)[0].Text, "nobody has the role debug")
	}
	_, err := config.Parse("f", []byte("listen: {debug: \"0.0.0.0:7705\"}\n"+debugPool))
	require.ErrorContains(t, err, "listen.debug: 0.0.0.0:7705 can be reached from other machines and would be plaintext")
}
