package migstub_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
)

func TestFaultsOfCalls(t *testing.T) {
	for name, c := range map[string]struct {
		fault  migstub.CallFault
		status int
		reason any
	}{
		"over the rate":      {migstub.CallFault{On: "resize", Reason: "rateLimitExceeded"}, 403, "rateLimitExceeded"},
		"over the rate, 429": {migstub.CallFault{On: "instanceGroupManagers.resize", Reason: "rateLimitExceeded", Status: 429}, 429, "rateLimitExceeded"},
		"unavailable":        {migstub.CallFault{Reason: "backendError"}, 503, "backendError"},
		"condition":          {migstub.CallFault{On: "resize", Reason: "conditionNotMet"}, 412, "conditionNotMet"},
		"not ready":          {migstub.CallFault{On: "resize", Reason: "resourceNotReady"}, 400, "resourceNotReady"},
		"not ready, 412":     {migstub.CallFault{On: "resize", Reason: "resourceNotReady", Status: 412}, 412, "resourceNotReady"},
		"denied":             {migstub.CallFault{On: "resize", Reason: "forbidden"}, 403, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{c.fault}}}, linuxGroup(1, migstub.GroupFaults{}))
			status, answer := w.do("POST", linux+"/resize?size=2", nil)
			require.Equal(t, c.status, status)
			require.Equal(t, c.reason, reason(answer))
			require.Equal(t, 1, w.Live("linux"), "it was done all the same")
			status, _ = w.do("GET", linux, nil)
			require.Equal(t, c.fault.On == "", status != http.StatusOK, "other calls")
		})
	}
}

func TestWindowsAndCountsOfFaults(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{
		{On: "get", Reason: "backendError", From: time.Minute, To: 2 * time.Minute, After: 1, Times: 2, RetryAfter: 7 * time.Second},
	}}}, linuxGroup(1, migstub.GroupFaults{}))
	statuses := func(n int) (list []int) {
		for range n {
			status, _ := w.do("GET", linux, nil)
			list = append(list, status)
		}
		return list
	}
	require.Equal(t, []int{200, 200}, statuses(2))
	w.after(time.Minute)
	require.Equal(t, []int{200, 503, 503, 200}, statuses(4))
	w.after(time.Minute)
	require.Equal(t, []int{200}, statuses(1))
}

func TestThrottlingAShare(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{ThrottlePct: 30}}, linuxGroup(1, migstub.GroupFaults{}))
	throttled := 0
	for range 1_000 {
		if status, _ := w.do("GET", linux, nil); status == http.StatusForbidden {
			throttled++
		}
	}
	require.InDelta(t, 300, throttled, 60)
}

// An answer that is lost was a deed: the same request id finds it.
func TestALostAnswer(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "deleteInstances", Do: migstub.DoLose, Times: 1}}}},
		linuxGroup(3, migstub.GroupFaults{}))
	body := object{"instances": []string{w.name("linux")}}
	const path = linux + "/deleteInstances?requestId=11111111-1111-4111-8111-111111111111"
	_, _, err := w.try("POST", path, body)
	require.ErrorIs(t, err, migstub.ErrNoAnswer)
	require.Equal(t, 2, w.Live("linux"))
	require.Equal(t, "DONE", w.post(path, body)["status"])
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
	require.Equal(t, []int{0, 200}, []int{w.Calls()[0].Status, w.Calls()[1].Status})
}

func TestCallsWithoutAnAnswer(t *testing.T) {
	for _, do := range []migstub.Do{migstub.DoHang, migstub.DoDrop} {
		w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{On: "resize", Do: do}}}}, linuxGroup(1, migstub.GroupFaults{}))
		_, _, err := w.try("POST", linux+"/resize?size=2", nil)
		require.ErrorIs(t, err, migstub.ErrNoAnswer)
		require.Equal(t, 1, w.Live("linux"))
	}
	// On a socket it hangs until the caller has had enough.
	serve := func(do migstub.Do) *httptest.Server {
		server := httptest.NewServer(migstub.New(migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{{Do: do}}}}))
		t.Cleanup(server.Close)
		return server
	}
	server := serve(migstub.DoHang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+zonal+"operations", nil)
	require.NoError(t, err)
	_, err = server.Client().Do(r) //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, context.DeadlineExceeded)
	server = serve(migstub.DoGarbage)
	resp, err := server.Client().Get(server.URL + zonal + "operations")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}

func TestOperationsTakeTimeAndFail(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{
		Operations: migstub.OperationTimes{Pending: 2 * time.Second, Running: 3 * time.Second},
		Calls:      []migstub.CallFault{{On: "resize", Do: migstub.DoOperation, Reason: "RESOURCE_OPERATION_RATE_EXCEEDED", After: 1}},
	}}, linuxGroup(1, migstub.GroupFaults{}))
	op := w.resize("2")
	status := func(op object) any { return w.get("operations/" + op["name"].(string))["status"] } //nolint:forcetypeassert // the schema says so
	require.Equal(t, "PENDING", op["status"])
	w.after(2 * time.Second)
	require.Equal(t, "RUNNING", status(op))
	require.Equal(t, "RUNNING", w.post("operations/"+op["name"].(string)+"/wait", nil)["status"], "nobody waits on a virtual clock") //nolint:forcetypeassert // the schema says so
	require.EqualValues(t, 1, w.get(linux)["targetSize"], "it is not done yet")
	w.after(3 * time.Second)
	require.Equal(t, "DONE", status(op))
	require.EqualValues(t, 2, w.get(linux)["targetSize"])

	op = w.resize("3")
	w.after(5 * time.Second)
	failed := w.get("operations/" + op["id"].(string)) //nolint:forcetypeassert // the schema says so
	require.Equal(t, "RESOURCE_OPERATION_RATE_EXCEEDED", at(failed, "error", "errors", "code"))
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
}

// On the wall clock, wait waits for an operation.
func TestWaitWaits(t *testing.T) {
	c := migstub.New(migstub.Options{Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: 100 * time.Millisecond}}})
	c.AddGroup(linuxGroup(1, migstub.GroupFaults{}))
	w := &world{Cloud: c, t: t}
	op := w.resize("2")
	require.Equal(t, "RUNNING", op["status"])
	require.Equal(t, "DONE", w.post("operations/"+op["name"].(string)+"/wait", nil)["status"]) //nolint:forcetypeassert // the schema says so
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
}

func TestListsLag(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{ListLag: 10 * time.Second}))
	old := w.name("linux")
	require.Len(t, w.managed(), 1)
	w.resize("2")
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
	require.Len(t, w.managed(), 1)
	w.after(10 * time.Second)
	require.Len(t, w.managed(), 2)
	w.post(linux+"/deleteInstances", object{"instances": []string{old}})
	require.Equal(t, "DELETING", w.managed()[old]["currentAction"], "it is gone and still listed")
	w.after(10 * time.Second)
	require.NotContains(t, w.managed(), old)
}

func TestLateAndPartialFill(t *testing.T) {
	for late, want := range map[time.Duration]int{0: 8, time.Hour: 12} {
		w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{Missing: 0.4, LateFill: late}))
		w.resize("12")
		require.Equal(t, 8, w.Live("linux"))
		require.EqualValues(t, 4, at(w.get(linux), "currentActions", "creating"))
		w.after(2 * time.Hour)
		require.Equal(t, want, w.Live("linux"))
		require.EqualValues(t, 12, w.get(linux)["targetSize"], "the group wants them for ever")
	}
}

func TestNeverRegister(t *testing.T) {
	for name, c := range map[string]struct {
		never migstub.NeverRegister
		want  int
	}{
		"every fifth": {migstub.NeverRegister{Every: 5}, 8},
		"all":         {migstub.NeverRegister{All: true}, 0},
		"none":        {migstub.NeverRegister{}, 10},
	} {
		w := newWorld(t, migstub.Options{}, linuxGroup(0, migstub.GroupFaults{NeverRegister: c.never}))
		w.resize("10")
		registered := 0
		for _, ch := range w.told {
			if ch.Kind == migstub.Ready && ch.Registers {
				registered++
			}
		}
		require.Equal(t, c.want, registered, name)
	}
}

// Autohealing recreates: the same name, and another id unless a fault says no.
func TestAutohealingRecreates(t *testing.T) {
	for _, keep := range []bool{false, true} {
		faults := booting(time.Minute)
		faults.Recreate = migstub.Recreate{Every: 2, After: 5 * time.Minute, KeepID: keep}
		w := newWorld(t, migstub.Options{}, linuxGroup(0, faults))
		w.resize("2")
		was := w.Existing("linux")[1]
		before := w.get("instances/" + was.Name)
		w.after(6 * time.Minute)
		ended := w.told[len(w.told)-2]
		require.Equal(t, migstub.ByRepair, ended.Cause)
		require.Equal(t, was.ID, ended.ID)
		require.Equal(t, was.Name, w.told[len(w.told)-1].Name)
		now := w.get("instances/" + was.Name)
		require.Equal(t, keep, was.ID == now["id"])
		require.Equal(t, keep, before["creationTimestamp"] == now["creationTimestamp"])
		require.NotEqual(t, before["lastStartTimestamp"], now["lastStartTimestamp"])
		require.Len(t, w.get("operations?filter=operationType%3Dcompute.instances.repair.recreateInstance")["items"], 1)
		require.Equal(t, 2, w.Live("linux"))
	}
}

func TestPagesAreAsSmallAsAFaultSays(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{PageSize: 2}}, linuxGroup(5, migstub.GroupFaults{}))
	names, token := map[any]bool{}, ""
	for range 3 {
		page := w.get("instances?maxResults=100&pageToken=" + token)
		for _, item := range page["items"].([]any) { //nolint:forcetypeassert // the schema says so
			names[at(item, "name")] = true
		}
		token, _ = page["nextPageToken"].(string)
	}
	require.Len(t, names, 5)
	require.Empty(t, token)
}

func TestFilters(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}),
		migstub.GroupConfig{Name: "linux-spot", Zone: zone, Size: 2}, migstub.GroupConfig{Name: "windows", Zone: zone})
	for filter, want := range map[string]int{
		"name = linux":                     1,
		"name=\"linux\"":                   1,
		"(name eq linux.*)":                2,
		"name ne linux":                    2,
		"name != windows":                  2,
		"name:lin":                         2,
		"status.isStable = true":           3,
		"(name eq lin.*) (targetSize = 2)": 1,
		"name eq lin.* AND targetSize = 1": 1,
		"name eq \"(linux).*\"":            2,
		"(name eq (linux)(-spot)?)":        2,
		"((name eq lin.*) AND (name:t))":   1,
		"statefulPolicy:*":                 0,
		"fingerprint:*":                    3,
	} {
		list := w.get("instanceGroupManagers?filter=" + url.QueryEscape(filter))
		items, _ := list["items"].([]any)
		require.Len(t, items, want, filter)
	}
	for _, filter := range []string{"name", "name = a OR name = b", "NOT name = a", "name eq (", "= a", "(name = a", "()", "(name = a) OR (name = b)"} {
		status, _ := w.do("GET", "instanceGroupManagers?filter="+url.QueryEscape(filter), nil)
		require.Equal(t, 400, status, filter)
	}
}

func TestAggregatedLists(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{}), migstub.GroupConfig{Name: "windows", Region: region, Size: 3})
	groups := w.get("/compute/v1/projects/p/aggregated/instanceGroupManagers?includeAllScopes=true")
	require.Equal(t, "linux", at(groups, "items", "zones/"+zone, "instanceGroupManagers", "name"))
	require.Equal(t, "windows", at(groups, "items", "regions/"+region, "instanceGroupManagers", "name"))
	instances := w.get("/compute/v1/projects/p/aggregated/instances")
	require.Len(t, at(instances, "items", "zones/"+zone, "instances"), 3)
	require.Len(t, w.get("/compute/v1/projects/p/zones")["items"], 3)
	require.Len(t, w.get("/compute/v1/projects/p/regions")["items"], 1)
	require.EqualValues(t, 2, at(w.get("instanceGroups"), "items", "size"))
}

func TestSomebodyResizes(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(8, migstub.GroupFaults{}))
	require.Equal(t, 8, w.SetSizeExternally("linux", 2))
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
	require.Len(t, w.told, 6)
	require.Equal(t, migstub.BySomebody, w.told[0].Cause)
	require.Zero(t, w.SetSizeExternally("absent", 2))
	require.Empty(t, w.Existing("absent"))
	require.Zero(t, w.Live("absent"))
	_, ok := w.Group("absent")
	require.False(t, ok)
	for _, deed := range []bool{w.Preempt("absent", 0), w.Recreate("absent"), w.Maintenance("absent"), w.DeleteInstanceExternally("absent")} {
		require.False(t, deed)
	}
}
