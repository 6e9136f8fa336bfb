package gcemig_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func failing(name string, size int, code migstub.Code) migstub.GroupConfig {
	g := zonal(name, size)
	g.Faults = migstub.GroupFaults{Errors: []migstub.CreateError{{Code: code, Ratio: 1}}}
	return g
}

// C36: the target is 10, 6 are there, there is no quota for more, and the group is
// never stable. Then there are no jobs: what is not there is taken back at once, and
// idle ones are deleted by name.
func TestC36_ABlockedGroupIsMadeSmallerAtOnce(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, failing("linux", 6, migstub.QuotaExceeded))
	require.NoError(t, w.raise("linux", 10, 6))
	s := w.status("linux")
	require.Equal(t, 10, s.Desired)
	require.True(t, s.InTransition)
	require.Empty(t, s.LaunchHalt+s.RemovalHalt, "that it is not stable stops nothing")
	require.Len(t, w.list("linux"), 6)
	require.Len(t, s.Failures, 1)
	require.Equal(t, pluginsdk.KindQuota, s.Failures[0].Kind)
	require.Contains(t, s.Failures[0].Message, "4 times QUOTA_EXCEEDED in europe-west1-b: Quota 'CPUS' exceeded")

	got, err := w.Withdraw(t.Context(), "linux", 10, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 6, Withdrawn: 4}, got)
	require.Len(t, w.ids("linux"), 6, "one that exists was ended")
	s = w.status("linux")
	require.Equal(t, 6, s.Desired)
	require.False(t, s.InTransition)

	idle := w.ids("linux")[1:4]
	results, err := w.Remove(t.Context(), "linux", idle, "u")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.Removed, pluginsdk.Removed}, outcomes(results))
	require.Equal(t, 3, w.view("linux").Target)
	require.Zero(t, w.cloud.CountOf("resize")-1, "nothing but the raise was a resize")
}

func TestWithdraw(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 1,
		Faults: migstub.GroupFaults{Boot: migstub.Boot{P50: time.Minute}, Missing: 0.5},
	})
	got, err := w.Withdraw(t.Context(), "linux", 1, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 1}, got)
	require.Empty(t, w.written())

	require.NoError(t, w.raise("linux", 5, 1))
	_, err = w.Withdraw(t.Context(), "linux", 4, "t")
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	got, err = w.Withdraw(t.Context(), "linux", 5, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 3, Withdrawn: 2}, got, "those that boot stay")
	require.Len(t, w.ids("linux"), 3)
}

// One that gets its VM just then counts as ended only if it was.
func TestWithdrawWhileTheGroupFills(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Faults: migstub.GroupFaults{Missing: 1, LateFill: time.Second},
	})
	require.NoError(t, w.raise("linux", 3, 0))
	w.Provider = w.provider(&before{on: "linux/deleteInstances", next: w.cloud.Transport(), do: func() {
		w.cloud.SetSizeExternally("linux", 5)
	}}, nil, "linux")
	got, err := w.Withdraw(t.Context(), "linux", 3, "t")
	require.NoError(t, err)
	require.Equal(t, w.view("linux").Target, got.Desired, "what is left is read, not reckoned")
	require.Equal(t, 2, got.Desired)
}

// C28: the pool finds out within two polls that the zone has nothing left, with an id
// that stays and a number of calls that is bounded.
func TestC28_NoCapacity(t *testing.T) {
	const groups = 30
	var configs []migstub.GroupConfig
	var names []string
	for i := range groups {
		configs = append(configs, failing(fmt.Sprintf("g%02d", i), 0, migstub.PoolDetails))
		names = append(names, configs[i].Name)
	}
	w := newWorld(t, migstub.Options{}, nil, configs...)
	for _, name := range names {
		require.NoError(t, w.raise(name, 3, 0))
	}
	seen := map[string]string{} // group: id of the failure
	for range 2 {
		w.pass(5 * time.Second)
		before := w.cloud.CountOf("listErrors")
		all, err := w.Status(t.Context(), names)
		require.NoError(t, err)
		require.LessOrEqual(t, w.cloud.CountOf("listErrors")-before, 20)
		for _, s := range all {
			for _, f := range s.Failures {
				require.Equal(t, pluginsdk.KindCapacity, f.Kind)
				if known, ok := seen[s.Group]; ok {
					require.Equal(t, known, f.ID)
				}
				seen[s.Group] = f.ID
			}
		}
	}
	require.Len(t, seen, groups)
	got, err := w.Withdraw(t.Context(), "g00", 3, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Withdrawn: 3}, got)
}

// poisoned is a cloud that can't tell the errors of one group.
type poisoned struct {
	http.RoundTripper
	path string
}

func (p poisoned) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, p.path) {
		return nil, errors.New("the connection broke")
	}
	return p.RoundTripper.RoundTrip(r)
}

// C28: a group whose errors can't be read keeps those of no other group from being told.
func TestC28_OneGroupThatTellsNothing(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, failing("a", 0, migstub.PoolDetails), failing("b", 0, migstub.PoolDetails))
	w.Provider = w.provider(poisoned{w.cloud.Transport(), "/a/listErrors"}, nil, "a", "b")
	require.NoError(t, w.raise("a", 3, 0))
	require.NoError(t, w.raise("b", 3, 0))
	told := 0
	for range 4 {
		w.pass(5 * time.Second)
		all, err := w.Status(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		told = len(all[1].Failures)
	}
	require.Positive(t, told)
}

// Another zone of a region has what one has not: that is a failure to be told, and
// the group goes on.
func TestC28_OneZoneOfARegion(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "wide", Region: regionName, TargetShape: migstub.ShapeAny,
		Faults: migstub.GroupFaults{Errors: []migstub.CreateError{{Code: migstub.PoolExhausted, Zone: regionName + "-c", Ratio: 1}}},
	})
	const wide = "regions/europe-west1/wide"
	require.NoError(t, w.raise(wide, 6, 0))
	s := w.status(wide)
	require.NotEmpty(t, s.Failures)
	require.Contains(t, s.Failures[0].Message, "ZONE_RESOURCE_POOL_EXHAUSTED in europe-west1-c")
	require.NotEmpty(t, w.list(wide))
}

// A failure is told while it is recent, also while the errors are not read, so that
// the host doesn't take it for a new one. Old ones are history.
func TestFailuresStayAndAge(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{
		{On: "listErrors", Reason: "backendError", After: 1},
	}}}, nil, failing("linux", 0, migstub.IPSpaceExhausted))
	require.NoError(t, w.raise("linux", 1, 0))
	first := w.status("linux").Failures
	require.Len(t, first, 1)
	require.Equal(t, pluginsdk.KindCapacity, first[0].Kind)
	require.Equal(t, w.at, first[0].At.UTC())
	w.pass(14 * time.Minute)
	require.Equal(t, first, w.status("linux").Failures)
	w.pass(time.Minute)
	require.Empty(t, w.status("linux").Failures)
}

// A steady group costs nothing but its place's list.
func TestErrorsOfSteadyGroupsAreNotRead(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 3))
	w.status("linux")
	require.Zero(t, w.cloud.CountOf("listErrors"))
	require.NoError(t, w.raise("linux", 4, 3))
	w.status("linux")
	w.pass(119 * time.Second)
	w.status("linux")
	require.Equal(t, 2, w.cloud.CountOf("listErrors"), "it grew lately")
	w.pass(2 * time.Second)
	w.status("linux")
	require.Equal(t, 2, w.cloud.CountOf("listErrors"))
}

// C31: a group says what Google allows in it, which the host never exceeds; a limit
// that was raised shows in the next poll.
func TestC31_MaxIsWhatGoogleAllows(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2), migstub.GroupConfig{Name: "big", Zone: zoneName, Size: 1_500, MaxSize: 3_000})
	require.Equal(t, 1_000, w.status("linux").Max)
	require.Equal(t, 1_500, w.status("big").Max)
	require.ErrorIs(t, w.raise("linux", 1_001, 2), pluginsdk.ErrInvalid)
	require.Equal(t, 2, w.view("linux").Target)
}

// C33: somebody sets the target. The next poll shows it, a call that expected
// another number is a conflict with the new one, and then it is asserted again.
func TestC33_SomebodyResizes(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 8))
	require.Equal(t, 8, w.cloud.SetSizeExternally("linux", 2))
	require.Equal(t, 2, w.status("linux").Desired)
	err := w.raise("linux", 9, 8)
	var conflict *pluginsdk.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, pluginsdk.KindConflict, conflict.Kind)
	require.Equal(t, 2, conflict.Observed)
	require.NoError(t, w.raise("linux", 8, 2))
	require.Equal(t, 8, w.view("linux").Target)
	require.ErrorIs(t, func() error { _, err := w.Withdraw(t.Context(), "linux", 2, "t"); return err }(), pluginsdk.ErrConflict)
}

// X05: a group that is converging takes writes in both directions.
func TestX05_AConvergingGroupTakesWrites(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 3, Faults: migstub.GroupFaults{Boot: migstub.Boot{P50: time.Hour}},
	})
	require.NoError(t, w.raise("linux", 5, 3))
	require.True(t, w.status("linux").InTransition)
	_, err := w.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: 6, Expected: 5, Token: "more"})
	require.NoError(t, err)
	results, err := w.Remove(t.Context(), "linux", w.ids("linux")[:1], "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes(results))
	require.Equal(t, 5, w.view("linux").Target)
}

// C18: instances that never register are removed by name, never by a number, so that
// the good ones stay.
func TestC18_TheBadOnesAreRemovedByName(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 4, Faults: migstub.GroupFaults{NeverRegister: migstub.NeverRegister{All: true}, Victim: migstub.Oldest},
	})
	good := w.ids("linux")
	require.NoError(t, w.raise("linux", 6, 4))
	results, err := w.Remove(t.Context(), "linux", w.ids("linux")[4:], "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.Removed}, outcomes(results))
	require.Equal(t, good, w.ids("linux"))
	require.Equal(t, 4, w.view("linux").Target)
}
