package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits on what a plugin may answer. Beyond them the answer is refused as a
// whole: a part of it would be a guess.
const (
	maxDesired         = spillway.MaxInstancesPerPool     // instances
	maxListed          = 2 * spillway.MaxInstancesPerPool // instances, those that are on their way out included
	maxInstanceIDBytes = 255
	maxFailures        = 100 // of a status; the first ones are kept
	maxFailureIDBytes  = 255
	maxTextBytes       = 1 << 10 // of a zone or a failure's message; cut
	maxClockLead       = time.Hour
)

// validation checks every request and every answer. A plugin is a separate
// program, maybe somebody else's: a wrong number from it must become an error,
// not a decision.
type validation struct {
	next  Calls
	group string
}

// refused is an answer that breaks the contract.
func (v *validation) refused(op Op, format string, args ...any) error {
	err := refused(op, format, args...)
	err.Message = fmt.Sprintf("group %q: %s", v.group, err.Message)
	return err
}

func (v *validation) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	s, err := v.next.Status(ctx)
	if err != nil {
		return pluginsdk.GroupStatus{}, err
	}
	switch {
	case s.Group != v.group:
		return pluginsdk.GroupStatus{}, v.refused(OpStatus, "it is about group %.200q", s.Group)
	case s.Desired < 0 || s.Desired > maxDesired:
		return pluginsdk.GroupStatus{}, v.refused(OpStatus, "desired %d is not within 0 and %d", s.Desired, maxDesired)
	case s.Min < 0 || s.Min > s.Max:
		return pluginsdk.GroupStatus{}, v.refused(OpStatus, "min %d and max %d", s.Min, s.Max)
	}
	s.Max = min(s.Max, maxDesired) // the largest number that there is means unlimited
	s.Min = min(s.Min, maxDesired)
	s.Failures = cleanFailures(s.Failures)
	s.LaunchHalt, s.RemovalHalt = cut(s.LaunchHalt), cut(s.RemovalHalt)
	return s, nil
}

// cleanFailures keeps those that can be counted, each once.
func cleanFailures(all []pluginsdk.GroupFailure) []pluginsdk.GroupFailure {
	var kept []pluginsdk.GroupFailure
	seen := map[string]bool{}
	for _, f := range all {
		if len(kept) == maxFailures {
			break
		}
		if f.ID == "" || len(f.ID) > maxFailureIDBytes || seen[f.ID] {
			continue
		}
		seen[f.ID] = true
		f.Message = cut(f.Message)
		kept = append(kept, f)
	}
	return kept
}

func (v *validation) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	all, err := v.next.ListInstances(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) > maxListed {
		return nil, v.refused(OpListInstances, "%d instances, the limit is %d", len(all), maxListed)
	}
	seen := make(map[string]bool, len(all))
	latest := time.Now().Add(maxClockLead)
	for i := range all {
		switch id := all[i].ID; {
		case id == "" || len(id) > maxInstanceIDBytes:
			return nil, v.refused(OpListInstances, "an instance id of %d bytes, use 1 to %d", len(id), maxInstanceIDBytes)
		case seen[id]:
			return nil, v.refused(OpListInstances, "instance %q twice", id)
		}
		seen[all[i].ID] = true
		all[i].Zone = cut(all[i].Zone)
		if pluginsdk.CheckAddress(all[i].Address) != nil {
			all[i].Address = "" // not known: we are about to connect to it
		}
		if all[i].LaunchedAt.After(latest) {
			all[i].LaunchedAt = time.Time{} // not known: such an instance would be booting for ever
		}
	}
	return all, nil
}

func (v *validation) SetDesired(ctx context.Context, target, expected int) (int, error) {
	if target < 0 || target > maxDesired {
		return 0, pluginsdk.Errorf(pluginsdk.KindInvalid, "group %q: target %d is not within 0 and %d", v.group, target, maxDesired)
	}
	desired, err := v.next.SetDesired(ctx, target, expected)
	if err != nil {
		return 0, v.conflict(OpSetDesired, err)
	}
	if desired < 0 || desired > max(target, expected) {
		return 0, v.refused(OpSetDesired, "desired %d, for target %d", desired, target)
	}
	return desired, nil
}

// conflict checks the number that comes with a conflict: the host decides by it.
func (v *validation) conflict(op Op, err error) error {
	if pluginsdk.KindOf(err) != pluginsdk.KindConflict {
		return err
	}
	if n := observedDesired(err); n < 0 || n > maxDesired {
		return v.refused(op, "conflict with desired %d, not within 0 and %d", n, maxDesired)
	}
	return err
}

func (v *validation) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	if err := named(v.group, ids); err != nil {
		return nil, err
	}
	results, err := v.next.Remove(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(results) != len(ids) {
		return nil, v.refused(OpRemove, "%d results for %d instances", len(results), len(ids))
	}
	for i, r := range results {
		if r.ID != ids[i] {
			return nil, v.refused(OpRemove, "result %d is about instance %.200q, %.200q was asked", i, r.ID, ids[i])
		}
		results[i].Err = patient(r.Err)
	}
	return results, nil
}

func (v *validation) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	w, err := v.next.Withdraw(ctx, expected)
	if err != nil {
		return pluginsdk.WithdrawResult{}, v.conflict(OpWithdraw, err)
	}
	if w.Desired < 0 || w.Withdrawn < 0 || w.Desired > expected || w.Withdrawn > expected {
		return pluginsdk.WithdrawResult{}, v.refused(OpWithdraw, "desired %d after %d were withdrawn, for expected %d", w.Desired, w.Withdrawn, expected)
	}
	return w, nil
}

func (v *validation) CompleteHook(ctx context.Context, ids []string) error {
	if err := named(v.group, ids); err != nil {
		return err
	}
	return v.next.CompleteHook(ctx, ids)
}

func (v *validation) ReportUnhealthy(ctx context.Context, ids []string) error {
	if err := named(v.group, ids); err != nil {
		return err
	}
	return v.next.ReportUnhealthy(ctx, ids)
}

// named checks the ids of a request.
func named(group string, ids []string) error {
	if slices.Contains(ids, "") {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "group %q: an empty instance id", group)
	}
	return nil
}

// cut bounds a text that is only shown.
func cut(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes], "")
}

// observedDesired is the desired that came with a conflict.
func observedDesired(err error) int {
	var e *pluginsdk.Error
	if errors.As(err, &e) {
		return e.Observed
	}
	return 0
}
