package ec2asg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

func TestStatus(t *testing.T) {
	a := &api{groups: map[string]string{
		"steady":   group("steady", 2, 1, 5, inside(vm("i-1", "InService", "Healthy", "true"), vm("i-2", "InService", "Healthy", "true"))),
		"booting":  group("booting", 1, 0, 5, inside(vm("i-3", "Pending", "Healthy", "false"))),
		"ending":   group("ending", 0, 0, 5, inside(vm("i-4", "Terminating:Wait", "Healthy", "false"))),
		"missing":  group("missing", 3, 0, 5, inside(vm("i-5", "InService", "Healthy", "false"))),
		"weighted": group("weighted", 4, 0, 5, inside(`<member><InstanceId>i-6</InstanceId><LifecycleState>InService</LifecycleState><WeightedCapacity>4</WeightedCapacity></member>`)),
		"vcpus":    group("vcpus", 4, 0, 5, "<DesiredCapacityType>vcpu</DesiredCapacityType>"),
		"foreign":  group("foreign", 4, 0, 5, ""),
	}}
	p := serve(t, a, "steady", "booting", "ending", "missing", "weighted", "vcpus", "absent")
	got, err := p.Status(t.Context(), []string{"absent", "steady", "booting", "ending", "missing", "weighted", "vcpus", "foreign"})
	require.NoError(t, err)
	require.Len(t, got, 8)
	require.ErrorIs(t, got[0].Err, pluginsdk.ErrNotFound)
	require.Equal(t, pluginsdk.GroupStatus{Group: "steady", Desired: 2, Min: 1, Max: 5}, got[1])
	require.Equal(t, pluginsdk.GroupStatus{Group: "booting", Desired: 1, Max: 5, InTransition: true}, got[2])
	require.Equal(t, pluginsdk.GroupStatus{Group: "ending", Max: 5, InTransition: true}, got[3])
	require.Equal(t, pluginsdk.GroupStatus{Group: "missing", Desired: 3, Max: 5, InTransition: true}, got[4])
	require.ErrorIs(t, got[5].Err, pluginsdk.ErrInvalid)
	require.ErrorIs(t, got[6].Err, pluginsdk.ErrInvalid)
	require.ErrorIs(t, got[7].Err, pluginsdk.ErrNotFound, "a group that was not configured was read")
	require.EqualValues(t, 1, a.calls.Load())
}

func TestListInstances(t *testing.T) {
	states := map[string]pluginsdk.InstanceState{
		"Pending": pluginsdk.StateCreating, "Pending:Wait": pluginsdk.StateCreating, "Pending:Proceed": pluginsdk.StateCreating,
		"InService":   pluginsdk.StateRunning,
		"Terminating": pluginsdk.StateDeleting, "Terminating:Wait": pluginsdk.StateDeleting, "Terminating:Proceed": pluginsdk.StateDeleting,
		"Terminating:Retained": pluginsdk.StateDeleting,
		"EnteringStandby":      pluginsdk.StateUnknown, "Detaching": pluginsdk.StateUnknown,
		"Quarantined": pluginsdk.StateUnknown, "ReplacingRootVolume": pluginsdk.StateUnknown, "SomethingNew": pluginsdk.StateUnknown,
	}
	hooks := map[string]pluginsdk.Hook{"Pending:Wait": pluginsdk.LaunchHook, "Terminating:Wait": pluginsdk.TerminationHook}
	var members []string
	for _, state := range []string{"Terminated", "Detached", "Standby", "Warmed:Running", "Warmed:Stopped", "Warmed:Pending:Wait"} { // none is listed
		members = append(members, vm("gone-"+state, state, "Healthy", "false"))
	}
	for state := range states {
		members = append(members, vm("i-"+state, state, "Healthy", "false"))
	}
	members = append(members, vm("sick", "InService", "Unhealthy", "true"))
	p := serve(t, &api{groups: map[string]string{"linux": group("linux", 1, 0, 5, inside(members...)), "empty": group("empty", 0, 0, 5, "")}}, "linux", "empty", "absent")

	list, err := p.ListInstances(t.Context(), "linux")
	require.NoError(t, err)
	require.Len(t, list, len(states)+1)
	for _, in := range list[:len(list)-1] {
		require.Equal(t, states[in.ID[len("i-"):]], in.State, in.ID)
		require.Equal(t, hooks[in.ID[len("i-"):]], in.Hook, in.ID)
		require.False(t, in.Protected || in.Unhealthy)
	}
	require.Equal(t, pluginsdk.Instance{ID: "sick", State: pluginsdk.StateRunning, Zone: "us-east-1a", Protected: true, Unhealthy: true}, list[len(list)-1])

	list, err = p.ListInstances(t.Context(), "empty")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, name := range []string{"absent", "not configured"} {
		_, err = p.ListInstances(t.Context(), name)
		require.ErrorIs(t, err, pluginsdk.ErrNotFound)
	}
}

// manyGroups needs more than one call, and more than one page for each.
func manyGroups() (a *api, names []string) {
	a = &api{groups: map[string]string{}, pageSize: 50}
	for i := range 120 {
		name := fmt.Sprintf("group-%03d", i)
		names = append(names, name)
		a.groups[name] = group(name, i, 0, 200, "")
	}
	return a, names
}

func TestX07_AllPages(t *testing.T) {
	a, names := manyGroups()
	got, err := serve(t, a, names...).Status(t.Context(), names)
	require.NoError(t, err)
	for i := range names {
		require.NoError(t, got[i].Err)
		require.Equal(t, i, got[i].Desired)
	}
	require.EqualValues(t, 2+1, a.calls.Load(), "calls of 100 and 20 names in pages of 50")
}

// A failure on any page is a failure of the whole call: a part would look like
// groups that are gone. It is not one of the groups that another call asks for.
func TestX07_AFailureOnALaterPageIsNoPart(t *testing.T) {
	for failing, fails := range map[int]func(i int) bool{
		1: func(i int) bool { return i < 100 },
		2: func(i int) bool { return i < 100 },
		3: func(i int) bool { return i >= 100 },
	} {
		a, names := manyGroups()
		a.fail, a.failFrom, a.failTo = failure(http.StatusServiceUnavailable, "ServiceUnavailable"), failing, failing
		got, err := serve(t, a, names...).Status(t.Context(), names)
		require.NoError(t, err)
		for i := range names {
			if fails(i) {
				require.ErrorIs(t, got[i].Err, pluginsdk.ErrTransient, "call %d failed", failing)
			} else {
				require.NoError(t, got[i].Err, "call %d failed", failing)
			}
		}
		require.LessOrEqual(t, a.calls.Load(), int64(3), "it was asked again")
	}
	a, names := manyGroups()
	a.fail, a.failFrom = failure(http.StatusServiceUnavailable, "ServiceUnavailable"), 1
	got, err := serve(t, a, names...).Status(t.Context(), names)
	require.ErrorIs(t, err, pluginsdk.ErrTransient, "nothing at all was told")
	require.Nil(t, got)
}

func TestX07_PagesWithoutEndAreAnError(t *testing.T) {
	a := &api{groups: map[string]string{"linux": group("linux", 1, 0, 5, "")}, endless: true}
	list, err := serve(t, a, "linux").ListInstances(t.Context(), "linux")
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "more than 101 pages")
	require.Nil(t, list, "a part is no list")
	require.Less(t, a.calls.Load(), int64(200))
}

func TestErrorsAreClassified(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
		after  time.Duration
	}{
		"throttled":           {failure(400, "Throttling"), pluginsdk.ErrThrottled, time.Second},
		"throttled, with ask": {failure(400, "RequestLimitExceeded", "Retry-After", "7"), pluginsdk.ErrThrottled, 7 * time.Second},
		"throttled, by HTTP":  {failure(429, ""), pluginsdk.ErrThrottled, time.Second},
		"denied":              {failure(403, "AccessDenied"), pluginsdk.ErrAuth, 0},
		"expired":             {failure(403, "ExpiredToken"), pluginsdk.ErrAuth, 0},
		"unknown key":         {failure(403, "InvalidClientTokenId"), pluginsdk.ErrAuth, 0},
		"denied, by HTTP":     {failure(403, "SomethingNew"), pluginsdk.ErrAuth, 0},
		"bad request":         {failure(400, "ValidationError"), pluginsdk.ErrInvalid, 0},
		"unknown request":     {failure(400, "SomethingNew"), pluginsdk.ErrInvalid, 0},
		"pages changed":       {failure(400, "InvalidNextToken"), pluginsdk.ErrTransient, 0},
		"their failure":       {failure(500, "InternalFailure", "Retry-After", "soon"), pluginsdk.ErrTransient, 0},
		"nonsense":            {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<nonsense") }, pluginsdk.ErrTransient, 0},
		"hangs up":            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, pluginsdk.ErrTransient, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, &api{fail: c.answer, failFrom: 1}, "linux")
			_, err := p.ListInstances(t.Context(), "linux")
			require.ErrorIs(t, err, c.want)
			require.NotContains(t, err.Error(), "secret-of-the-test")
			var classified *pluginsdk.Error
			require.ErrorAs(t, err, &classified)
			require.Equal(t, c.after, classified.RetryAfter)
		})
	}
}

func TestNoCredentials(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	p := ec2asg.New()
	require.NoError(t, p.Configure(t.Context(), []byte(`{"region": "us-east-1", "endpoint": "http://127.0.0.1:1", "groups": ["a"]}`)))
	_, err := p.ListInstances(t.Context(), "a")
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
}

// Credentials that do not come in time are no refusal: the next call may have them.
func TestCredentialsThatAreLate(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	profile := filepath.Join(t.TempDir(), "config")
	script := filepath.Join(t.TempDir(), "credentials") // comes to no end before the test does
	require.NoError(t, os.WriteFile(script, []byte("while test -e "+script+"; do sleep 0.05; done\n"), 0o600))
	require.NoError(t, os.WriteFile(profile, []byte("[default]\ncredential_process = sh "+script+"\n"), 0o600))
	t.Setenv("AWS_CONFIG_FILE", profile)
	p := ec2asg.New()
	require.NoError(t, p.Configure(t.Context(), []byte(`{"region": "us-east-1", "endpoint": "http://127.0.0.1:1", "groups": ["a"]}`)))
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.ListInstances(hasty, "a")
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.NotErrorIs(t, err, pluginsdk.ErrAuth)
}

func TestOrderOfCalls(t *testing.T) {
	p := ec2asg.New()
	_, err := p.Status(t.Context(), []string{"linux"})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	p = serve(t, &api{}, "linux")
	require.ErrorIs(t, p.Configure(t.Context(), []byte(`{"region": "us-east-1", "groups": ["linux"]}`)), pluginsdk.ErrInvalid)
	_, err = p.Status(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	none, err := p.Status(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestConfigs(t *testing.T) {
	testCredentials(t)
	refused := func(config string, mistakes ...string) providertest.ConfigCase {
		return providertest.ConfigCase{Config: config, Mistakes: mistakes}
	}
	providertest.RunConfigs(t, func() pluginsdk.Provider { return ec2asg.New() },
		providertest.ConfigCase{Config: `{"region": "eu-central-1", "groups": ["a", "b"]}`},
		providertest.ConfigCase{Config: `{"region": "eu-central-1", "groups": ["a"], "endpoint": "https://vpce.x"}`},
		refused(`{"groups": ["a"]}`, "region: missing"),
		refused(`{"region": "r"}`, "groups: missing"),
		refused(`{"region": "r", "groups": []}`, "groups: must not be empty"),
		refused(`{"region": "r", "groups": [""]}`, "groups[0]"),
		refused(`{"region": "r", "groups": ["a", "a"]}`, "groups[1]: the name is there twice"),
		refused(`{"region": 1, "groups": ["a"]}`, "region"),
		refused(`{"region": "r", "groups": ["a"], "x":1}`, "x: "),
		refused(`{"region": "r", "groups": ["a"], "endpoint": "ftp://x"}`, "endpoint"),
		refused(`{"region": "r", "groups": ["a"], "endpoints": {"sqs": "x"}}`, "endpoints.sqs"),
		refused(`{"region": "r", "groups": ["a"], "hooks": {"names": ["a", "a"]}}`, "hooks.names[1]: the name is there twice"),
		refused(`{"region": "r", "groups": ["a"], "metrics": {"m": {"metric": "x"}}}`, "metrics.m.namespace: missing"),
		refused(`{"region": "r", "groups": ["a"], "metrics": {"m": {"namespace": "n", "metric": "x", "statistic": "p99"}}}`, "metrics.m.statistic"),
		refused(`{"region": "r", "groups": ["a"], "metrics": {"m": {"namespace": "n", "metric": "x", "dimensions": {"d": ""}}}}`, "metrics.m.dimensions"),
		refused(`{"region": "r", "groups": ["a"], "api_rate": {"per_second": 0}}`, "api_rate.per_second"),
		refused(`{"region": "r", "groups": ["a"], "api_rate": {"per_second": 1001, "burst": 10001}}`, "api_rate.per_second", "api_rate.burst"),
		refused(`{"region": "r", "groups": ["a"], "api_rate": {}}`, "api_rate.per_second: missing"),
		providertest.ConfigCase{
			Config:   `{"region": "r", "groups": ["a"], "metrics": {"m": {"namespace": "n", "metric": "x", "period": "90s"}}}`,
			Mistakes: []string{"metrics.m.period"}, BeyondSchema: true,
		},
		providertest.ConfigCase{
			Config:   `{"region": "r", "groups": ["a"], "hooks": {"heartbeat_timeout": "10s"}}`,
			Mistakes: []string{"hooks.heartbeat_timeout"}, BeyondSchema: true,
		},
		providertest.ConfigCase{Config: exampleConfig(t)},
		refused(`{"regoin": "r", "groups": [""], "endpoint": "x"}`, "regoin", "region: missing", "groups[0]", "endpoint"),
	)
}

// exampleConfig is the example of the schema.
func exampleConfig(t *testing.T) string {
	t.Helper()
	var schema struct{ Examples []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(ec2asg.ConfigSchema), &schema))
	require.Len(t, schema.Examples, 1)
	return string(schema.Examples[0])
}
