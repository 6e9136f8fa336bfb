package gcemig_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// watching runs Watch in a bubble, where no time passes but what poll lets pass.
func watching(t *testing.T, o migstub.Options, do func(w *world, notices *[]pluginsdk.Interruption), groups ...migstub.GroupConfig) error {
	t.Helper()
	var ended error
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o, nil, groups...)
		ctx, cancel := context.WithCancel(t.Context())
		var notices []pluginsdk.Interruption
		done := make(chan error, 1)
		go func() {
			ids := []string{"linux"}
			for _, g := range groups[1:] {
				ids = append(ids, "regions/"+g.Region+"/"+g.Name)
			}
			done <- w.Watch(ctx, ids, func(i pluginsdk.Interruption) { notices = append(notices, i) })
		}()
		synctest.Wait()
		do(w, &notices)
		cancel()
		ended = <-done
	})
	return ended
}

// poll lets the time of one poll pass.
func (w *world) poll() {
	time.Sleep(15 * time.Second)
	synctest.Wait()
	w.pass(15 * time.Second)
}

func TestWatchTellsOfPreemption(t *testing.T) {
	err := watching(t, migstub.Options{}, func(w *world, notices *[]pluginsdk.Interruption) {
		a, b := w.ids("linux")[0], w.ids("wide")[0]
		w.poll()
		require.Empty(t, *notices)
		require.True(t, w.cloud.Preempt(a, 0))
		require.True(t, w.cloud.Preempt(b, 0))
		require.True(t, w.cloud.Recreate(w.ids("linux")[1]), "that is no interruption by the cloud")
		for range 8 { // each is told once
			w.poll()
		}
		require.ElementsMatch(t, []pluginsdk.Interruption{
			{Group: "linux", InstanceID: a, Kind: pluginsdk.SpotInterruption},
			{Group: "regions/europe-west1/wide", InstanceID: b, Kind: pluginsdk.SpotInterruption},
		}, *notices)
	}, migstub.GroupConfig{Name: "linux", Zone: zoneName, Size: 3, Template: migstub.Template{Spot: true}},
		migstub.GroupConfig{Name: "wide", Region: regionName, BaseInstanceName: "linux-w", Size: 3, Template: migstub.Template{Spot: true}})
	require.NoError(t, err)
}

func TestWatchOutlivesWhatPasses(t *testing.T) {
	o := migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{
		{On: "zoneOperations.list", Reason: "backendError", Times: 2}, {On: "zoneOperations.list", Reason: "rateLimitExceeded", Times: 2},
	}}}
	err := watching(t, o, func(w *world, notices *[]pluginsdk.Interruption) {
		require.True(t, w.cloud.Preempt(w.ids("linux")[0], 0))
		for range 5 {
			w.poll()
		}
		require.Len(t, *notices, 1)
	}, zonal("linux", 1))
	require.NoError(t, err)
}

// Where the groups are is looked up now and then. As long as that fails they are taken to
// be where they were.
func TestWatchGoesOnWhereTheGroupsWere(t *testing.T) {
	o := migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "instanceGroupManagers.list", Reason: "backendError", After: 1}}}}
	err := watching(t, o, func(w *world, notices *[]pluginsdk.Interruption) {
		for range 41 {
			w.poll()
		}
		require.True(t, w.cloud.Preempt(w.ids("linux")[0], 0))
		for range 3 {
			w.poll()
		}
		require.Len(t, *notices, 1)
	}, zonal("linux", 1))
	require.NoError(t, err)
}

func TestWatchWithoutPermissionEnds(t *testing.T) {
	o := migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "zoneOperations.list", Reason: "forbidden"}}}}
	err := watching(t, o, func(w *world, _ *[]pluginsdk.Interruption) { w.poll() }, zonal("linux", 1))
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
}

// mute is a cloud that takes questions for the operations of a zone and never answers.
type mute struct {
	http.RoundTripper
	zone string
	left atomic.Int32 // questions
}

func (m *mute) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/zones/"+m.zone+"/operations") && m.left.Add(-1) >= 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return m.RoundTripper.RoundTrip(r)
}

// X23: nobody gives a watch a deadline. A zone that never answers neither ends it in
// silence nor keeps what happens in other zones from being told.
func TestX23_WatchOutlivesAZoneThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		zone string
		left int32
	}{"for once": {zoneName, 1}, "another one, for ever": {"europe-west1-a", 1000}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := migstub.GroupConfig{Name: "other", Zone: "europe-west1-a", Size: 1}
				w := newWorld(t, migstub.Options{}, nil, zonal("linux", 1), other)
				cloud := &mute{RoundTripper: w.cloud.Transport(), zone: c.zone}
				cloud.left.Store(c.left)
				w.Provider = w.provider(cloud, nil, "linux", "zones/europe-west1-a/other")
				ctx, cancel := context.WithCancel(t.Context())
				heard := make(chan pluginsdk.Interruption, 10)
				done := make(chan error, 1)
				go func() {
					done <- w.Watch(ctx, []string{"linux", "zones/europe-west1-a/other"}, func(i pluginsdk.Interruption) { heard <- i })
				}()
				synctest.Wait()
				require.True(t, w.cloud.Preempt(w.ids("linux")[0], 0))
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				cancel()
				require.NoError(t, <-done)
				require.Len(t, heard, 1)
			})
		})
	}
}
