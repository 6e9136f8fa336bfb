package pluginsdk

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// enum converts between a closed set of Go values and its numbers on the wire.
type enum[G, W comparable] struct {
	toWire map[G]W
	toGo   map[W]G
}

func newEnum[G, W comparable](pairs map[G]W) enum[G, W] {
	back := make(map[W]G, len(pairs))
	for g, w := range pairs {
		back[w] = g
	}
	return enum[G, W]{toWire: pairs, toGo: back}
}

// wire returns the zero number (UNSPECIFIED) for a value outside the set.
func (e enum[G, W]) wire(g G) W { return e.toWire[g] }

func (e enum[G, W]) golang(w W) (G, bool) {
	g, ok := e.toGo[w]
	return g, ok
}

var (
	capabilities = newEnum(map[Capability]providerv1.Capability{
		CanWithdraw:      providerv1.Capability_CAPABILITY_WITHDRAW,
		CanProtect:       providerv1.Capability_CAPABILITY_PROTECT,
		CanWatch:         providerv1.Capability_CAPABILITY_WATCH,
		CanCompareAndSet: providerv1.Capability_CAPABILITY_COMPARE_AND_SET,
		CanCompleteHook:  providerv1.Capability_CAPABILITY_COMPLETE_HOOK,
		CanReportHealth:  providerv1.Capability_CAPABILITY_REPORT_UNHEALTHY,
		CanFind:          providerv1.Capability_CAPABILITY_FINDINGS,
		CanCount:         providerv1.Capability_CAPABILITY_COUNT,
	})
	instanceStates = newEnum(map[InstanceState]providerv1.InstanceState{
		StateUnknown:  providerv1.InstanceState_INSTANCE_STATE_UNSPECIFIED,
		StateCreating: providerv1.InstanceState_INSTANCE_STATE_CREATING,
		StateRunning:  providerv1.InstanceState_INSTANCE_STATE_RUNNING,
		StateDeleting: providerv1.InstanceState_INSTANCE_STATE_DELETING,
	})
	hooks = newEnum(map[Hook]providerv1.Hook{
		NoHook:          providerv1.Hook_HOOK_UNSPECIFIED,
		LaunchHook:      providerv1.Hook_HOOK_LAUNCH,
		TerminationHook: providerv1.Hook_HOOK_TERMINATION,
	})
	severities = newEnum(map[Severity]providerv1.Severity{
		FindingWarning: providerv1.Severity_SEVERITY_WARNING,
		FindingError:   providerv1.Severity_SEVERITY_ERROR,
		FindingInfo:    providerv1.Severity_SEVERITY_INFO,
	})
	outcomes = newEnum(map[RemoveOutcome]providerv1.RemoveOutcome{
		Removed:     providerv1.RemoveOutcome_REMOVE_OUTCOME_REMOVED,
		AlreadyGone: providerv1.RemoveOutcome_REMOVE_OUTCOME_ALREADY_GONE,
		NotRemoved:  providerv1.RemoveOutcome_REMOVE_OUTCOME_FAILED,
	})
	interruptions = newEnum(map[InterruptionKind]providerv1.InterruptionKind{
		SpotInterruption: providerv1.InterruptionKind_INTERRUPTION_KIND_SPOT,
		Rebalance:        providerv1.InterruptionKind_INTERRUPTION_KIND_REBALANCE,
		Maintenance:      providerv1.InterruptionKind_INTERRUPTION_KIND_MAINTENANCE,
		Terminating:      providerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING,
	})
)

// toInt32 saturates: a number that doesn't fit must arrive as absurd, for the
// host to refuse, and not wrapped around to a plausible one.
func toInt32(n int) int32 {
	return int32(min(max(n, math.MinInt32), math.MaxInt32))
}

func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeFromWire gives the zero time for one that is unset or out of range.
func timeFromWire(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

func statusToWire(s GroupStatus) *providerv1.GroupStatus {
	w := &providerv1.GroupStatus{
		Group:        s.Group,
		Desired:      toInt32(s.Desired),
		Min:          toInt32(s.Min),
		Max:          toInt32(s.Max),
		InTransition: s.InTransition,
		LaunchHalt:   clip(s.LaunchHalt),
		RemovalHalt:  clip(s.RemovalHalt),
		Error:        errorToWire(s.Err),
	}
	for _, f := range s.Failures {
		w.Failures = append(w.Failures, &providerv1.GroupFailure{
			Id: f.ID, Kind: kinds.wire(knownKind(f.Kind)), Message: clip(f.Message), At: timeToWire(f.At),
		})
	}
	return w
}

func statusFromWire(w *providerv1.GroupStatus) GroupStatus {
	s := GroupStatus{
		Group:        w.GetGroup(),
		Desired:      int(w.GetDesired()),
		Min:          int(w.GetMin()),
		Max:          int(w.GetMax()),
		InTransition: w.GetInTransition(),
		LaunchHalt:   clip(w.GetLaunchHalt()),
		RemovalHalt:  clip(w.GetRemovalHalt()),
		Err:          errorFromWire(w.GetError()),
	}
	for _, f := range w.GetFailures() {
		k, ok := kinds.golang(f.GetKind())
		if !ok {
			k = KindTransient
		}
		s.Failures = append(s.Failures, GroupFailure{
			ID: f.GetId(), Kind: k, Message: clip(f.GetMessage()), At: timeFromWire(f.GetAt()),
		})
	}
	return s
}

func instanceToWire(i Instance) *providerv1.Instance {
	return &providerv1.Instance{
		Id:         i.ID,
		State:      instanceStates.wire(i.State),
		LaunchedAt: timeToWire(i.LaunchedAt),
		Zone:       i.Zone,
		Address:    i.Address,
		Spot:       i.Spot,
		Protected:  i.Protected,
		Unhealthy:  i.Unhealthy,
		Hook:       hooks.wire(i.Hook),
		Kept:       i.Kept,
	}
}

func instanceFromWire(w *providerv1.Instance) Instance {
	state, ok := instanceStates.golang(w.GetState())
	if !ok {
		state = StateUnknown
	}
	hook, _ := hooks.golang(w.GetHook()) // one that this version doesn't know can't be completed by it
	return Instance{
		ID:         w.GetId(),
		State:      state,
		LaunchedAt: timeFromWire(w.GetLaunchedAt()),
		Zone:       w.GetZone(),
		Address:    w.GetAddress(),
		Spot:       w.GetSpot(),
		Protected:  w.GetProtected(),
		Unhealthy:  w.GetUnhealthy(),
		Hook:       hook,
		Kept:       w.GetKept(),
	}
}

func resultToWire(r RemoveResult) *providerv1.RemoveResult {
	return &providerv1.RemoveResult{InstanceId: r.ID, Outcome: outcomes.wire(r.Outcome), Error: errorToWire(r.Err)}
}

// resultFromWire takes an outcome that this version doesn't know for NotRemoved:
// the instance keeps counting until a list says otherwise.
func resultFromWire(w *providerv1.RemoveResult) RemoveResult {
	r := RemoveResult{ID: w.GetInstanceId(), Err: errorFromWire(w.GetError())}
	outcome, ok := outcomes.golang(w.GetOutcome())
	if !ok {
		outcome = NotRemoved
	}
	r.Outcome = outcome
	if outcome == NotRemoved && r.Err == nil {
		r.Err = Errorf(KindTransient, "not removed, no reason given")
	}
	return r
}

func interruptionToWire(i Interruption) *providerv1.WatchResponse {
	return &providerv1.WatchResponse{
		Group:      i.Group,
		InstanceId: i.InstanceID,
		Kind:       interruptions.wire(i.Kind),
		Deadline:   timeToWire(i.Deadline),
	}
}

// interruptionFromWire takes a kind that this version doesn't know for
// [Rebalance], the mildest.
func interruptionFromWire(w *providerv1.WatchResponse) Interruption {
	kind, ok := interruptions.golang(w.GetKind())
	if !ok {
		kind = Rebalance
	}
	return Interruption{
		Group:      w.GetGroup(),
		InstanceID: w.GetInstanceId(),
		Kind:       kind,
		Deadline:   timeFromWire(w.GetDeadline()),
	}
}

func findingToWire(f Finding) *providerv1.Finding {
	return &providerv1.Finding{
		Group: f.Group, Code: f.Code, Severity: severities.wire(f.Severity), Message: clip(f.Message), Fix: clip(f.Fix),
	}
}

func findingFromWire(w *providerv1.Finding) Finding {
	severity, ok := severities.golang(w.GetSeverity())
	if !ok {
		severity = FindingWarning
	}
	return Finding{
		Group: w.GetGroup(), Code: w.GetCode(), Severity: severity, Message: clip(w.GetMessage()), Fix: clip(w.GetFix()),
	}
}
