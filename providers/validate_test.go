package providers

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func checked(s *scripted) *validation { return &validation{next: s, group: "g"} }

// TestT5_HostileStatuses: refused as a whole.
func TestT5_HostileStatuses(t *testing.T) {
	for name, s := range map[string]pluginsdk.GroupStatus{
		"foreign group":    {Group: "other", Max: 1},
		"negative desired": {Group: "g", Desired: -1, Max: 1},
		"huge desired":     {Group: "g", Desired: math.MaxInt32, Max: math.MaxInt32},
		"above the limit":  {Group: "g", Desired: maxDesired + 1, Max: math.MaxInt32},
		"negative min":     {Group: "g", Min: -1, Max: 1},
		"negative max":     {Group: "g", Max: -1},
		"min above max":    {Group: "g", Min: 3, Max: 2},
	} {
		_, err := checked(&scripted{status: func(context.Context) (pluginsdk.GroupStatus, error) { return s, nil }}).Status(t.Context())
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
		require.ErrorContains(t, err, `group "g": the plugin's answer to status is refused`, name)
	}
}

func TestT5_StatusesAreClamped(t *testing.T) {
	failures := []pluginsdk.GroupFailure{{ID: ""}, {ID: "a", Message: strings.Repeat("é", maxTextBytes)}, {ID: "a"}, {ID: strings.Repeat("x", maxFailureIDBytes+1)}}
	for i := range 2 * maxFailures {
		failures = append(failures, pluginsdk.GroupFailure{ID: "f" + itoa(i)})
	}
	v := checked(&scripted{status: func(context.Context) (pluginsdk.GroupStatus, error) {
		return pluginsdk.GroupStatus{Group: "g", Desired: maxDesired, Min: 2, Max: math.MaxInt32, Failures: failures}, nil
	}})
	s, err := v.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, maxDesired, s.Max, "a plugin can't raise max")
	require.Equal(t, []int{maxDesired, 2, maxFailures}, []int{s.Desired, s.Min, len(s.Failures)})
	require.Equal(t, "a", s.Failures[0].ID)
	require.LessOrEqual(t, len(s.Failures[0].Message), maxTextBytes)
	require.Equal(t, "f0", s.Failures[1].ID)
}

func TestT5_HostileLists(t *testing.T) {
	many := make([]pluginsdk.Instance, maxListed+1)
	for i := range many {
		many[i].ID = itoa(i)
	}
	list := func(all []pluginsdk.Instance) error {
		_, err := checked(&scripted{list: func(context.Context) ([]pluginsdk.Instance, error) { return all, nil }}).ListInstances(t.Context())
		return err
	}
	require.NoError(t, list(many[:maxListed]))
	require.NoError(t, list([]pluginsdk.Instance{{ID: strings.Repeat("x", maxInstanceIDBytes)}}))
	for name, all := range map[string][]pluginsdk.Instance{
		"too many": many,
		"twice":    {{ID: "i"}, {ID: "j"}, {ID: "i"}},
		"no id":    {{ID: ""}},
		"long id":  {{ID: strings.Repeat("x", maxInstanceIDBytes+1)}},
	} {
		require.ErrorIs(t, list(all), pluginsdk.ErrInvalid, name)
	}
}

func TestT5_ALaunchInTheFutureIsNotKnown(t *testing.T) {
	soon := time.Now().Add(time.Minute) // a clock that is a little off
	v := checked(&scripted{list: func(context.Context) ([]pluginsdk.Instance, error) {
		return []pluginsdk.Instance{{ID: "i", LaunchedAt: time.Now().Add(48 * time.Hour)}, {ID: "j", LaunchedAt: soon}}, nil
	}})
	all, err := v.ListInstances(t.Context())
	require.NoError(t, err)
	require.Zero(t, all[0].LaunchedAt)
	require.Equal(t, soon, all[1].LaunchedAt)
}

func TestT5_AnAddressThatIsNoneIsNotKnown(t *testing.T) {
	v := checked(&scripted{list: func(context.Context) ([]pluginsdk.Instance, error) {
		return []pluginsdk.Instance{{ID: "i", Address: "10.0.0.7:9252"}, {ID: "j", Address: "http://169.254.169.254/latest"}}, nil
	}})
	all, err := v.ListInstances(t.Context())
	require.NoError(t, err)
	require.Equal(t, "10.0.0.7:9252", all[0].Address)
	require.Empty(t, all[1].Address)
}

func TestT5_HostileWrites(t *testing.T) {
	ctx := t.Context()
	desired := func(n int, err error) *validation {
		return checked(&scripted{setDesired: func(context.Context, int, int) (int, error) { return n, err }})
	}
	for _, n := range []int{-1, 8, math.MaxInt32} {
		_, err := desired(n, nil).SetDesired(ctx, 7, 3)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, n)
	}
	for _, n := range []int{-1, maxDesired + 1} {
		_, err := desired(0, pluginsdk.Conflict(n)).SetDesired(ctx, 7, 3)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, "a conflict with %d", n)
	}
	_, err := desired(0, pluginsdk.Conflict(5)).SetDesired(ctx, 7, 3)
	require.ErrorIs(t, err, pluginsdk.ErrConflict)
	n, err := desired(6, nil).SetDesired(ctx, 7, 3)
	require.NoError(t, err, "the group's own max may keep it lower")
	require.Equal(t, 6, n)
	for _, target := range []int{-1, maxDesired + 1} {
		_, err = desired(0, nil).SetDesired(ctx, target, 0)
		require.ErrorContains(t, err, "not within")
	}

	for name, results := range map[string][]pluginsdk.RemoveResult{
		"foreign id":  {{ID: "a", Outcome: pluginsdk.Removed}, {ID: "z", Outcome: pluginsdk.Removed}},
		"twice":       {{ID: "a", Outcome: pluginsdk.Removed}, {ID: "a", Outcome: pluginsdk.Removed}},
		"other order": {{ID: "b", Outcome: pluginsdk.Removed}, {ID: "a", Outcome: pluginsdk.Removed}},
		"too few":     {{ID: "a", Outcome: pluginsdk.Removed}},
		"too many":    removedAll([]string{"a", "b", "c"}),
	} {
		v := checked(&scripted{remove: func([]string) ([]pluginsdk.RemoveResult, error) { return results, nil }})
		_, err := v.Remove(ctx, []string{"a", "b"})
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
	}
	_, err = checked(&scripted{}).Remove(ctx, []string{"a", ""})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)

	for _, w := range []pluginsdk.WithdrawResult{{Desired: -1}, {Withdrawn: -1}, {Desired: 4}, {Withdrawn: 4}} {
		v := checked(&scripted{withdraw: func(int) (pluginsdk.WithdrawResult, error) { return w, nil }})
		_, err := v.Withdraw(ctx, 3)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, w)
	}
	_, err = checked(&scripted{withdraw: func(int) (pluginsdk.WithdrawResult, error) {
		return pluginsdk.WithdrawResult{}, pluginsdk.Conflict(-7)
	}}).Withdraw(ctx, 3)
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
}

// TestT16_NoTargetIsBeyondTheLimit: whatever asks for it, and not even the plugin hears
// of it.
func TestT16_NoTargetIsBeyondTheLimit(t *testing.T) {
	asked := 0
	calls := Decorate(&scripted{setDesired: func(_ context.Context, target, _ int) (int, error) {
		asked++
		return target, nil
	}}, CallInfo{Group: "g"}, Timing{}, Observer{})
	for _, target := range []int{-1, maxDesired + 1, math.MaxInt32} {
		_, err := calls.SetDesired(t.Context(), target, 0)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	}
	require.Zero(t, asked)
	desired, err := calls.SetDesired(t.Context(), maxDesired, 0)
	require.NoError(t, err)
	require.Equal(t, maxDesired, desired)
}
