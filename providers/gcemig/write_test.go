package gcemig_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestSetDesired(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2))
	set := func(target, expected int) (int, error) {
		return w.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: target, Expected: expected, Token: "t"})
	}
	got, err := set(5, 2)
	require.NoError(t, err)
	require.Equal(t, 5, got)
	require.Equal(t, 5, w.view("linux").Target)
	got, err = set(5, 2)
	require.NoError(t, err, "it is so already: no conflict, whatever was expected")
	require.Equal(t, 5, got)
	require.Len(t, w.written(), 1)

	_, err = set(9, 3)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	var conflict *pluginsdk.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, 5, conflict.Observed)
	for _, c := range [][2]int{{4, 5}, {-1, 5}, {1 << 40, 5}, {1_001, 5}} {
		_, err = set(c[0], c[1])
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, "%v", c)
	}
	require.Equal(t, 5, w.view("linux").Target)
}

// C24: the group is never made smaller by a number, whoever would be hit.
func TestC24_LoweringIsRefused(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 3))
	err := w.raise("linux", 2, 3)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorContains(t, err, "name those that go")
	require.Empty(t, w.written())
	require.Len(t, w.ids("linux"), 3)
}

func TestRemoveByName(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 4, Faults: migstub.GroupFaults{Stop: time.Minute},
	})
	ids := w.ids("linux")
	ask := []string{ids[2], "1", "no-number", ids[0], ids[2]}
	results, err := w.Remove(t.Context(), "linux", ask, "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{
		pluginsdk.Removed, pluginsdk.AlreadyGone, pluginsdk.AlreadyGone, pluginsdk.Removed, pluginsdk.AlreadyGone,
	}, outcomes(results))
	for i := range ask {
		require.Equal(t, ask[i], results[i].ID)
	}
	require.Equal(t, 2, w.view("linux").Target)
	require.ElementsMatch(t, []string{ids[1], ids[3]}, w.ids("linux"))

	results, err = w.Remove(t.Context(), "linux", []string{ids[0]}, "u")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone}, outcomes(results), "it is ending already")
	require.Equal(t, 2, w.view("linux").Target)
	require.Len(t, w.written(), 1)
	none, err := w.Remove(t.Context(), "linux", nil, "v")
	require.NoError(t, err)
	require.Empty(t, none)
}

// The group skips what somebody else removed between the list and the deletion:
// desired does not fall for it, and nobody is told that it did.
func TestSkippedIsAlreadyGone(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 3))
	ids := w.ids("linux")
	w.Provider = w.provider(&before{on: "deleteInstances", next: w.cloud.Transport(), do: func() {
		_, err := w.provider(w.cloud.Transport(), nil, "linux").Remove(context.WithoutCancel(t.Context()), "linux", ids[:1], "other")
		require.NoError(t, err)
		require.NoError(t, w.raiseBy("linux", 1))
	}}, nil, "linux")
	results, err := w.Remove(t.Context(), "linux", ids[:2], "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone, pluginsdk.Removed}, outcomes(results))
	require.Equal(t, 2, w.view("linux").Target)
}

func (w *world) raiseBy(group string, n int) error {
	w.cloud.SetSizeExternally(group, w.view(group).Target+n)
	return nil
}

// X03: an instance that is gone does not fail the whole call.
func TestX03_OneThatIsGoneFailsNobody(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 3), zonal("other", 1))
	ids := w.ids("linux")
	require.True(t, w.cloud.DeleteInstanceExternally(ids[0]))
	results, err := w.Remove(t.Context(), "linux", append(ids[:2:2], w.ids("other")...), "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone, pluginsdk.Removed, pluginsdk.AlreadyGone}, outcomes(results))
	require.Len(t, w.ids("other"), 1, "an instance of another group was ended")
	require.Equal(t, 2, w.view("linux").Target)
}

// The same name with another number is another instance: what was said of the old
// one does not touch it.
func TestSameNameNewNumber(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2))
	old := w.cloud.Existing("linux")[0]
	require.True(t, w.cloud.Recreate(old.ID))
	fresh := w.cloud.Existing("linux")[0]
	require.Equal(t, old.Name, fresh.Name)
	require.NotEqual(t, old.ID, fresh.ID)
	var listed []string
	for _, i := range w.list("linux") {
		listed = append(listed, i.ID)
	}
	require.ElementsMatch(t, w.ids("linux"), listed)

	results, err := w.Remove(t.Context(), "linux", []string{old.ID}, "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.AlreadyGone}, outcomes(results))
	require.NoError(t, w.ReportUnhealthy(t.Context(), "linux", []string{old.ID}))
	require.Empty(t, w.written())
	results, err = w.Remove(t.Context(), "linux", []string{fresh.ID}, "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed}, outcomes(results))
}

// X21: the label is looked at on every path that ends an instance, as it is at that
// moment.
func TestX21_KeptInstances(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 2, Template: migstub.Template{Labels: map[string]string{"spillway-keep": "debugging"}},
	}, zonal("free", 1))
	for _, i := range w.list("linux") {
		require.True(t, i.Kept)
	}
	results, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
	require.NoError(t, err)
	for _, r := range results {
		require.Equal(t, pluginsdk.NotRemoved, r.Outcome)
		require.ErrorIs(t, r.Err, pluginsdk.ErrInvalid)
	}
	require.ErrorIs(t, w.ReportUnhealthy(t.Context(), "linux", w.ids("linux")[:1]), pluginsdk.ErrInvalid)
	require.Empty(t, w.written())
	require.False(t, w.list("free")[0].Kept)
}

func TestReportUnhealthyRecreates(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, migstub.GroupConfig{
		Name: "linux", Zone: zoneName, Size: 2, Faults: migstub.GroupFaults{Stop: time.Minute},
	})
	bad := w.cloud.Existing("linux")[0]
	for range 2 { // the second time it is being recreated: no second request
		require.NoError(t, w.ReportUnhealthy(t.Context(), "linux", []string{bad.ID, "7"}))
	}
	require.Len(t, w.written(), 1)
	require.Equal(t, 2, w.view("linux").Target)
	for _, i := range w.list("linux") {
		if i.ID == bad.ID {
			require.Equal(t, pluginsdk.StateDeleting, i.State)
		}
	}
	w.pass(2 * time.Minute)
	for _, i := range w.cloud.Existing("linux") {
		require.NotEqual(t, bad.ID, i.ID)
	}
}

// A write has an id that is the same for the same write and no other, so that one
// that arrives twice is done once.
func TestRequestIDs(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2), zonal("other", 2))
	requestID := func(do func()) string {
		t.Helper()
		before := len(w.written())
		do()
		calls := w.written()
		require.Len(t, calls, before+1)
		query, err := url.ParseQuery(calls[before].Query)
		require.NoError(t, err)
		return query.Get("requestId")
	}
	set := func(group string, target int, token string) string {
		return requestID(func() {
			_, err := w.SetDesired(t.Context(), pluginsdk.SetDesired{Group: group, Target: target, Expected: w.view(group).Target, Token: token})
			require.NoError(t, err)
		})
	}
	first := set("linux", 3, "a")
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), first)
	seen := map[string]bool{first: true}
	for _, id := range []string{set("other", 3, "a"), set("linux", 4, "a"), set("linux", 5, "b")} {
		require.False(t, seen[id], "%s is there twice", id)
		seen[id] = true
	}
	// The first one comes again, late: the group stays as it is.
	w.cloud.SetSizeExternally("linux", 2)
	require.Equal(t, first, set("linux", 3, "a"))
	require.Equal(t, 2, w.view("linux").Target)

	require.Empty(t, set("linux", 6, ""), "without a token it is never a repetition")
}

// What is accepted and not confirmed is not known, and never "throttled", which
// would mean that nothing was carried out.
func TestUnconfirmedWrites(t *testing.T) {
	for name, o := range map[string]migstub.Options{
		"slow":      {Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: time.Hour}}},
		"throttled": {Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: time.Hour}, Calls: []migstub.CallFault{{On: "zoneOperations.get", Reason: "rateLimitExceeded"}}}},
		"denied":    {Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: time.Hour}, Calls: []migstub.CallFault{{On: "zoneOperations.get", Reason: "forbidden"}}}},
		"lost":      {Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "resize", Do: migstub.DoLose}, {On: "deleteInstances", Do: migstub.DoDrop}, {On: "recreateInstances", Do: migstub.DoGarbage}}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o, nil, zonal("linux", 2))
			requireKind(t, pluginsdk.KindTransient, w.raise("linux", 3, 2))
			results, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
			if err == nil {
				require.Len(t, results, 2)
				for _, r := range results {
					require.Equal(t, pluginsdk.NotRemoved, r.Outcome)
					requireKind(t, pluginsdk.KindTransient, r.Err)
				}
			} else {
				requireKind(t, pluginsdk.KindTransient, err)
			}
			requireKind(t, pluginsdk.KindTransient, w.ReportUnhealthy(t.Context(), "linux", w.ids("linux")))
		})
	}
}

// An operation that is done later than the answer is waited for, and it is asked
// for a few times only.
func TestOperationsAreWaitedFor(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: 3 * time.Second}}}, nil, zonal("linux", 0))
	w.Provider = w.provider(&before{on: "operations", next: w.cloud.Transport(), do: func() { w.pass(time.Second) }}, nil, "linux")
	require.NoError(t, w.raise("linux", 2, 0))
	require.Equal(t, 3, w.cloud.CountOf("zoneOperations.get"))
	require.Equal(t, 2, w.view("linux").Target)
}

func TestOperationErrorsAreTyped(t *testing.T) {
	for code, want := range map[string]pluginsdk.Kind{
		"QUOTA_EXCEEDED": pluginsdk.KindQuota, "ZONE_RESOURCE_POOL_EXHAUSTED": pluginsdk.KindCapacity,
		"PERMISSIONS_ERROR": pluginsdk.KindInvalid, "RESOURCE_NOT_FOUND": pluginsdk.KindInvalid, "INTERNAL_ERROR": pluginsdk.KindTransient,
	} {
		w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "resize", Do: migstub.DoOperation, Reason: code}}}}, nil, zonal("linux", 1))
		err := w.raise("linux", 2, 1)
		requireKind(t, want, err)
		require.ErrorContains(t, err, code)
	}
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "deleteInstances", Do: migstub.DoOperation, Reason: "PERMISSIONS_ERROR"}}}}, nil, zonal("linux", 1))
	_, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
	requireKind(t, pluginsdk.KindInvalid, err)
	require.Len(t, w.ids("linux"), 1)
}

// The largest call is one request of the cloud.
func TestAThousandAtOnce(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", pluginsdk.MaxInstancesPerCall))
	results, err := w.Remove(t.Context(), "linux", w.ids("linux"), "t")
	require.NoError(t, err)
	for _, r := range results {
		require.Equal(t, pluginsdk.Removed, r.Outcome)
	}
	require.Len(t, w.written(), 1)
	require.Contains(t, w.written()[0].Body, `"skipInstancesOnValidationError":true`)
	require.Equal(t, pluginsdk.MaxInstancesPerCall, strings.Count(w.written()[0].Body, "/instances/"))
	require.Zero(t, w.view("linux").Target)
}
