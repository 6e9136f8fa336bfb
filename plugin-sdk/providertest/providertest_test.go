package providertest_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
)

const roleEnv = "SPILLWAY_PROVIDERTEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		pluginsdk.Serve(newMemory("", allCapabilities...))
		return
	}
	os.Exit(m.Run())
}

func subject(p pluginsdk.Provider) providertest.Subject {
	return providertest.Subject{Provider: p, Config: []byte(`{"region":"x"}`), Group: "g", MaxInstances: 3, Settle: time.Minute, Metric: "queue"}
}

func TestAGoodProviderPasses(t *testing.T) {
	for name, caps := range map[string][]pluginsdk.Capability{"all capabilities": allCapabilities, "none": nil} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(*testing.T) providertest.Subject { return subject(newMemory("", caps...)) })
		})
	}
}

func TestAGoodProviderPassesOverTheWire(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	providertest.RunBinary(t, self, subject(nil), roleEnv+"=plugin", "PLUGIN_UNIX_SOCKET_DIR="+t.TempDir())
}

func TestAFileThatIsNoPlugin(t *testing.T) {
	_, _, err := providertest.Launch("/bin/true", nil, os.Stderr)
	require.ErrorContains(t, err, "starting plugin /bin/true")
}

// check runs the suite in virtual time and returns what each check found.
func check(t *testing.T, s providertest.Subject) (found map[string]providertest.Result, order []string) {
	t.Helper()
	found = map[string]providertest.Result{}
	ok := providertest.Check(context.Background(), s, func(r providertest.Result) {
		found[r.Check] = r
		order = append(order, r.Check)
	})
	failed := false
	for _, r := range found {
		failed = failed || r.Outcome == providertest.Failed
	}
	require.Equal(t, !failed, ok)
	return found, order
}

// TestEachBrokenPromiseIsFound: a suite that finds no planted bug proves nothing.
func TestEachBrokenPromiseIsFound(t *testing.T) {
	for bug, finder := range map[string]string{
		"describe needs configure":        "describe_before_configure",
		"no version":                      "describe_before_configure",
		"a name in two lines":             "describe_before_configure",
		"unknown capability":              "describe_before_configure",
		"schema is broken":                "config_schema",
		"schema allows anything":          "config_schema",
		"config may be anything":          "config_not_an_object",
		"unknown keys are ignored":        "unknown_config_key",
		"unknown group fails all":         "status_in_order",
		"unknown group is empty":          "status_in_order",
		"unknown group is left out":       "status_in_order",
		"status in another order":         "status_in_order",
		"unknown group has no instances":  "unknown_group",
		"launches in unknown groups":      "unknown_group",
		"no compare":                      "set_desired_conflict",
		"conflict observes nonsense":      "set_desired_conflict",
		"conflict writes":                 "set_desired_conflict",
		"negative targets":                "set_desired_negative",
		"returns what it was":             "set_desired_raises",
		"relative":                        "set_desired_raises",
		"conflict although equal":         "set_desired_is_absolute",
		"launches one more":               "instances_run",
		"nothing ever runs":               "instances_run",
		"listed twice":                    "instances_run",
		"nameless state":                  "instances_run",
		"address is a URL":                "instances_run",
		"incomplete list":                 "instances_run",
		"not made for concurrent calls":   "concurrent_calls",
		"withdraws without compare":       "withdraw",
		"withdraws what runs":             "withdraw",
		"withdraw miscounts":              "withdraw_unfilled",
		"protects nothing":                "protect",
		"watch ends":                      "watch",
		"deviates from nothing known":     "describe_before_configure",
		"deviates from what it must":      "describe_before_configure",
		"deviates without a reason":       "describe_before_configure",
		"deviates needlessly":             "watch",
		"hooks of what is gone fail":      "complete_hook",
		"hooks end instances":             "complete_hook",
		"unhealthy ones stay":             "report_unhealthy",
		"unhealthy ones are not replaced": "report_unhealthy",
		"finding without a fix":           "findings",
		"finding with a free code":        "findings",
		"finding without a severity":      "findings",
		"finding about somebody else":     "findings",
		"finds nothing":                   "findings",
		"counts below zero":               "count",
		"what isn't known counts 0":       "count",
		"watch ends with an error":        "watch",
		"gone counts":                     "remove_nothing",
		"gone fails":                      "remove_nothing",
		"gone is removed":                 "remove_nothing",
		"results in another order":        "remove_by_name",
		"ends somebody else":              "remove_by_name",
		"desired stays":                   "remove_by_name",
		"close fails":                     "close",
	} {
		t.Run(bug, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found, _ := check(t, subject(newMemory(bug, allCapabilities...)))
				require.Equal(t, providertest.Failed, found[finder].Outcome, "%s: %v", finder, found)
			})
		})
	}
}

func TestADeclaredDeviationIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, _ := check(t, subject(newMemory("gone is removed, and it says so", allCapabilities...)))
		r := found["remove_nothing"]
		require.Equal(t, providertest.Deviates, r.Outcome)
		require.Contains(t, r.Detail, "the cloud can't tell (")
	})
}

func TestAnExemptCheckIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := subject(newMemory("watch ends", allCapabilities...))
		s.Exempt = map[string]string{"watch": "the emulator has no events"}
		found, _ := check(t, s)
		require.Equal(t, providertest.Skipped, found["watch"].Outcome)
		require.Equal(t, "the emulator has no events", found["watch"].Detail)
	})
}

func TestWhatIsNotDeclaredMustBeRefused(t *testing.T) {
	for bug, finder := range map[string]string{
		"undeclared withdraw": "withdraw", "undeclared protect": "protect", "undeclared watch": "watch",
		"undeclared complete_hook": "complete_hook", "undeclared report_unhealthy": "report_unhealthy",
		"undeclared findings": "findings", "undeclared count": "count",
	} {
		t.Run(bug, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found, _ := check(t, subject(newMemory(bug)))
				require.Equal(t, providertest.Failed, found[finder].Outcome, "%v", found)
			})
		})
	}
}

// TestAProviderThatIgnoresItsContext doesn't hold up the suite, only itself.
func TestAProviderThatIgnoresItsContext(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 10 s of real time: what ignores its context never ends, which no bubble allows")
	}
	found, _ := check(t, subject(newMemory("status ignores its context", allCapabilities...)))
	require.Equal(t, providertest.Failed, found["context_ends"].Outcome)
	require.Contains(t, found["context_ends"].Detail, "Status goes on 10s after its context ended")
}

// TestAGroupInUseIsLeftAlone: the suite removes all that it finds.
func TestAGroupInUseIsLeftAlone(t *testing.T) {
	m := newMemory("", allCapabilities...)
	_, err := m.SetDesired(context.Background(), pluginsdk.SetDesired{Group: "g", Target: 2})
	require.NoError(t, err)
	found, _ := check(t, subject(m))
	require.Equal(t, providertest.Failed, found["group_is_empty"].Outcome)
	require.Equal(t, providertest.Skipped, found["set_desired_raises"].Outcome)
	require.Equal(t, providertest.Skipped, found["remove_all"].Outcome)
	all, err := m.ListInstances(context.Background(), "g")
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// TestWhatWasLaunchedIsRemovedAfterAnInterrupt: instances cost money.
func TestWhatWasLaunchedIsRemovedAfterAnInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("", allCapabilities...)
		ctx, interrupt := context.WithCancel(t.Context())
		found := map[string]providertest.Result{}
		ok := providertest.Check(ctx, subject(m), func(r providertest.Result) {
			found[r.Check] = r
			if r.Check == "instances_run" {
				interrupt()
			}
		})
		require.False(t, ok)
		require.Equal(t, providertest.Skipped, found["remove_by_name"].Outcome)
		require.Equal(t, "the checks were interrupted", found["remove_by_name"].Detail)
		require.Equal(t, providertest.Passed, found["remove_all"].Outcome)
		require.Empty(t, m.mu.instances)
	})
}

// TestWhatWasLaunchedIsRemovedAfterAFailure: instances cost money.
func TestWhatWasLaunchedIsRemovedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("launches one more", allCapabilities...)
		found, order := check(t, subject(m))
		require.Equal(t, providertest.Failed, found["instances_run"].Outcome)
		require.Equal(t, "after instances_run failed", found["remove_by_name"].Detail)
		require.Equal(t, []string{"remove_all", "close"}, order[len(order)-2:])
		require.Empty(t, m.mu.instances)
	})
}

func TestResultsPrintThemselves(t *testing.T) {
	r := providertest.Result{Check: "watch", Promise: "it goes on", Outcome: providertest.Failed, Detail: "it ended"}
	require.Equal(t, "failed   watch: it ended (the contract: it goes on)", r.String())
	r = providertest.Result{Check: "watch", Outcome: providertest.Passed}
	require.Equal(t, "passed   watch", r.String())
}
