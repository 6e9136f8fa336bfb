package migstub_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
)

func linuxGroup(size int, faults migstub.GroupFaults) migstub.GroupConfig {
	return migstub.GroupConfig{Name: "linux", Zone: zone, Size: size, Faults: faults}
}

func booting(d time.Duration) migstub.GroupFaults {
	return migstub.GroupFaults{Boot: migstub.Boot{P50: d}}
}

// Each behaviour and the page that documents it: of the API's reference under
// cloud.google.com/compute/docs/reference/rest/v1, unless it begins otherwise.
func TestDocumentedBehaviour(t *testing.T) {
	for _, b := range []struct {
		name, page string
		test       func(t *testing.T)
	}{
		{"resize is done before instances are", "instanceGroupManagers/resize", resizeIsDoneFirst},
		{"a resize down chooses", "instanceGroupManagers/resize", resizeDownChooses},
		{"a request id works once", "instanceGroupManagers/resize", requestIDWorksOnce},
		{"request ids are UUIDs", "instanceGroupManagers/resize", requestIDsAreUUIDs},
		{"deleteInstances lowers the target size", "instanceGroupManagers/deleteInstances", deleteLowersTarget},
		{"deleteInstances is all or nothing", "instanceGroupManagers/deleteInstances", deleteIsAllOrNothing},
		{"at most 1000 are named", "instanceGroupManagers/deleteInstances", namesAreLimited},
		{"URLs or names, not both", "instanceGroupManagers/deleteInstances", urlsOrNames},
		{"what has no machine is deleted by name", "instanceGroupManagers/deleteInstances", queuedByName},
		{"abandoned instances go on", "instanceGroupManagers/abandonInstances", abandonedGoOn},
		{"recreated instances keep their name", "instanceGroupManagers/recreateInstances", recreatedKeepName},
		{"creating is tried for ever", "instanceGroupManagers/listManagedInstances", createIsTriedForEver},
		{"errors are listed", "instanceGroupManagers/listErrors", errorsAreListed},
		{"lists of managed instances are pageless", "instanceGroupManagers (listManagedInstancesResults)", pagelessUnlessAsked},
		{"stable means nothing changes", "instanceGroupManagers (status.isStable)", stability},
		{"the fingerprint changes with writes", "instanceGroupManagers (fingerprint)", fingerprints},
		{"deleted machines are repaired", "compute/docs/instance-groups/about-repair", deletedIsRepaired},
		{"repair can be forbidden", "instanceGroupManagers (instanceLifecyclePolicy)", repairForbidden},
		{"health checks have a rule of their own", "instanceGroupManagers (instanceLifecyclePolicy.onFailedHealthCheck)", healthRules},
		{"preempted machines come back", "compute/docs/instances/spot", preemptedComeBack},
		{"maintenance moves or ends", "instances (scheduling.onHostMaintenance)", maintenance},
		{"spot is told by scheduling", "instances (scheduling.provisioningModel)", spotIsTold},
		{"regional groups are even", "compute/docs/instance-groups/regional-mig-distribution-shape", evenHoldsOn},
		{"other shapes go where there is capacity", "compute/docs/instance-groups/regional-mig-distribution-shape", balancedGoesElsewhere},
		{"an autoscaler is seen", "autoscalers", autoscalerIsSeen},
		{"rate quotas are per minute of the clock", "compute/docs/api-rate-limits", rateQuota},
	} {
		t.Run(b.name, b.test)
	}
}

func resizeIsDoneFirst(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, booting(time.Minute)))
	op := w.resize("3")
	require.Equal(t, "DONE", op["status"])
	require.Equal(t, "compute.instanceGroupManagers.resize", op["operationType"])
	g := w.get(linux)
	require.EqualValues(t, 3, g["targetSize"])
	require.EqualValues(t, 2, at(g, "currentActions", "creating"))
	require.Equal(t, 3, w.Live("linux"))
	w.after(time.Minute)
	require.EqualValues(t, 3, at(w.get(linux), "currentActions", "none"))
	status, answer := w.do("POST", linux+"/resize?size=1001", nil)
	require.Equal(t, 400, status, answer)
}

func resizeDownChooses(t *testing.T) {
	for victim, dies := range map[migstub.Victim]int{migstub.BusyFirst: 1, migstub.Oldest: 0} {
		w := newWorld(t, migstub.Options{}, linuxGroup(3, migstub.GroupFaults{Victim: victim}))
		was := w.Existing("linux")
		w.Busy = func(id string) bool { return id == was[1].ID }
		w.resize("2")
		require.Equal(t, []migstub.Change{{
			At: w.at, Kind: migstub.Ended, Group: "linux", ID: was[dies].ID, Name: was[dies].Name, Zone: zone, Cause: migstub.ByScaleIn,
		}}, w.told, "victim %s", victim)
	}
	// What has no machine goes first, whoever else is busy.
	w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{Victim: migstub.BusyFirst, Missing: 1}))
	w.Busy = func(string) bool { return true }
	w.resize("4")
	w.resize("2")
	require.Empty(t, w.told)
	require.Len(t, w.managed(), 2)
}

func requestIDWorksOnce(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}))
	const id = "&requestId=11111111-1111-4111-8111-111111111111"
	first := w.resize("2" + id)
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
	w.resize("5")
	require.Equal(t, first["name"], w.resize("3" + id)["name"], "the second request is ignored, whatever it says")
	require.EqualValues(t, 5, w.get(linux)["targetSize"])

	body := object{"instances": []string{w.name("linux")}}
	for range 2 {
		w.post(linux+"/deleteInstances?requestId=11111111-1111-4111-8111-111111111111", body)
	}
	require.EqualValues(t, 4, w.get(linux)["targetSize"])
}

func requestIDsAreUUIDs(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}))
	for _, id := range []string{"7", "00000000-0000-0000-0000-000000000000", "11111111-1111-4111-8111-11111111111g", "11111111+1111-4111-8111-111111111111"} {
		status, answer := w.do("POST", linux+"/resize?size=2&requestId="+id, nil)
		require.Equal(t, 400, status, answer)
	}
	require.EqualValues(t, 1, w.get(linux)["targetSize"])
}

func deleteLowersTarget(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(3, migstub.GroupFaults{Stop: 20 * time.Second}))
	victim := w.Existing("linux")[1]
	w.post(linux+"/deleteInstances", object{"instances": []string{"zones/" + zone + "/instances/" + victim.Name}})
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
	require.Equal(t, "DELETING", w.managed()[victim.Name]["currentAction"])
	require.Equal(t, "STOPPING", w.managed()[victim.Name]["instanceStatus"])
	require.Equal(t, "DELETED", w.managed()[victim.Name]["targetStatus"])
	require.Equal(t, migstub.ByName, w.told[0].Cause)
	require.Equal(t, victim.ID, w.told[0].ID)
	w.after(20 * time.Second)
	require.NotContains(t, w.managed(), victim.Name)
	require.Len(t, w.told, 1)
}

func deleteIsAllOrNothing(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{Stop: time.Minute}))
	mine := w.name("linux")
	op := w.post(linux+"/deleteInstances", object{"instances": []string{mine, "linux-zzzz"}})
	require.NotNil(t, at(op, "error", "errors", "code"))
	require.EqualValues(t, 400, op["httpErrorStatusCode"])
	require.EqualValues(t, 2, w.get(linux)["targetSize"])

	skip := object{"instances": []string{mine, "linux-zzzz", mine}, "skipInstancesOnValidationError": true}
	op = w.post(linux+"/deleteInstances", skip)
	require.Nil(t, op["error"])
	require.EqualValues(t, 1, w.get(linux)["targetSize"])
	op = w.post(linux+"/deleteInstances", object{"instances": []string{mine}})
	require.NotNil(t, op["error"], "it is being deleted already")
	require.Nil(t, w.post(linux+"/deleteInstances", skip)["error"])
	require.EqualValues(t, 1, w.get(linux)["targetSize"])

	// Another place and a malformed URL always fail.
	op = w.post(linux+"/deleteInstances", object{"instances": []string{"zones/us-east1-b/instances/x"}, "skipInstancesOnValidationError": true})
	require.NotNil(t, op["error"])
	for _, url := range []string{"zones/x", "projects/other/zones/" + zone + "/instances/x", "a/b/c/d", ""} {
		status, answer := w.do("POST", linux+"/deleteInstances", object{"instances": []string{url}})
		require.Equal(t, 400, status, "%q %v", url, answer)
	}
}

func namesAreLimited(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(0, migstub.GroupFaults{}))
	names := make([]string, 1_001)
	for i := range names {
		names[i] = fmt.Sprintf("linux-%04d", i)
	}
	for _, verb := range []string{"deleteInstances", "abandonInstances", "recreateInstances"} {
		status, _ := w.do("POST", linux+"/"+verb, object{"instances": names})
		require.Equal(t, 400, status)
		status, _ = w.do("POST", linux+"/"+verb, object{"instances": names[1:]})
		require.Equal(t, 200, status)
		status, _ = w.do("POST", linux+"/"+verb, object{"instances": []string{}})
		require.Equal(t, 400, status)
	}
}

func urlsOrNames(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{}))
	list := w.Existing("linux")
	status, answer := w.do("POST", linux+"/deleteInstances", object{"instances": []string{
		list[0].Name, "https://www.googleapis.com/compute/v1/projects/p/zones/" + zone + "/instances/" + list[1].Name,
	}})
	require.Equal(t, 400, status, answer)
	require.Equal(t, 2, w.Live("linux"))
}

func queuedByName(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(0, migstub.GroupFaults{Missing: 1}))
	w.resize("2")
	names := slices.Sorted(maps.Keys(w.managed()))
	require.Len(t, names, 2)
	require.Nil(t, w.managed()[names[0]]["id"], "it has no machine")
	w.post(linux+"/deleteInstances", object{"instances": names[:1]})
	require.EqualValues(t, 1, w.get(linux)["targetSize"])
	require.Len(t, w.managed(), 1)
	require.Empty(t, w.told)
}

func abandonedGoOn(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(2, migstub.GroupFaults{Stop: time.Minute}))
	gone := w.Existing("linux")[0]
	w.post(linux+"/abandonInstances", object{"instances": []string{gone.Name}})
	require.EqualValues(t, 1, w.get(linux)["targetSize"])
	require.NotContains(t, w.managed(), gone.Name)
	require.Equal(t, "RUNNING", w.get("instances/" + gone.Name)["status"])
	require.Empty(t, w.told)
	require.True(t, w.DeleteInstanceExternally(gone.ID))
	require.Equal(t, "STOPPING", w.get("instances/" + gone.Name)["status"])
	w.after(time.Minute)
	status, _ := w.do("GET", "instances/"+gone.Name, nil)
	require.Equal(t, 404, status)
	require.Equal(t, 1, w.Live("linux"))
}

func recreatedKeepName(t *testing.T) {
	faults := booting(time.Minute)
	faults.Stop = 10 * time.Second
	w := newWorld(t, migstub.Options{}, linuxGroup(1, faults))
	was := w.Existing("linux")[0]
	w.post(linux+"/recreateInstances", object{"instances": []string{was.Name}})
	m := w.managed()[was.Name]
	require.Equal(t, "RECREATING", m["currentAction"])
	require.Equal(t, "STOPPING", m["instanceStatus"])
	w.after(10 * time.Second)
	require.NotEqual(t, was.ID, w.managed()[was.Name]["id"])
	require.Equal(t, "RECREATING", w.managed()[was.Name]["currentAction"])
	w.after(time.Minute)
	require.Equal(t, "NONE", w.managed()[was.Name]["currentAction"])
	require.EqualValues(t, 1, w.get(linux)["targetSize"])
	kinds := []migstub.ChangeKind{}
	for _, ch := range w.told {
		require.Equal(t, was.Name, ch.Name)
		kinds = append(kinds, ch.Kind)
	}
	require.Equal(t, []migstub.ChangeKind{migstub.Ended, migstub.Launched, migstub.Ready}, kinds)
}

func createIsTriedForEver(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{
		Errors: []migstub.CreateError{{To: time.Hour, Code: migstub.QuotaExceeded}},
	}))
	w.resize("3")
	w.after(59 * time.Minute)
	require.Equal(t, 1, w.Live("linux"))
	require.EqualValues(t, 3, w.get(linux)["targetSize"])
	for name, m := range w.managed() {
		if m["currentAction"] != "NONE" {
			require.Equal(t, "CREATING", m["currentAction"], name)
			require.Equal(t, "QUOTA_EXCEEDED", at(m, "lastAttempt", "errors", "errors", "code"))
			require.Contains(t, at(m, "lastAttempt", "errors", "errors", "message"), region)
			require.Nil(t, m["instanceStatus"])
		}
	}
	w.after(time.Minute)
	require.Equal(t, 3, w.Live("linux"))
	require.True(t, at(w.get(linux), "status", "isStable").(bool)) //nolint:forcetypeassert // the schema says so
}

func errorsAreListed(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(0, migstub.GroupFaults{
		Errors: []migstub.CreateError{{Code: migstub.PoolExhausted}}, Retry: 10 * time.Second,
	}))
	w.resize("2")
	w.after(10 * time.Second)
	items, _ := w.get(linux + "/listErrors")["items"].([]any)
	require.Len(t, items, 4)
	require.Equal(t, "ZONE_RESOURCE_POOL_EXHAUSTED", at(items, "error", "code"))
	require.Equal(t, "CREATING", at(items, "instanceActionDetails", "action"))
	require.Less(t, at(items[0], "timestamp"), at(items[3], "timestamp"))
	page := w.get(linux + "/listErrors?maxResults=3")
	require.Len(t, page["items"], 3)
	require.Len(t, w.get(linux + "/listErrors?maxResults=3&pageToken=" + page["nextPageToken"].(string))["items"], 1) //nolint:forcetypeassert // the schema says so
	require.Equal(t, 0, w.Live("linux"))
	w.after(24 * time.Hour)
	view, ok := w.Group("linux")
	require.True(t, ok)
	require.Equal(t, 1_000, view.Errors, "the log is bounded")
}

func pagelessUnlessAsked(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(5, migstub.GroupFaults{}))
	all := w.post(linux+"/listManagedInstances?maxResults=2&pageToken=anything", nil)
	require.Len(t, all["managedInstances"], 5)
	require.Nil(t, all["nextPageToken"])
	status, _ := w.do("POST", linux+"/listManagedInstances?orderBy=name", nil)
	require.Equal(t, 400, status)

	w = newWorld(t, migstub.Options{}, migstub.GroupConfig{Name: "linux", Zone: zone, Size: 501, Paginated: true})
	page := w.post(linux+"/listManagedInstances", nil)
	require.Len(t, page["managedInstances"], 500, "maxResults is 500 if it is not said")
	require.Len(t, w.post(linux+"/listManagedInstances?pageToken="+page["nextPageToken"].(string), nil)["managedInstances"], 1) //nolint:forcetypeassert // the schema says so
	status, _ = w.do("POST", linux+"/listManagedInstances?maxResults=501", nil)
	require.Equal(t, 400, status)
	status, _ = w.do("GET", "instances?pageToken="+page["nextPageToken"].(string), nil) //nolint:forcetypeassert // the schema says so
	require.Equal(t, 400, status, "a token of another list")
}

func stability(t *testing.T) {
	stable := func(w *world) any { return at(w.get(linux), "status", "isStable") }
	faults := booting(time.Minute)
	faults.Stop = 10 * time.Second
	w := newWorld(t, migstub.Options{Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: 5 * time.Second}}}, linuxGroup(1, faults))
	require.Equal(t, true, stable(w))
	w.resize("2")
	require.Equal(t, false, stable(w), "it is being modified")
	w.after(5 * time.Second)
	require.Equal(t, false, stable(w), "an instance is created")
	w.after(time.Minute)
	require.Equal(t, true, stable(w))
	w.post(linux+"/deleteInstances", object{"instances": []string{w.name("linux")}})
	w.after(5 * time.Second)
	require.Equal(t, false, stable(w), "an instance is deleted")
	w.after(10 * time.Second)
	require.Equal(t, true, stable(w))

	verified := linuxGroup(0, booting(time.Minute))
	verified.Autohealing = &migstub.Autohealing{InitialDelay: time.Minute}
	w = newWorld(t, migstub.Options{}, verified)
	w.resize("1")
	w.after(40 * time.Second)
	require.EqualValues(t, 1, at(w.get(linux), "currentActions", "verifying"))
	require.Equal(t, false, stable(w))
}

func fingerprints(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}))
	first := w.get(linux)["fingerprint"]
	require.Equal(t, first, w.get(linux)["fingerprint"])
	w.resize("2")
	require.NotEqual(t, first, w.get(linux)["fingerprint"])
}

func deletedIsRepaired(t *testing.T) {
	for name, kill := range map[string]func(w *world, in migstub.Instance){
		"by a deed":        func(w *world, in migstub.Instance) { require.True(t, w.DeleteInstanceExternally(in.Name)) },
		"instances.delete": func(w *world, in migstub.Instance) { w.ok("DELETE", "instances/"+in.Name, nil) },
	} {
		w := newWorld(t, migstub.Options{}, linuxGroup(2, booting(time.Minute)))
		was := w.Existing("linux")[0]
		kill(w, was)
		require.Equal(t, migstub.BySomebody, w.told[0].Cause, name)
		require.Equal(t, "RECREATING", w.managed()[was.Name]["currentAction"])
		require.NotEqual(t, was.ID, w.managed()[was.Name]["id"])
		require.EqualValues(t, 2, w.get(linux)["targetSize"])
		w.after(time.Minute)
		require.Equal(t, 2, w.Live("linux"))
		require.False(t, w.DeleteInstanceExternally(was.ID), "that machine is gone")
	}
}

func repairForbidden(t *testing.T) {
	g := linuxGroup(2, migstub.GroupFaults{})
	g.Lifecycle.DefaultActionOnFailure = "DO_NOTHING"
	w := newWorld(t, migstub.Options{}, g)
	was := w.Existing("linux")[0]
	w.Preempt(was.ID, 0)
	w.after(time.Hour)
	require.Equal(t, "TERMINATED", w.managed()[was.Name]["instanceStatus"])
	require.Equal(t, "NONE", w.managed()[was.Name]["currentAction"])
	require.Equal(t, "TERMINATED", w.get("instances/" + was.Name)["status"])
	require.Equal(t, 1, w.Live("linux"))
	require.EqualValues(t, 2, w.get(linux)["targetSize"])
}

func healthRules(t *testing.T) {
	for rules, recreated := range map[migstub.LifecycleRules]int{
		{}:                                     1,
		{DefaultActionOnFailure: "DO_NOTHING"}: 0,
		{OnFailedHealthCheck: "DO_NOTHING"}:    0,
		{DefaultActionOnFailure: "DO_NOTHING", OnFailedHealthCheck: "REPAIR"}: 1,
	} {
		g := linuxGroup(0, migstub.GroupFaults{Recreate: migstub.Recreate{Every: 1, After: time.Minute}})
		g.Lifecycle = rules
		w := newWorld(t, migstub.Options{}, g)
		w.resize("1")
		w.after(time.Minute)
		ended := 0
		for _, ch := range w.told {
			if ch.Kind == migstub.Ended {
				ended++
			}
		}
		require.Equal(t, recreated, ended, "%+v", rules)
	}
}

func preemptedComeBack(t *testing.T) {
	g := linuxGroup(1, booting(time.Minute))
	g.Template.Spot = true
	w := newWorld(t, migstub.Options{}, g)
	was := w.Existing("linux")[0]
	require.True(t, w.Preempt(was.Name, 30*time.Second))
	require.Equal(t, migstub.Notice, w.told[0].Kind)
	require.Equal(t, w.at.Add(30*time.Second), w.told[0].Deadline)
	require.Equal(t, "RUNNING", w.managed()[was.Name]["instanceStatus"], "the API does not tell before")
	w.after(30 * time.Second)
	require.Equal(t, migstub.Interruption, w.told[1].Cause)
	require.Equal(t, "RECREATING", w.managed()[was.Name]["currentAction"])
	require.Equal(t, migstub.Launched, w.told[2].Kind)
	require.Equal(t, was.Name, w.told[2].Name)
	list := w.get("operations?filter=operationType%3Dcompute.instances.preempted")
	require.Len(t, list["items"], 1)
	require.Equal(t, was.ID, at(list, "items", "targetId"))
}

func maintenance(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}))
	was := w.Existing("linux")
	require.True(t, w.Maintenance(was[0].ID))
	require.Empty(t, w.told)
	require.Equal(t, was, w.Existing("linux"))
	require.Len(t, w.get("operations?filter=operationType+eq+compute.instances.migrate.*")["items"], 1)

	g := linuxGroup(1, migstub.GroupFaults{})
	g.Template.OnHostMaintenance = "TERMINATE"
	w = newWorld(t, migstub.Options{}, g)
	require.True(t, w.Maintenance(w.name("linux")))
	require.Equal(t, migstub.Maintenance, w.told[0].Cause)
	require.Equal(t, 1, w.Live("linux"))
}

func spotIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		template migstub.Template
		model    string
		spot     bool
	}{
		"standard":    {migstub.Template{}, "STANDARD", false},
		"spot":        {migstub.Template{Spot: true}, "SPOT", true},
		"preemptible": {migstub.Template{Preemptible: true}, "STANDARD", true},
	} {
		g := linuxGroup(1, migstub.GroupFaults{})
		g.Template, g.Labels = c.template, map[string]string{"pool": "linux"}
		w := newWorld(t, migstub.Options{}, g)
		in := w.get("instances/" + w.name("linux"))
		require.Equal(t, c.model, at(in, "scheduling", "provisioningModel"), name)
		require.Equal(t, c.spot, at(in, "scheduling", "preemptible"), name)
		require.Equal(t, "linux", at(in, "labels", "pool"))
		require.Equal(t, c.model, at(w.get("/compute/v1/projects/p/global/instanceTemplates/linux"), "properties", "scheduling", "provisioningModel"))
	}
}

func perZone(w *world) map[string]int {
	n := make(map[string]int)
	for _, in := range w.Existing("linux") {
		n[in.Zone[len(in.Zone)-1:]]++
	}
	return n
}

func stockout(shape migstub.TargetShape) migstub.GroupConfig {
	return migstub.GroupConfig{Name: "linux", Region: region, TargetShape: shape, Faults: migstub.GroupFaults{
		Errors: []migstub.CreateError{{Zone: region + "-b", Code: migstub.PoolDetails, To: time.Hour}},
	}}
}

func evenHoldsOn(t *testing.T) {
	w := newWorld(t, migstub.Options{}, stockout(""))
	w.post(regional+linux+"/resize?size=6", nil)
	w.after(30 * time.Minute)
	require.Equal(t, map[string]int{"c": 2, "d": 2}, perZone(w))
	w.after(30 * time.Minute)
	require.Equal(t, map[string]int{"b": 2, "c": 2, "d": 2}, perZone(w))
}

func balancedGoesElsewhere(t *testing.T) {
	for _, shape := range []migstub.TargetShape{migstub.ShapeBalanced, migstub.ShapeAny} {
		w := newWorld(t, migstub.Options{}, stockout(shape))
		w.post(regional+linux+"/resize?size=6", nil)
		w.after(30 * time.Second)
		require.Equal(t, map[string]int{"c": 3, "d": 3}, perZone(w), shape)
	}
	w := newWorld(t, migstub.Options{}, migstub.GroupConfig{Name: "linux", Region: region, TargetShape: migstub.ShapeAnySingleZone})
	w.post(regional+linux+"/resize?size=6", nil)
	require.Equal(t, map[string]int{"b": 6}, perZone(w))
}

func autoscalerIsSeen(t *testing.T) {
	w := newWorld(t, migstub.Options{}, linuxGroup(1, migstub.GroupFaults{}))
	require.Nil(t, at(w.get(linux), "status", "autoscaler"))
	w.AttachAutoscaler("linux", &migstub.Autoscaler{Min: 1, Max: 9, Mode: "ONLY_SCALE_OUT"})
	require.Contains(t, at(w.get(linux), "status", "autoscaler"), "/autoscalers/linux")
	require.EqualValues(t, 9, at(w.get("autoscalers/linux"), "autoscalingPolicy", "maxNumReplicas"))
	require.Len(t, w.get("autoscalers")["items"], 1)
	w.AttachAutoscaler("linux", nil)
	status, _ := w.do("GET", "autoscalers/linux", nil)
	require.Equal(t, 404, status)
}

func rateQuota(t *testing.T) {
	for want, rate := range map[int]migstub.RateLimit{403: {Calls: 3}, 429: {Calls: 3, Status: 429}} {
		w := newWorld(t, migstub.Options{Rate: rate}, linuxGroup(1, migstub.GroupFaults{}))
		w.after(50 * time.Second)
		for range 3 {
			w.get(linux)
		}
		status, answer := w.do("GET", linux, nil)
		require.Equal(t, want, status)
		require.Equal(t, "rateLimitExceeded", reason(answer))
		w.after(9 * time.Second)
		status, _ = w.do("GET", linux, nil)
		require.Equal(t, want, status, "it is the same minute")
		w.after(time.Second)
		w.get(linux)
	}
}
