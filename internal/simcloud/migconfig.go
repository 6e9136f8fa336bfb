package simcloud

import (
	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// migConfig is what a story says of a cloud, in the words of the stand-in. What a
// group can't do is ErrUnsupported.
//
// Protected and auto_replace are not asked for: nothing protects an instance of such
// a group from a smaller size, and the group replaces what it loses. Nor is max:
// a managed instance group has none, and the pool's own stands.
func migConfig(name string, c fake.Config) (migstub.GroupConfig, migstub.Faults, error) {
	var none migstub.GroupConfig
	var calls migstub.Faults
	unsupported := func(what string) (migstub.GroupConfig, migstub.Faults, error) {
		return none, calls, pluginsdk.Errorf(pluginsdk.KindUnsupported, "a managed instance group has no %s", what)
	}
	switch {
	case c.Min > 0:
		return unsupported("minimum")
	case c.LaunchHook > 0 || c.TerminationHook > 0:
		return unsupported("lifecycle hooks")
	case len(c.Halts) > 0:
		return unsupported("processes that could be suspended")
	}
	g := migstub.GroupConfig{Name: name, Size: c.Initial, Faults: migstub.GroupFaults{
		Boot:          migstub.Boot(c.Boot),
		NeverRegister: migstub.NeverRegister{Every: c.NeverRegister.Every, All: c.NeverRegister.All},
		Missing:       1 - c.Partial,
		LateFill:      c.LateFill,
		ListLag:       c.VisibleAfter,
		Victim:        migstub.Victim(c.Victim),
	}}
	for _, w := range c.Errors {
		if err := addMIGError(&g.Faults, &calls, w); err != nil {
			return none, calls, err
		}
	}
	return g, calls, nil
}

// createCodes are why instances are not created.
var createCodes = map[pluginsdk.Kind]migstub.Code{
	pluginsdk.KindCapacity: migstub.PoolExhausted,
	pluginsdk.KindQuota:    migstub.QuotaExceeded,
	pluginsdk.KindInvalid:  migstub.ResourceNotFound,
}

// callReasons are what calls fail for. A lack of capacity or quota is no reason to
// refuse a resize: the instances are not created, and listErrors says why.
var callReasons = map[pluginsdk.Kind]string{
	pluginsdk.KindThrottled: "rateLimitExceeded",
	pluginsdk.KindTransient: "backendError",
	pluginsdk.KindAuth:      "forbidden",
	pluginsdk.KindInvalid:   "invalid",
}

func addMIGError(group *migstub.GroupFaults, calls *migstub.Faults, w fake.ErrorWindow) error {
	switch {
	case w.Ratio == 0: // never
	case w.Delivery == fake.ByActivity && createCodes[w.Kind] != "":
		group.Errors = append(group.Errors, migstub.CreateError{From: w.From, To: w.To, Code: createCodes[w.Kind], Ratio: w.Ratio})
	case w.Delivery == fake.ByActivity:
		return pluginsdk.Errorf(pluginsdk.KindUnsupported, "no instance fails to be created for %s", w.Kind)
	case callReasons[w.Kind] == "":
		return pluginsdk.Errorf(pluginsdk.KindUnsupported, "no call fails for %s: the instances are not created, later", w.Kind)
	default:
		writes := []string{"resize", "deleteInstances", "recreateInstances"}
		if w.Kind == pluginsdk.KindInvalid {
			writes = writes[:1] // which the provider calls to raise only
		}
		for _, on := range writes {
			calls.Calls = append(calls.Calls, migstub.CallFault{
				On: on, Reason: callReasons[w.Kind], RetryAfter: w.RetryAfter, From: w.From, To: w.To, Ratio: w.Ratio,
			})
		}
	}
	return nil
}
