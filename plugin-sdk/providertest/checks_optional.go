package providertest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// optionalChecks are about what not every cloud can do. They begin and end with
// MaxInstances running.
var optionalChecks = []check{
	{
		name:    "withdraw",
		promise: "Withdraw lowers desired by what isn't filled, ends no instance that exists, and is ErrConflict if desired isn't the expected one; ErrUnsupported without the capability",
		run:     withdraw,
	},
	{
		name:    "protect",
		promise: "Protect switches the group's own scale-in protection; ErrUnsupported without the capability",
		run:     protect,
	},
	{
		name:    "watch",
		promise: "Watch goes on until its context ends and returns nil then; ErrUnsupported without the capability",
		run:     watch,
	},
	{
		name:    "complete_hook",
		promise: "CompleteHook of an instance that nothing holds, or that is gone, is no error and changes nothing; ErrUnsupported without the capability",
		run:     completeHook,
	},
	{
		name:    "findings",
		promise: "Findings speak of the groups asked for, with a code in snake_case, a severity, a message and a fix; a group that doesn't exist is the finding group_not_found; ErrUnsupported without the capability",
		run:     findings,
	},
	{
		name:    "count",
		promise: "Count of a metric that the config doesn't name is ErrInvalid, never 0; ErrUnsupported without the capability",
		run:     count,
	},
	{
		name:    "report_unhealthy",
		promise: "ReportUnhealthy has the group replace the instance, and desired stays; one that is gone is no error; ErrUnsupported without the capability",
		run:     reportUnhealthy,
	},
}

func completeHook(ctx context.Context, t *trial) error {
	if !t.description.Has(pluginsdk.CanCompleteHook) {
		return want(pluginsdk.KindUnsupported, t.Provider.CompleteHook(ctx, t.Group, t.running[:1]))
	}
	if err := t.Provider.CompleteHook(ctx, t.Group, []string{t.running[0], noInstance}); err != nil {
		return err
	}
	return t.untouched(ctx)
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

func findings(ctx context.Context, t *trial) error {
	asked := []string{t.Group, noGroup}
	all, err := t.Provider.Findings(ctx, asked)
	if !t.description.Has(pluginsdk.CanFind) {
		return want(pluginsdk.KindUnsupported, err)
	}
	if err != nil {
		return err
	}
	missing := false
	for _, f := range all {
		switch {
		case !slices.Contains(asked, f.Group):
			return fmt.Errorf("a finding about group %q, which wasn't asked for", f.Group)
		case !snakeCase.MatchString(f.Code):
			return fmt.Errorf("the code %q is not in snake_case", f.Code)
		case f.Severity != pluginsdk.FindingError && f.Severity != pluginsdk.FindingWarning && f.Severity != pluginsdk.FindingInfo:
			return fmt.Errorf("finding %s has severity %q", f.Code, f.Severity)
		case f.Message == "" || f.Fix == "":
			return fmt.Errorf("finding %s needs a message and a fix", f.Code)
		}
		missing = missing || (f.Group == noGroup && f.Code == "group_not_found" && f.Severity == pluginsdk.FindingError)
	}
	if !missing {
		return fmt.Errorf("group %q doesn't exist, and no finding says so", noGroup)
	}
	return nil
}

func count(ctx context.Context, t *trial) error {
	_, err := t.Provider.Count(ctx, "spillway-no-such-metric")
	if !t.description.Has(pluginsdk.CanCount) {
		return want(pluginsdk.KindUnsupported, err)
	}
	if err := want(pluginsdk.KindInvalid, err); err != nil || t.Metric == "" {
		return err
	}
	got, err := t.Provider.Count(ctx, t.Metric)
	if err == nil && (got.Jobs < 0 || got.At.IsZero()) {
		return fmt.Errorf("metric %s is %v at %v", t.Metric, got.Jobs, got.At)
	}
	return err
}

// reportUnhealthy ends as it began, with MaxInstances running, one of them new.
func reportUnhealthy(ctx context.Context, t *trial) error {
	if !t.description.Has(pluginsdk.CanReportHealth) {
		return want(pluginsdk.KindUnsupported, t.Provider.ReportUnhealthy(ctx, t.Group, t.running[:1]))
	}
	broken, n := t.running[0], len(t.running)
	if err := t.Provider.ReportUnhealthy(ctx, t.Group, []string{broken, noInstance}); err != nil {
		return err
	}
	err := t.settle(ctx, func() (string, error) {
		all, err := t.list(ctx)
		if err == nil && slices.Contains(in(all, pluginsdk.StateRunning), broken) {
			return fmt.Sprintf("%q still runs", broken), nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	if err := t.settleRunning(ctx, n); err != nil {
		return err
	}
	return t.settleDesired(ctx, n)
}

func withdraw(ctx context.Context, t *trial) error {
	n := t.MaxInstances
	if !t.description.Has(pluginsdk.CanWithdraw) {
		_, err := t.Provider.Withdraw(ctx, t.Group, n, t.token())
		return want(pluginsdk.KindUnsupported, err)
	}
	_, err := t.Provider.Withdraw(ctx, t.Group, n+1, t.token())
	if err := want(pluginsdk.KindConflict, err); err != nil {
		return fmt.Errorf("expecting %d, with desired %d: %w", n+1, n, err)
	}
	got, err := t.Provider.Withdraw(ctx, t.Group, n, t.token())
	if err != nil {
		return err
	}
	if got != (pluginsdk.WithdrawResult{Desired: n}) {
		return fmt.Errorf("it withdrew %d and left %d, although %d of %d are running", got.Withdrawn, got.Desired, n, n)
	}
	return t.untouched(ctx)
}

// untouched checks that all instances are as they were.
func (t *trial) untouched(ctx context.Context) error {
	before := t.running
	all, err := t.list(ctx)
	if err != nil {
		return err
	}
	if now := in(all, pluginsdk.StateRunning); !slices.Equal(before, now) {
		return fmt.Errorf("%v were running, %v are", before, now)
	}
	return t.settleDesired(ctx, len(before))
}

func protect(ctx context.Context, t *trial) error {
	if !t.description.Has(pluginsdk.CanProtect) {
		return want(pluginsdk.KindUnsupported, t.Provider.Protect(ctx, t.Group, t.running[:1], true))
	}
	id := t.running[0]
	all, err := t.list(ctx)
	if err != nil {
		return err
	}
	before := isProtected(all, id)
	for _, on := range []bool{!before, before} {
		if err := t.Provider.Protect(ctx, t.Group, []string{id}, on); err != nil {
			return err
		}
		err := t.settle(ctx, func() (string, error) {
			all, err := t.list(ctx)
			if err == nil && isProtected(all, id) != on {
				return fmt.Sprintf("Protect(%t) doesn't show in the list", on), nil
			}
			return "", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func isProtected(all []pluginsdk.Instance, id string) bool {
	return slices.ContainsFunc(all, func(i pluginsdk.Instance) bool { return i.ID == id && i.Protected })
}

// watchFor is how long a watch must go on by itself to be believed.
const watchFor = 100 * time.Millisecond

func watch(ctx context.Context, t *trial) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- t.Provider.Watch(ctx, []string{t.Group}, func(pluginsdk.Interruption) {}) }()
	if !t.description.Has(pluginsdk.CanWatch) {
		return promptly("Watch, which is not supported,", func() error { return want(pluginsdk.KindUnsupported, <-ended) })
	}
	select {
	case err := <-ended:
		return fmt.Errorf("it ended by itself: %w", orNone(err))
	case <-time.After(watchFor):
	}
	cancel()
	return promptly("Watch", func() error {
		if err := <-ended; err != nil {
			return errors.Join(errors.New("it must return nil when its context ends"), err)
		}
		return nil
	})
}
