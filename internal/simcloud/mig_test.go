package simcloud_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// noneIn is a regional group that gets nothing in one of its three zones.
func noneIn(zone string, code migstub.Code, shape migstub.TargetShape) simcloud.MIGOptions {
	return simcloud.MIGOptions{Regional: true, Group: func(g *migstub.GroupConfig) {
		g.TargetShape = shape
		g.Faults.Errors = []migstub.CreateError{{Zone: zone, Code: code}}
	}}
}

// resizes are the sizes that we set, in order.
func resizes(t *testing.T, m *simcloud.MIG, pool string) (sizes []int) {
	t.Helper()
	for _, c := range m.Stubs[pool].Calls() {
		if strings.HasSuffix(c.Op, ".resize") {
			query, err := url.ParseQuery(c.Query)
			require.NoError(t, err)
			n, err := strconv.Atoi(query.Get("size"))
			require.NoError(t, err)
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// TestC36: of ten instances four can't be had, for want of quota in one zone of
// three. As soon as that is told the number is what there is, although the group has
// never been stable; the six do all the work, four more are not asked for again and
// again, and the idle ones go in the end.
func TestC36_NoQuotaInOneZone(t *testing.T) {
	t.Parallel()
	m := simcloud.NewMIG(noneIn("europe-west1-b", migstub.QuotaExceeded, migstub.ShapeEven))
	r := play(t, fmt.Sprintf(onePool, "max: 10, idle_time: 2m")+`
duration: 1h
jobs: [{at: 1s, id: job, count: 10, tags: [docker], duration: 10m}]
expect:
  - pool.linux.desired.at(2s) == 10
  - pool.linux.desired.at(12s) == 6
  - pool.linux.in_service.at(70s) == 6
  - pool.linux.calls.withdraw >= 1
  - pool.linux.limited_by.hold_cooled_off >= 1
  - pool.linux.desired == 0
  - busy_kills == 0
  - forced_kills == 0
  - jobs.completed == 10
`, m.Cloud)
	sizes := resizes(t, m, "linux")
	require.Equal(t, 10, sizes[0])
	for _, n := range sizes[1:] {
		require.Equal(t, 7, n, "a probe is one more than there are")
	}
	require.LessOrEqual(t, len(sizes), 6, "one an interval")
	require.LessOrEqual(t, float64(r.Jobs.Wait.Max), (12 * time.Minute).Seconds())
}

// TestC36: one zone has nothing left. A group that goes where there is something has
// all ten in the other two, and is neither cooled off nor asked twice.
func TestC36_OneZoneIsExhausted(t *testing.T) {
	t.Parallel()
	m := simcloud.NewMIG(noneIn("europe-west1-b", migstub.PoolExhausted, migstub.ShapeAny))
	play(t, fmt.Sprintf(onePool, "max: 10")+`
duration: 1h
jobs: [{at: 1s, id: job, count: 10, tags: [docker], duration: 10m}]
expect:
  - jobs.wait.max <= 3m
  - pool.linux.desired.max == 10
  - pool.linux.in_service.at(4m) == 10
  - pool.linux.desired == 0
  - busy_kills == 0
  - jobs.completed == 10
`, m.Cloud)
}
