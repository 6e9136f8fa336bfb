package ec2asg_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestCount(t *testing.T) {
	dimensions := map[string]string{"fleet": "linux"}
	w := start(t, asgstub.Options{}, map[string]any{"metrics": map[string]any{
		"waiting": map[string]any{"namespace": "CI", "metric": "Waiting", "dimensions": dimensions},
		"other":   map[string]any{"namespace": "CI", "metric": "Other", "statistic": "Sum", "period": "5m"},
	}}, linux(0))
	put := func(value float64, age time.Duration) {
		w.cloud.SetMetric("CI", "Waiting", dimensions, value, w.clock().Add(-age))
	}
	count := func() (pluginsdk.Count, error) { return w.Count(t.Context(), "waiting") }

	_, err := count()
	require.ErrorIs(t, err, pluginsdk.ErrTransient, "no datapoint is not 0")
	_, err = w.Count(t.Context(), "unknown")
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)

	w.after(30 * time.Second)
	put(9, 0) // of a minute that has not ended
	_, err = count()
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	put(7, 3*time.Minute)
	put(5, time.Minute)
	got, err := count()
	require.NoError(t, err)
	require.Equal(t, pluginsdk.Count{Jobs: 5, At: w.clock().Truncate(time.Minute)}, got)

	w.after(30 * time.Second)
	got, err = count()
	require.NoError(t, err)
	require.Equal(t, pluginsdk.Count{Jobs: 9, At: w.clock()}, got)
	w.after(time.Hour)
	_, err = count()
	require.ErrorIs(t, err, pluginsdk.ErrTransient, "an old datapoint is none")

	put(0, time.Minute)
	got, err = count()
	require.NoError(t, err)
	require.Zero(t, got.Jobs, "0 is a number")
	w.after(time.Hour)
	put(-1, time.Minute)
	_, err = count()
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	w.after(time.Hour)
	put(math.Inf(1), time.Minute)
	_, err = count()
	require.Error(t, err)
}

func TestCountFails(t *testing.T) {
	for code, want := range map[string]error{"Throttling": pluginsdk.ErrThrottled, "AccessDenied": pluginsdk.ErrAuth, "InternalFailure": pluginsdk.ErrTransient} {
		w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{{Operations: []string{"GetMetricData"}, Code: code}}}},
			map[string]any{"metrics": map[string]any{"m": map[string]any{"namespace": "CI", "metric": "M"}}}, linux(0))
		_, err := w.Count(t.Context(), "m")
		require.ErrorIs(t, err, want, code)
	}
}
