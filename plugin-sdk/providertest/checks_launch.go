package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// launchChecks begin with an empty group and leave MaxInstances running.
var launchChecks = []check{
	{
		name:    "set_desired_conflict",
		promise: "a desired that is not the expected one is ErrConflict with the observed number, and nothing is written",
		run:     setDesiredConflict,
	},
	{
		name:    "set_desired_negative",
		promise: "Target ≥ 0; ErrInvalid otherwise",
		run: func(ctx context.Context, t *trial) error {
			_, err := t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: t.Group, Target: -1, Token: t.token()})
			return want(pluginsdk.KindInvalid, err)
		},
	},
	{
		name: "set_desired_raises", vital: true,
		promise: "SetDesired makes target the desired number and returns it; repeating it with the same token is harmless",
		run:     setDesiredRaises,
	},
	{
		name:    "set_desired_is_absolute",
		promise: "if desired is target already it is no write and no conflict, whatever is expected",
		run: func(ctx context.Context, t *trial) error {
			n := t.MaxInstances
			for _, expected := range []int{n, n - 1, n + 1, 0} {
				got, err := t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: t.Group, Target: n, Expected: expected, Token: t.token()})
				if err != nil || got != n {
					return fmt.Errorf("SetDesired(%d), expecting %d: got %d and error %w", n, expected, got, orNone(err))
				}
			}
			return t.settleDesired(ctx, n)
		},
	},
	{
		name: "instances_run", vital: true,
		promise: "ListInstances shows every instance; those that were asked for are running in the end, and no others; an address is a host, or host:port",
		run: func(ctx context.Context, t *trial) error {
			if err := t.settleRunning(ctx, t.MaxInstances); err != nil {
				return err
			}
			all, err := t.list(ctx)
			if err == nil && len(all) != t.MaxInstances {
				err = fmt.Errorf("%d instances exist, %d were asked for", len(all), t.MaxInstances)
			}
			return err
		},
	},
	{
		name:    "concurrent_calls",
		promise: "calls may come concurrently, for the same group too",
		run:     concurrentCalls,
	},
	{
		name:    "context_ends",
		promise: "every method returns promptly when its context ends",
		run:     contextEnds,
	},
}

func setDesiredConflict(ctx context.Context, t *trial) error {
	_, err := t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: t.Group, Target: 1, Expected: 7, Token: t.token()})
	if wrong := want(pluginsdk.KindConflict, err); wrong != nil {
		return wrong
	}
	var conflict *pluginsdk.Error
	if errors.As(err, &conflict) && conflict.Observed != 0 {
		return fmt.Errorf("observed is %d, desired is 0", conflict.Observed)
	}
	return t.settleDesired(ctx, 0)
}

func setDesiredRaises(ctx context.Context, t *trial) error {
	r := pluginsdk.SetDesired{Group: t.Group, Target: t.MaxInstances, Expected: 0, Token: t.token()}
	for range 2 { // the second one as after a lost answer
		got, err := t.Provider.SetDesired(ctx, r)
		if err != nil {
			return err
		}
		if got != r.Target {
			return fmt.Errorf("it returned %d, %d were asked for", got, r.Target)
		}
	}
	return t.settleDesiredUp(ctx, r.Target)
}

// settleDesiredUp waits for a desired number from below.
func (t *trial) settleDesiredUp(ctx context.Context, want int) error {
	return t.settle(ctx, func() (string, error) {
		got, err := t.desired(ctx)
		switch {
		case err != nil:
			return "", err
		case got > want:
			return "", fmt.Errorf("desired is %d, %d were asked for", got, want)
		case got < want:
			return fmt.Sprintf("desired is %d, it should be %d", got, want), nil
		}
		return "", nil
	})
}

func concurrentCalls(ctx context.Context, t *trial) error {
	const callers = 8
	n := t.MaxInstances
	results := make(chan error, 3*callers)
	for i := range callers {
		token := fmt.Sprintf("providertest-concurrent-%d", i)
		go func() { _, err := t.status(ctx); results <- err }()
		go func() {
			all, err := t.list(ctx)
			if err == nil && !slices.Equal(in(all, pluginsdk.StateRunning), t.running) {
				err = fmt.Errorf("ListInstances says %v, it should be %v", in(all, pluginsdk.StateRunning), t.running)
			}
			results <- err
		}()
		go func() {
			got, err := t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: t.Group, Target: n, Expected: n, Token: token})
			if err == nil && got != n {
				err = fmt.Errorf("SetDesired(%d) returned %d", n, got)
			}
			results <- err
		}()
	}
	var errs []error
	for range 3 * callers {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// contextEnds asks for nothing that would be a write if it were carried out
// after all. What the calls answer doesn't matter, only that they do.
func contextEnds(ctx context.Context, t *trial) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	n := t.MaxInstances
	for name, call := range map[string]func(){
		"Describe":      func() { _, _ = t.Provider.Describe(ended) },
		"Status":        func() { _, _ = t.Provider.Status(ended, []string{t.Group}) },
		"ListInstances": func() { _, _ = t.Provider.ListInstances(ended, t.Group) },
		"SetDesired": func() {
			_, _ = t.Provider.SetDesired(ended, pluginsdk.SetDesired{Group: t.Group, Target: n, Expected: n, Token: "providertest-ended"})
		},
		"Remove":   func() { _, _ = t.Provider.Remove(ended, t.Group, []string{noInstance}, "providertest-ended") },
		"Withdraw": func() { _, _ = t.Provider.Withdraw(ended, t.Group, n+1, "providertest-ended") },
		"Watch":    func() { _ = t.Provider.Watch(ended, []string{t.Group}, func(pluginsdk.Interruption) {}) },
	} {
		if err := promptly(name, func() error { call(); return nil }); err != nil {
			return err
		}
	}
	return nil
}
