package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/sidecar"
)

func TestInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sidecar.Options)
		says   string
	}{
		"another machine":     {func(o *sidecar.Options) { o.Metrics = "http://192.0.2.1:9252/metrics" }, "loopback"},
		"a name":              {func(o *sidecar.Options) { o.Metrics = "http://runner:9252/metrics" }, "loopback"},
		"https":               {func(o *sidecar.Options) { o.Metrics = "https://127.0.0.1:9252/metrics" }, "http://"},
		"a password":          {func(o *sidecar.Options) { o.Metrics = "http://a:b@127.0.0.1/metrics" }, "loopback"},
		"a file":              {func(o *sidecar.Options) { o.Metrics = "file:///etc/passwd" }, "http://"},
		"too often":           {func(o *sidecar.Options) { o.Every = sidecar.MinEvery - 1 }, "looking every"},
		"too seldom":          {func(o *sidecar.Options) { o.Every = sidecar.MaxEvery + 1 }, "looking every"},
		"negative grace":      {func(o *sidecar.Options) { o.StopGrace = -1 }, "grace"},
		"no process":          {func(o *sidecar.Options) { o.PIDFile = "" }, "one of them only"},
		"two processes":       {func(o *sidecar.Options) { o.Unit = "gitlab-runner" }, "one of them only"},
		"a unit like a flag":  {func(o *sidecar.Options) { o.PIDFile, o.Unit = "", "-H" }, "no name of a systemd unit"},
		"a unit with a blank": {func(o *sidecar.Options) { o.PIDFile, o.Unit = "", "a b" }, "no name of a systemd unit"},
		"a long unit":         {func(o *sidecar.Options) { o.PIDFile, o.Unit = "", strings.Repeat("u", 256) }, "no name of a systemd unit"},
		"restart of ours":     {func(o *sidecar.Options) { o.PIDFile, o.Exec, o.Restart = "", []string{"true"}, "true" }, "restart command"},
		"no such program":     {func(o *sidecar.Options) { o.PIDFile, o.Exec = "", []string{"/nowhere/gitlab-runner"} }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			o := sidecar.Options{PIDFile: "/run/gitlab-runner.pid"}
			c.change(&o)
			_, err := sidecar.Open(o)
			require.ErrorIs(t, err, sidecar.ErrOptions)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := sidecar.Open(sidecar.Options{Metrics: "x", Every: time.Hour})
	require.ErrorContains(t, err, "metrics")
	require.ErrorContains(t, err, "looking every")
	require.ErrorContains(t, err, "process", "all mistakes at once")

	for _, o := range []sidecar.Options{
		{PIDFile: "x"},
		{Exec: []string{"true"}},
		{PIDFile: "x", Restart: "true", Metrics: "http://localhost:1/", Every: sidecar.MaxEvery},
		{PIDFile: "x", Metrics: "http://[::1]:9252/metrics", Every: sidecar.MinEvery},
	} {
		w, err := sidecar.Open(o)
		require.NoError(t, err)
		require.Equal(t, len(o.Exec) > 0, w.Ours())
	}
}
