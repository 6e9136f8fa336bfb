package scaler

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

func TestNoticesKeepTheirOrderAndTheirBound(t *testing.T) {
	var q notices
	require.Empty(t, q.take())
	for i := range maxNotices {
		require.True(t, q.add(pluginsdk.Interruption{InstanceID: fmt.Sprint(i)}))
	}
	require.False(t, q.add(pluginsdk.Interruption{InstanceID: "one too many"}))

	all := q.take()
	require.Len(t, all, maxNotices)
	for i, n := range all {
		require.Equal(t, fmt.Sprint(i), n.InstanceID)
	}
	require.Empty(t, q.take())
	require.True(t, q.add(pluginsdk.Interruption{InstanceID: "there is room again"}))
}
