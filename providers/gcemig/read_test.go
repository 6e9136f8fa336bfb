package gcemig_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestStatus(t *testing.T) {
	paged := group("paged", 1, true)
	paged["listManagedInstancesResults"] = "PAGINATED"
	a := &api{groups: []map[string]any{group("steady", 2, true), group("moving", 1, false), group("huge", 1_500, true), group("foreign", 3, true), paged}}
	p := serve(t, a, "steady", "moving", "huge", "absent", "paged")
	got, err := p.Status(t.Context(), []string{"absent", "steady", "moving", "huge", "foreign", "paged"})
	require.NoError(t, err)
	require.Len(t, got, 6)
	require.ErrorIs(t, got[0].Err, pluginsdk.ErrNotFound)
	require.Equal(t, pluginsdk.GroupStatus{Group: "steady", Desired: 2, Max: 1_000}, got[1])
	require.Equal(t, pluginsdk.GroupStatus{Group: "moving", Desired: 1, Max: 1_000, InTransition: true}, got[2])
	require.Equal(t, pluginsdk.GroupStatus{Group: "huge", Desired: 1_500, Max: 1_500}, got[3])
	require.ErrorIs(t, got[4].Err, pluginsdk.ErrNotFound, "a group that was not configured was read")
	require.Equal(t, 2_000, got[5].Max)
	require.EqualValues(t, 2, a.calls.Load(), "one list, and the errors of the one that is not stable")
}

// One process has zonal and regional groups; each place is listed once.
func TestZonalAndRegionalGroupsInOneProcess(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2), zonal("arm", 0),
		migstub.GroupConfig{Name: "linux-r", Region: regionName, Size: 3},
		migstub.GroupConfig{Name: "far", Zone: "us-east1-c", Size: 1})
	const wide, far = "regions/europe-west1/linux-r", "zones/us-east1-c/far"
	got, err := w.Status(t.Context(), []string{far, "linux", wide, "arm", "regions/europe-west1/linux"})
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.GroupStatus{
		{Group: far, Desired: 1, Max: 1_000}, {Group: "linux", Desired: 2, Max: 1_000}, {Group: wide, Desired: 3, Max: 2_000}, {Group: "arm", Max: 1_000},
	}, got[:4])
	require.ErrorIs(t, got[4].Err, pluginsdk.ErrNotFound)
	require.Len(t, w.cloud.Calls(), 3)

	zones := map[string]bool{}
	for _, i := range w.list(wide) {
		zones[i.Zone] = true
		require.Equal(t, w.at, i.LaunchedAt)
	}
	require.Len(t, zones, 3)
	require.NoError(t, w.raise(wide, 4, 3))
	results, err := w.Remove(t.Context(), wide, w.ids("linux-r")[:2], "t")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.Removed}, outcomes(results))
	require.Equal(t, 2, w.view("linux-r").Target)
}

// A place that can't be read has its groups fail, and no other's.
func TestOnePlaceFails(t *testing.T) {
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Calls: []migstub.CallFault{
		{On: "regionInstanceGroupManagers.list", Reason: "backendError"},
	}}}, nil, zonal("linux", 2), migstub.GroupConfig{Name: "wide", Region: regionName})
	got, err := w.Status(t.Context(), []string{"regions/europe-west1/wide", "linux"})
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, pluginsdk.ErrTransient)
	require.NoError(t, got[1].Err)
	got, err = w.Status(t.Context(), []string{"regions/europe-west1/wide"})
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.Nil(t, got)
}

// The table of states: what the group does with an instance, and what the VM says.
func TestStates(t *testing.T) {
	cases := []struct {
		action, own string
		want        pluginsdk.InstanceState
	}{
		{"NONE", "RUNNING", pluginsdk.StateRunning},
		{"VERIFYING", "RUNNING", pluginsdk.StateRunning},
		{"REFRESHING", "RUNNING", pluginsdk.StateRunning},
		{"CREATING", "PROVISIONING", pluginsdk.StateCreating},
		{"CREATING_WITHOUT_RETRIES", "STAGING", pluginsdk.StateCreating},
		{"CREATING", "STOPPING", pluginsdk.StateDeleting},
		{"RECREATING", "RUNNING", pluginsdk.StateDeleting},
		{"RECREATING", "STOPPING", pluginsdk.StateDeleting},
		{"RECREATING", "TERMINATED", pluginsdk.StateDeleting},
		{"RECREATING", "PROVISIONING", pluginsdk.StateCreating},
		{"RECREATING", "STAGING", pluginsdk.StateCreating},
		{"STARTING", "STAGING", pluginsdk.StateCreating},
		{"RESUMING", "SUSPENDED", pluginsdk.StateCreating},
		{"NONE", "PENDING", pluginsdk.StateCreating},
		{"NONE", "PROVISIONING", pluginsdk.StateCreating},
		{"NONE", "STAGING", pluginsdk.StateCreating},
		{"DELETING", "RUNNING", pluginsdk.StateDeleting},
		{"DELETING", "STOPPING", pluginsdk.StateDeleting},
		{"DELETING", "", pluginsdk.StateDeleting},
		{"NONE", "STOPPING", pluginsdk.StateDeleting},
		{"NONE", "PENDING_STOP", pluginsdk.StateDeleting},
		{"NONE", "DEPROVISIONING", pluginsdk.StateDeleting},
		{"ABANDONING", "RUNNING", pluginsdk.StateUnknown},
		{"RESTARTING", "RUNNING", pluginsdk.StateUnknown},
		{"STOPPING", "RUNNING", pluginsdk.StateUnknown},
		{"SOMETHING_NEW", "RUNNING", pluginsdk.StateUnknown},
		{"NONE", "SUSPENDED", pluginsdk.StateUnknown},
		{"NONE", "REPAIRING", pluginsdk.StateUnknown},
		{"NONE", "SOMETHING_NEW", pluginsdk.StateUnknown},
	}
	a := &api{instances: map[string][]map[string]any{"empty": nil}}
	var managed []map[string]any
	for i, c := range cases {
		managed = append(managed, vm(i+1, fmt.Sprintf("linux-%d", i), c.action, c.own))
	}
	sick, preempted := vm(101, "linux-sick", "NONE", "RUNNING"), vm(102, "linux-gone", "NONE", "TERMINATED")
	sick["instanceHealth"] = []any{map[string]any{"detailedHealthState": "HEALTHY"}, map[string]any{"detailedHealthState": "UNHEALTHY"}}
	a.instances["linux"] = append(managed, sick, preempted, vm(0, "linux-never", "CREATING", ""))

	p := serve(t, a, "linux", "empty", "absent")
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, len(managed)+2, "one without a VM is no instance")
	for i, c := range cases {
		want := pluginsdk.Instance{ID: strconv.Itoa(i + 1), State: c.want, Zone: "europe-west1-b", Unhealthy: c.own == "TERMINATED"}
		require.Equal(t, want, list[i], "%v", c)
	}
	require.Equal(t, pluginsdk.Instance{ID: "101", State: pluginsdk.StateRunning, Zone: "europe-west1-b", Unhealthy: true}, list[len(cases)])
	require.Equal(t, pluginsdk.Instance{ID: "102", State: pluginsdk.StateUnknown, Zone: "europe-west1-b", Unhealthy: true}, list[len(cases)+1])
	require.Equal(t, []string{`name eq "(linux-).*"`}, a.filters)

	list, err = p.ListInstances(t.Context(), "empty")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, name := range []string{"absent", "not-configured"} {
		_, err = p.ListInstances(t.Context(), name)
		require.ErrorIs(t, err, pluginsdk.ErrNotFound)
	}
}

// Spot, the launch, the address and the label come from the VM itself. They are read again when
// there is an instance that is not known yet, or after a minute.
func TestDetailsOfInstances(t *testing.T) {
	a := &api{
		instances: map[string][]map[string]any{"linux": {vm(1, "linux-a", "NONE", "RUNNING"), vm(2, "linux-b", "NONE", "RUNNING"), vm(3, "linux-c", "NONE", "RUNNING")}},
		vms: []map[string]any{
			{"id": "1", "name": "linux-a", "creationTimestamp": "2026-01-02T03:04:05.000-08:00", "scheduling": map[string]any{"provisioningModel": "SPOT"}},
			{"id": "2", "name": "linux-b", "creationTimestamp": "nonsense", "scheduling": map[string]any{"preemptible": true}, "labels": map[string]any{"spillway-keep": ""}, "networkInterfaces": []any{}},
			{"id": "3", "name": "linux-c", "networkInterfaces": []any{
				map[string]any{"name": "nic0", "networkIP": "10.132.0.7"}, map[string]any{"name": "nic1", "networkIP": "10.9.0.7"},
			}},
			{"id": "4", "name": "linux-other", "labels": map[string]any{"spillway-keep": "yes"}},
		},
	}
	p := serve(t, a, "linux")
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	at := list[0].LaunchedAt
	require.True(t, at.Equal(time.Date(2026, 1, 2, 11, 4, 5, 0, time.UTC)), "%s", at)
	list[0].LaunchedAt = time.Time{}
	const where = "europe-west1-b"
	require.Equal(t, []pluginsdk.Instance{
		{ID: "1", State: pluginsdk.StateRunning, Zone: where, Spot: true},
		{ID: "2", State: pluginsdk.StateRunning, Zone: where, Spot: true, Kept: true},
		{ID: "3", State: pluginsdk.StateRunning, Zone: where, Address: "10.132.0.7"},
	}, list)
	_, err = p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, a.filters, 1, "nothing was new")
	a.instances["linux"] = append(a.instances["linux"], vm(5, "linux-d", "CREATING", "STAGING"))
	_, err = p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, a.filters, 2)
}

func TestLabelsInAListAreAMinuteOldAtMost(t *testing.T) {
	w := newWorld(t, migstub.Options{}, nil, zonal("linux", 2))
	for _, reads := range []int{1, 1, 2} {
		w.list("linux")
		require.Equal(t, reads, w.cloud.CountOf("instances.list"))
		w.pass(31 * time.Second)
	}
}

// large needs several pages for its groups and for the instances of one.
func large() *api {
	a := &api{pageSize: 3, instances: map[string][]map[string]any{}}
	for i := range 10 {
		a.groups = append(a.groups, group(fmt.Sprintf("group-%d", i), i, true))
		a.instances["group-0"] = append(a.instances["group-0"], vm(i+1, fmt.Sprintf("vm-%d", i), "NONE", "RUNNING"))
		a.vms = append(a.vms, map[string]any{"id": strconv.Itoa(i + 1), "labels": map[string]any{"spillway-keep": ""}})
	}
	return a
}

// More instances than a page holds: each is there, once.
func TestX07_AllPages(t *testing.T) {
	a := &api{pageSize: 50, groups: []map[string]any{group("linux", 205, true)}, instances: map[string][]map[string]any{}}
	var want, got []string
	for i := range 205 {
		a.instances["linux"] = append(a.instances["linux"], vm(i+1, fmt.Sprintf("vm-%d", i), "NONE", "RUNNING"))
		a.vms = append(a.vms, map[string]any{"id": strconv.Itoa(i + 1)})
		want = append(want, strconv.Itoa(i+1))
	}
	list, err := serve(t, a, "linux").ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	for _, in := range list {
		got = append(got, in.ID)
	}
	require.ElementsMatch(t, want, got)
}

// An endpoint that says for ever that there is more: the call ends with its time or
// its budget, and it is an error.
func TestX07_PagesWithoutEndAreAnError(t *testing.T) {
	a := large()
	a.endless = true
	ctx, cancel := context.WithCancel(t.Context())
	a.failFrom, a.fail = 10, func(_ http.ResponseWriter, r *http.Request) {
		cancel() // its time is over
		<-r.Context().Done()
	}
	list, err := serve(t, a, "group-0").ListInstances(ctx, "group-0")
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.Nil(t, list, "a part is no list")
	require.EqualValues(t, 10, a.calls.Load(), "it followed the pages")
}

func TestC35_AllPages(t *testing.T) {
	a := large()
	p := serve(t, a, "group-0", "group-9")
	statuses, err := p.Status(t.Context(), []string{"group-9"})
	require.NoError(t, err)
	require.NoError(t, statuses[0].Err)
	require.Equal(t, 9, statuses[0].Desired)
	list, err := p.ListInstances(t.Context(), "group-0")
	require.NoError(t, err)
	require.Len(t, list, 10)
	for _, i := range list {
		require.True(t, i.Kept, "%s", i.ID)
	}
	require.EqualValues(t, 4+4+4, a.calls.Load())
}

// A failure on any page is a failure of the whole: a part would look like groups
// or instances that are gone.
func TestC35_AFailureOnALaterPageIsNoPart(t *testing.T) {
	for failFrom := 1; failFrom <= 4; failFrom++ {
		a := large()
		a.fail, a.failFrom = failure(http.StatusServiceUnavailable, "backendError"), failFrom
		p := serve(t, a, "group-0")
		statuses, err := p.Status(t.Context(), []string{"group-0"})
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.Nil(t, statuses)
		require.EqualValues(t, failFrom, a.calls.Load(), "it was asked again")

		a.calls.Store(0)
		list, err := p.ListInstances(t.Context(), "group-0")
		require.ErrorIs(t, err, pluginsdk.ErrTransient)
		require.Nil(t, list)
	}
}

// 120 groups cost one list, each poll.
func TestC35_ManyGroupsCostOneList(t *testing.T) {
	var groups []migstub.GroupConfig
	var names []string
	for i := range 120 {
		groups = append(groups, zonal(fmt.Sprintf("g%d", i), 1))
		names = append(names, groups[i].Name)
	}
	w := newWorld(t, migstub.Options{}, nil, groups...)
	got, err := w.Status(t.Context(), names)
	require.NoError(t, err)
	for _, s := range got {
		require.NoError(t, s.Err)
	}
	require.Len(t, w.cloud.Calls(), 1)
}
