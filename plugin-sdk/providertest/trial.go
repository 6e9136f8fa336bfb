package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// trial is a run of the checks.
type trial struct {
	Subject
	checks      []check
	description pluginsdk.Description
	ours        bool // the group was empty: everything in it is ours to remove
	running     []string
	tokens      int
}

// The group and the instance that nobody has.
const (
	noGroup    = "spillway-no-such-group"
	noInstance = "spillway-no-such-instance"
)

func (t *trial) token() string {
	t.tokens++
	return "providertest-" + strconv.Itoa(t.tokens)
}

// status reads the subject's group.
func (t *trial) status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	all, err := t.Provider.Status(ctx, []string{t.Group})
	switch {
	case err != nil:
		return pluginsdk.GroupStatus{}, fmt.Errorf("reading the status: %w", err)
	case len(all) != 1:
		return pluginsdk.GroupStatus{}, fmt.Errorf("the status has %d answers for 1 group", len(all))
	case all[0].Err != nil:
		return pluginsdk.GroupStatus{}, fmt.Errorf("status of %q: %w", t.Group, all[0].Err)
	}
	return all[0], nil
}

func (t *trial) desired(ctx context.Context) (int, error) {
	s, err := t.status(ctx)
	return s.Desired, err
}

// list reads the instances and checks what holds for every list.
func (t *trial) list(ctx context.Context) ([]pluginsdk.Instance, error) {
	all, err := t.Provider.ListInstances(ctx, t.Group)
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	seen := map[string]bool{}
	for _, i := range all {
		switch {
		case i.ID == "":
			return nil, errors.New("an instance without an id")
		case seen[i.ID]:
			return nil, fmt.Errorf("instance %q is listed twice", i.ID)
		case !slices.Contains([]pluginsdk.InstanceState{
			pluginsdk.StateUnknown, pluginsdk.StateCreating, pluginsdk.StateRunning, pluginsdk.StateDeleting,
		}, i.State):
			return nil, fmt.Errorf("instance %q has state %q, which is not one of the contract's", i.ID, i.State)
		}
		if err := pluginsdk.CheckAddress(i.Address); err != nil {
			return nil, fmt.Errorf("instance %q has address %q: %w", i.ID, i.Address, err)
		}
		seen[i.ID] = true
	}
	return all, nil
}

// in returns the ids of those in one of states.
func in(all []pluginsdk.Instance, states ...pluginsdk.InstanceState) []string {
	var ids []string
	for _, i := range all {
		if slices.Contains(states, i.State) {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// settle waits until look is satisfied: it returns "" then, and else what is
// missing. An error of look ends it. The last look begins after all of the time: a
// machine that stands still is not the provider's.
func (t *trial) settle(ctx context.Context, look func() (missing string, err error)) error {
	const first = 5 * time.Millisecond
	longest := min(max(t.Settle/100, first), 5*time.Second)
	deadline := time.Now().Add(t.Settle)
	for every := first; ; every = min(2*every, longest) {
		last := time.Now().After(deadline)
		missing, err := look()
		if err != nil || missing == "" {
			return err
		}
		if last {
			return fmt.Errorf("after %v: %s", t.Settle, missing)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// settleDesired waits for a desired number, and fails when it goes below.
func (t *trial) settleDesired(ctx context.Context, want int) error {
	return t.settle(ctx, func() (string, error) {
		got, err := t.desired(ctx)
		switch {
		case err != nil:
			return "", err
		case got < want:
			return "", fmt.Errorf("desired fell to %d, it should be %d", got, want)
		case got > want:
			return fmt.Sprintf("desired is %d, it should be %d", got, want), nil
		}
		return "", nil
	})
}

// settleRunning waits until exactly n instances run, and remembers them.
func (t *trial) settleRunning(ctx context.Context, n int) error {
	return t.settle(ctx, func() (string, error) {
		all, err := t.list(ctx)
		if err != nil {
			return "", err
		}
		t.running = in(all, pluginsdk.StateRunning)
		if len(t.running) != n {
			return fmt.Sprintf("%d instances are listed as running, it should be %d", len(t.running), n), nil
		}
		return "", nil
	})
}

// want is the error for an answer that should have been of kind k.
func want(k pluginsdk.Kind, err error) error {
	if err != nil && pluginsdk.KindOf(err) == k {
		return nil
	}
	if err == nil {
		return fmt.Errorf("it succeeded, it should fail with %s", k)
	}
	return fmt.Errorf("it failed with %s (%w), it should be %s", pluginsdk.KindOf(err), err, k)
}

// promptly runs f, which must return within [prompt].
func promptly(what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(prompt):
	}
	select {
	case err := <-done: // both came while we could not look
		return err
	default:
		return fmt.Errorf("%s goes on %v after its context ended", what, prompt)
	}
}
