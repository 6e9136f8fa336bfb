package simcloud

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

const (
	// pendingFor is how long EC2 takes at most until it says that an instance runs. Its
	// runner needs the rest of the story's boot time.
	pendingFor = 15 * time.Second
	// hookHeartbeat is the heartbeat of hooks: shorter than most jobs, so that they end
	// only if the plugin keeps them alive.
	hookHeartbeat = 5 * time.Minute
	// shortestHeartbeat is the least that a hook can have:
	// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
	shortestHeartbeat = 30 * time.Second
)

// The names of the hooks.
const (
	LaunchHook      = "registered"
	TerminationHook = "drained"
)

// asgWrites are the operations that the provider's writes are. The heartbeats of
// hooks are none of them: no story speaks of those.
var asgWrites = []string{
	"SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup", "CompleteLifecycleAction", "SetInstanceHealth", "SetInstanceProtection",
}

// asgConfig is what a story says of a cloud, in the words of the stand-in. What a
// group can't do is ErrUnsupported.
//
// Auto_replace is not asked for: the service replaces what it loses, whatever the
// story says.
func asgConfig(name string, c fake.Config) (asgstub.GroupConfig, error) {
	var none asgstub.GroupConfig
	faults := &asgstub.Faults{
		Boot:          asgstub.Boot(c.Boot),
		Pending:       min(pendingFor, c.Boot.P50),
		NeverRegister: asgstub.NeverRegister{Every: c.NeverRegister.Every, All: c.NeverRegister.All},
		LateFill:      c.LateFill,
		VisibleAfter:  c.VisibleAfter,
		Victim:        asgstub.Victim(c.Victim),
		Partial:       max(c.Partial, 1e-9), // 0 is all to the stand-in, and nothing to the story
	}
	for _, w := range c.Errors {
		if err := addASGError(faults, w); err != nil {
			return none, err
		}
	}
	g := asgstub.GroupConfig{
		Name: name, Min: c.Min, Max: c.Max, Desired: c.Initial, NewInstancesProtected: c.Protected,
		SuspendedProcesses: []string{"AZRebalance"}, Faults: faults,
	}
	for _, h := range []struct {
		name, transition, result string
		limit                    time.Duration
	}{
		{LaunchHook, asgstub.Launching, asgstub.Abandon, c.LaunchHook},
		{TerminationHook, asgstub.Terminating, asgstub.Continue, c.TerminationHook},
	} {
		if h.limit > 0 {
			g.Hooks = append(g.Hooks, asgstub.HookConfig{
				Name: h.name, Transition: h.transition, DefaultResult: h.result,
				HeartbeatTimeout: whole(max(shortestHeartbeat, min(hookHeartbeat, h.limit))), GlobalTimeout: whole(h.limit),
			})
		}
	}
	for _, h := range c.Halts {
		if h.From == 0 {
			g.SuspendedProcesses = append(g.SuspendedProcesses, haltedProcesses(h)...)
		}
	}
	slices.Sort(g.SuspendedProcesses)
	g.SuspendedProcesses = slices.Compact(g.SuspendedProcesses)
	return g, nil
}

func whole(d time.Duration) asgstub.Seconds { return asgstub.Seconds(d / time.Second) }

// haltedProcesses are the processes whose suspension is a halt.
func haltedProcesses(h fake.Halt) (names []string) {
	if h.Launch != "" {
		names = append(names, "Launch")
	}
	if h.Removal != "" {
		names = append(names, "Terminate")
	}
	return names
}

// callCodes are the codes of calls that fail. SetDesiredCapacity knows neither a lack
// of capacity nor a quota: those are told by activities.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SetDesiredCapacity.html
var callCodes = map[pluginsdk.Kind]string{
	pluginsdk.KindThrottled: "Throttling",
	pluginsdk.KindTransient: "InternalFailure",
	pluginsdk.KindAuth:      "AccessDenied",
	pluginsdk.KindInvalid:   "ValidationError",
}

// launchCodes are why launches fail. Those with a text are not known to the stand-in
// by their code.
var launchCodes = map[pluginsdk.Kind]asgstub.LaunchFault{
	pluginsdk.KindCapacity:  {Code: "InsufficientInstanceCapacity"},
	pluginsdk.KindQuota:     {Code: "VcpuLimitExceeded"},
	pluginsdk.KindInvalid:   {Code: "InvalidLaunchTemplate"},
	pluginsdk.KindThrottled: {Code: "RequestLimitExceeded", Message: "Request limit exceeded."},
	pluginsdk.KindAuth:      {Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."},
	pluginsdk.KindTransient: {Code: "InternalError", Message: "Server.InternalError: Internal error on launch."},
}

func addASGError(f *asgstub.Faults, w fake.ErrorWindow) error {
	window := asgstub.Window{From: w.From, To: w.To}
	switch {
	case w.Ratio == 0: // never
	case w.Delivery == fake.ByActivity:
		fault := launchCodes[w.Kind]
		fault.Window, fault.Ratio = window, w.Ratio
		f.Launch = append(f.Launch, fault)
	case callCodes[w.Kind] == "":
		return pluginsdk.Errorf(pluginsdk.KindUnsupported,
			"no call of the Auto Scaling API fails for %s: an activity does, later", w.Kind)
	case w.RetryAfter > 0:
		return pluginsdk.Errorf(pluginsdk.KindUnsupported, "the Auto Scaling API does not say when to ask again")
	default:
		operations := asgWrites
		if w.Kind == pluginsdk.KindInvalid {
			operations = []string{"SetDesiredCapacity"} // which the provider calls to raise only
		}
		f.Calls = append(f.Calls, asgstub.CallFault{Window: window, Operations: operations, Code: callCodes[w.Kind], Ratio: w.Ratio})
	}
	return nil
}
