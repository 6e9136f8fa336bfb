package providertest

import (
	"context"
	"fmt"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// removeChecks begin with MaxInstances running and leave one less.
var removeChecks = []check{
	{
		name:    "remove_nothing",
		promise: "an id that is gone is AlreadyGone, and desired does not fall for it",
		run: func(ctx context.Context, t *trial) error {
			if err := t.remove(ctx, []string{noInstance}, pluginsdk.AlreadyGone); err != nil {
				return err
			}
			return t.untouched(ctx)
		},
	},
	{
		name: "remove_by_name", vital: true,
		promise: "Remove ends exactly the named instances, one result per id in that order, and desired falls by one with each that was Removed",
		run:     removeByName,
	},
	{
		name:    "remove_again",
		promise: "an id that is terminating is AlreadyGone, and desired does not fall for it",
		run: func(ctx context.Context, t *trial) error {
			if err := t.remove(ctx, []string{t.running[0]}, pluginsdk.AlreadyGone); err != nil {
				return err
			}
			if err := t.settleDesired(ctx, t.MaxInstances-1); err != nil {
				return err
			}
			t.running = t.running[1:]
			return t.settleGone(ctx)
		},
	},
	{
		name:    "withdraw_unfilled",
		promise: "Withdraw drops only what was asked for and not filled yet",
		run:     withdrawUnfilled,
	},
}

// withdrawUnfilled asks for one more and takes it back at once. A fast cloud may
// have filled it already: then nothing is withdrawn.
func withdrawUnfilled(ctx context.Context, t *trial) error {
	if !t.description.Has(pluginsdk.CanWithdraw) {
		return skipped("the provider doesn't declare it")
	}
	n := len(t.running)
	if _, err := t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: t.Group, Target: n + 1, Expected: n, Token: t.token()}); err != nil {
		return err
	}
	got, err := t.Provider.Withdraw(ctx, t.Group, n+1, t.token())
	if err != nil {
		return err
	}
	if got.Withdrawn < 0 || got.Withdrawn > 1 || got.Desired != n+1-got.Withdrawn {
		return fmt.Errorf("it withdrew %d of 1 and left desired at %d of %d", got.Withdrawn, got.Desired, n+1)
	}
	if err := t.settleDesired(ctx, got.Desired); err != nil {
		return err
	}
	before := t.running
	if err := t.settleRunning(ctx, got.Desired); err != nil {
		return err
	}
	for _, id := range before {
		if !slices.Contains(t.running, id) {
			return fmt.Errorf("it ended %q, which was running", id)
		}
	}
	return nil
}

// endChecks run whatever was found before.
var endChecks = []check{
	{
		name: "remove_all", always: true,
		promise: "Remove takes several ids; desired is 0 when all are removed, and the list is empty in the end",
		run:     removeAll,
	},
	{
		name: "close", always: true,
		promise: "Close releases what the provider holds",
		run: func(ctx context.Context, t *trial) error {
			return t.Provider.Close(ctx)
		},
	},
}

// remove asks for ids and checks the answers.
func (t *trial) remove(ctx context.Context, ids []string, outcomes ...pluginsdk.RemoveOutcome) error {
	results, err := t.Provider.Remove(ctx, t.Group, ids, t.token())
	if err != nil {
		return fmt.Errorf("removing: %w", err)
	}
	if len(results) != len(ids) {
		return fmt.Errorf("%d results for %d ids", len(results), len(ids))
	}
	for i, r := range results {
		if r.ID != ids[i] {
			return fmt.Errorf("result %d is about %q, it should be about %q", i, r.ID, ids[i])
		}
		if r.Outcome != outcomes[i] {
			return fmt.Errorf("%q is %s (error %w), it should be %s", r.ID, r.Outcome, orNone(r.Err), outcomes[i])
		}
	}
	return nil
}

func removeByName(ctx context.Context, t *trial) error {
	if len(t.running) != t.MaxInstances {
		return fmt.Errorf("%d instances run after the checks before, it should be %d", len(t.running), t.MaxInstances)
	}
	ids := []string{noInstance, t.running[0]}
	if err := t.remove(ctx, ids, pluginsdk.AlreadyGone, pluginsdk.Removed); err != nil {
		return err
	}
	if err := t.settleDesired(ctx, t.MaxInstances-1); err != nil {
		return err
	}
	return t.settle(ctx, func() (string, error) {
		all, err := t.list(ctx)
		if err != nil {
			return "", err
		}
		running := in(all, pluginsdk.StateRunning)
		if slices.Contains(running, t.running[0]) {
			return fmt.Sprintf("%q was removed and is still listed as running", t.running[0]), nil
		}
		if !slices.Equal(running, t.running[1:]) {
			return "", fmt.Errorf("%v should go on running, %v do", t.running[1:], running)
		}
		return "", nil
	})
}

// settleGone waits until nothing is left but what should run.
func (t *trial) settleGone(ctx context.Context) error {
	return t.settle(ctx, func() (string, error) {
		all, err := t.list(ctx)
		if err == nil && len(all) != len(t.running) {
			return fmt.Sprintf("%d instances are listed, it should be %d", len(all), len(t.running)), nil
		}
		return "", err
	})
}

// removeAll also cleans up after checks that failed: it takes whatever is there,
// until nothing is.
func removeAll(ctx context.Context, t *trial) error {
	if !t.ours {
		return skipped("the group isn't ours to empty")
	}
	return t.settle(ctx, func() (string, error) {
		all, err := t.list(ctx)
		if err != nil {
			return "", err
		}
		ids := in(all, pluginsdk.StateRunning, pluginsdk.StateCreating, pluginsdk.StateUnknown)
		if len(ids) > 0 {
			if _, err := t.Provider.Remove(ctx, t.Group, ids, t.token()); err != nil {
				return "", fmt.Errorf("removing: %w", err)
			}
		}
		desired, err := t.desired(ctx)
		if err == nil && desired > len(all) && t.description.Has(pluginsdk.CanWithdraw) {
			_, _ = t.Provider.Withdraw(ctx, t.Group, desired, t.token()) // never filled: what stays is reported
		}
		if err == nil && (desired != 0 || len(all) != 0) {
			return fmt.Sprintf("desired is %d and %d instances are listed", desired, len(all)), nil
		}
		return "", err
	})
}
