package gcemig_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

func TestStatus(t *testing.T) {
	a := &api{groups: []map[string]any{group("steady", 2, true), group("moving", 1, false), group("huge", 1_500, true), group("foreign", 3, true)}}
	p := serve(t, a, "steady", "moving", "huge", "absent")
	got, err := p.Status(t.Context(), []string{"absent", "steady", "moving", "huge", "foreign"})
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.ErrorIs(t, got[0].Err, pluginsdk.ErrNotFound)
	require.Equal(t, pluginsdk.GroupStatus{Group: "steady", Desired: 2, Max: 1_000}, got[1])
	require.Equal(t, pluginsdk.GroupStatus{Group: "moving", Desired: 1, Max: 1_000, InTransition: true}, got[2])
	require.Equal(t, pluginsdk.GroupStatus{Group: "huge", Desired: 1_500, Max: 1_500}, got[3])
	require.ErrorIs(t, got[4].Err, pluginsdk.ErrNotFound, "a group that was not configured was read")
	require.EqualValues(t, 1, a.calls.Load())
}

func TestRegionalGroups(t *testing.T) {
	a := &api{
		scope:     "regions/r",
		groups:    []map[string]any{group("linux", 1, true)},
		instances: map[string][]map[string]any{"linux": {vm("linux-1", "NONE", "RUNNING")}},
	}
	p := serveScope(t, a, map[string]any{"region": "r"}, []string{"linux"})
	statuses, err := p.Status(t.Context(), []string{"linux"})
	require.NoError(t, err)
	require.Equal(t, pluginsdk.GroupStatus{Group: "linux", Desired: 1, Max: 2_000}, statuses[0])
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.Instance{{ID: "linux-1", State: pluginsdk.StateRunning, Zone: "europe-west1-b"}}, list)
	require.NoError(t, p.Close(t.Context()))
}

func TestListInstances(t *testing.T) {
	cases := []struct {
		action, own string
		want        pluginsdk.InstanceState
	}{
		{"NONE", "RUNNING", pluginsdk.StateRunning},
		{"VERIFYING", "RUNNING", pluginsdk.StateRunning},
		{"REFRESHING", "RUNNING", pluginsdk.StateRunning},
		{"CREATING", "", pluginsdk.StateCreating},
		{"CREATING_WITHOUT_RETRIES", "STAGING", pluginsdk.StateCreating},
		{"RECREATING", "STOPPING", pluginsdk.StateCreating},
		{"NONE", "PROVISIONING", pluginsdk.StateCreating},
		{"NONE", "STAGING", pluginsdk.StateCreating},
		{"DELETING", "RUNNING", pluginsdk.StateDeleting},
		{"DELETING", "STOPPING", pluginsdk.StateDeleting},
		{"ABANDONING", "RUNNING", pluginsdk.StateUnknown},
		{"RESTARTING", "RUNNING", pluginsdk.StateUnknown},
		{"SOMETHING_NEW", "RUNNING", pluginsdk.StateUnknown},
		{"NONE", "SUSPENDED", pluginsdk.StateUnknown},
		{"NONE", "SOMETHING_NEW", pluginsdk.StateUnknown},
	}
	var managed []map[string]any
	for i, c := range cases {
		managed = append(managed, vm(fmt.Sprintf("linux-%d", i), c.action, c.own))
	}
	sick, preempted := vm("sick", "NONE", "RUNNING"), vm("preempted", "NONE", "TERMINATED")
	sick["instanceHealth"] = []any{map[string]any{"detailedHealthState": "HEALTHY"}, map[string]any{"detailedHealthState": "UNHEALTHY"}}
	managed = append(managed, sick, preempted)

	p := serve(t, &api{instances: map[string][]map[string]any{"linux": managed, "empty": nil}}, "linux", "empty", "absent")
	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, len(managed))
	for i, c := range cases {
		require.Equal(t, pluginsdk.Instance{ID: fmt.Sprintf("linux-%d", i), State: c.want, Zone: "europe-west1-b"}, list[i], "%v", c)
	}
	require.True(t, list[len(cases)].Unhealthy)
	require.Equal(t, pluginsdk.Instance{ID: "preempted", State: pluginsdk.StateUnknown, Zone: "europe-west1-b", Unhealthy: true}, list[len(cases)+1])

	list, err = p.ListInstances(t.Context(), "empty")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, name := range []string{"absent", "not-configured"} {
		_, err = p.ListInstances(t.Context(), name)
		require.ErrorIs(t, err, pluginsdk.ErrNotFound)
	}
}

// large needs several pages for its groups and for the instances of one.
func large() *api {
	a := &api{pageSize: 3, instances: map[string][]map[string]any{}}
	for i := range 10 {
		a.groups = append(a.groups, group(fmt.Sprintf("group-%d", i), i, true))
		a.instances["group-0"] = append(a.instances["group-0"], vm(fmt.Sprintf("vm-%d", i), "NONE", "RUNNING"))
	}
	return a
}

func TestAllPages(t *testing.T) {
	a := large()
	p := serve(t, a, "group-0", "group-9")
	statuses, err := p.Status(t.Context(), []string{"group-9"})
	require.NoError(t, err)
	require.NoError(t, statuses[0].Err)
	require.Equal(t, 9, statuses[0].Desired)
	list, err := p.ListInstances(t.Context(), "group-0")
	require.NoError(t, err)
	require.Len(t, list, 10)
	require.EqualValues(t, 4+4, a.calls.Load())
}

// A failure on any page is a failure of the whole: a part would look like groups
// or instances that are gone.
func TestAFailureOnALaterPageIsNoPart(t *testing.T) {
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

func TestErrorsAreClassified(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
		after  time.Duration
	}{
		"throttled":              {failure(429, "rateLimitExceeded", "Retry-After", "7"), pluginsdk.ErrThrottled, 7 * time.Second},
		"throttled, the old way": {failure(403, "rateLimitExceeded"), pluginsdk.ErrThrottled, 0},
		"no credentials":         {failure(401, "required"), pluginsdk.ErrAuth, 0},
		"denied":                 {failure(403, "forbidden"), pluginsdk.ErrAuth, 0},
		"no such zone":           {failure(404, "notFound"), pluginsdk.ErrNotFound, 0},
		"bad request":            {failure(400, "invalid"), pluginsdk.ErrInvalid, 0},
		"their failure":          {failure(500, "backendError", "Retry-After", "soon"), pluginsdk.ErrTransient, 0},
		"nonsense":               {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{nonsense") }, pluginsdk.ErrTransient, 0},
		"hangs up":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, pluginsdk.ErrTransient, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, &api{fail: c.answer, failFrom: 1}, "linux")
			_, err := p.ListInstances(t.Context(), "linux")
			require.ErrorIs(t, err, c.want)
			var classified *pluginsdk.Error
			require.ErrorAs(t, err, &classified)
			require.Equal(t, c.after, classified.RetryAfter)
			_, err = p.Status(t.Context(), []string{"linux"})
			require.ErrorIs(t, err, c.want)
		})
	}
}

// What can't be done is said so by the capabilities and by each call, and costs
// no call of the cloud.
func TestWritesAreUnsupported(t *testing.T) {
	a := &api{}
	p := serve(t, a, "linux")
	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	require.Empty(t, d.Capabilities)
	_, setErr := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "linux", Target: 2, Expected: 1})
	_, removeErr := p.Remove(t.Context(), "linux", []string{"vm"}, "t")
	_, withdrawErr := p.Withdraw(t.Context(), "linux", 1, "t")
	for _, err := range []error{setErr, removeErr, withdrawErr} {
		require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
		require.ErrorContains(t, err, "only reads")
	}
	require.ErrorIs(t, p.Protect(t.Context(), "linux", nil, true), pluginsdk.ErrUnsupported)
	require.ErrorIs(t, p.Watch(t.Context(), []string{"linux"}, nil), pluginsdk.ErrUnsupported)
	require.Zero(t, a.calls.Load())
}

func TestOrderOfCalls(t *testing.T) {
	p := gcemig.New()
	_, err := p.Status(t.Context(), []string{"linux"})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.NoError(t, p.Close(t.Context()))
	p = serve(t, &api{}, "linux")
	require.ErrorIs(t, p.Configure(t.Context(), []byte(`{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "http://127.0.0.1:1"}`)), pluginsdk.ErrInvalid)
	_, err = p.Status(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	none, err := p.Status(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestConfigs(t *testing.T) {
	const local = `, "endpoint": "http://127.0.0.1:1"}`
	accepted := func(config string) providertest.ConfigCase { return providertest.ConfigCase{Config: config} }
	refused := func(config string, mistakes ...string) providertest.ConfigCase {
		return providertest.ConfigCase{Config: config, Mistakes: mistakes}
	}
	providertest.RunConfigs(t, func() pluginsdk.Provider { return gcemig.New() },
		accepted(`{"project": "p-1", "zone": "z-b", "groups": ["a", "b"]`+local),
		accepted(`{"project": "example.com:p", "region": "r1", "groups": ["a"]`+local),
		refused(`{"zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "../q", "zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "p", "groups": ["a"]`+local, "use one of them"),
		refused(`{"project": "p", "zone": "z", "region": "r", "groups": ["a"]`+local, "use one of them"),
		refused(`{"project": "p", "zone": "z/x", "groups": ["a"]`+local, "zone"),
		refused(`{"project": "p", "zone": "z"`+local, "groups"),
		refused(`{"project": "p", "zone": "z", "groups": ["a/b"]`+local, "groups[0]"),
		refused(`{"project": "p", "zone": "z", "groups": ["a", "a"]`+local, "twice"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "colour": 1`+local, "colour"),
		refused(`{"project": 7, "zone": "z", "groups": ["a"]`+local, "project"),
		refused(`{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "ftp://x"}`, "endpoint"),
		providertest.ConfigCase{
			Config:   `{"project": "p", "zone": "z", "groups": ["a"], "endpoint": "http://x"}`,
			Mistakes: []string{"loopback"}, BeyondSchema: true,
		},
		refused(`{"porject": "p", "groups": ["_"], "endpoint": "x"}`, "porject", "project:", "zone, region", "groups[0]", "endpoint"),
	)
}
