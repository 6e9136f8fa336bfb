package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// checks is the treaty, in the order in which it is looked at.
func checks() []check {
	return slices.Concat(startChecks, readChecks, launchChecks, optionalChecks, removeChecks, endChecks)
}

var startChecks = []check{
	{
		name: "describe_before_configure", vital: true,
		promise: "Describe costs no cloud call and may come before Configure",
		run:     describe,
	},
	{
		name:    "config_schema",
		promise: "Description.ConfigSchema is JSON Schema 2020-12, and the config is valid under it",
		run:     func(_ context.Context, t *trial) error { return checkSchema(t.description.ConfigSchema, t.Config) },
	},
	{
		name:    "unknown_config_key",
		promise: "an unknown key is refused with ErrInvalid, for a key that is ignored is a setting that is missed",
		run: func(ctx context.Context, t *trial) error {
			config, err := t.withUnknownKey()
			if err != nil {
				return err
			}
			return want(pluginsdk.KindInvalid, t.Provider.Configure(ctx, config))
		},
	},
	{
		name:    "config_not_an_object",
		promise: "Configure takes a JSON object; ErrInvalid otherwise",
		run: func(ctx context.Context, t *trial) error {
			for _, config := range []string{"", "[]", "{"} {
				if err := want(pluginsdk.KindInvalid, t.Provider.Configure(ctx, []byte(config))); err != nil {
					return fmt.Errorf("config %q: %w", config, err)
				}
			}
			return nil
		},
	},
	{
		name: "configure", vital: true,
		promise: "Configure takes a config that is valid under the schema, also after it has refused others",
		run:     func(ctx context.Context, t *trial) error { return t.Provider.Configure(ctx, t.Config) },
	},
}

func describe(ctx context.Context, t *trial) error {
	d, err := t.Provider.Describe(ctx)
	if err != nil {
		return err
	}
	t.description = d
	if d.Name == "" || d.Version == "" {
		return fmt.Errorf("name %q and version %q must both be said", d.Name, d.Version)
	}
	for _, said := range []string{d.Name, d.Version} {
		if len(said) > pluginsdk.MaxNameBytes || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("name and version: %.80q is not at most %d printable bytes", said, pluginsdk.MaxNameBytes)
		}
	}
	known := []pluginsdk.Capability{
		pluginsdk.CanWithdraw, pluginsdk.CanProtect, pluginsdk.CanWatch, pluginsdk.CanCompareAndSet,
		pluginsdk.CanCompleteHook, pluginsdk.CanReportHealth, pluginsdk.CanFind, pluginsdk.CanCount,
	}
	seen := map[pluginsdk.Capability]bool{}
	for _, c := range d.Capabilities {
		if !slices.Contains(known, c) || seen[c] {
			return fmt.Errorf("capability %q is not one of %v, or is there twice", c, known)
		}
		seen[c] = true
	}
	return t.checkDeviations(d.Deviations)
}

// checkDeviations holds the declared deviations to the names of the checks.
func (t *trial) checkDeviations(declared []pluginsdk.Deviation) error {
	names := map[string]bool{}
	for _, c := range t.checks {
		names[c.name] = !c.vital && !c.always
	}
	for _, d := range declared {
		excusable, known := names[d.Check]
		switch {
		case !known:
			return fmt.Errorf("it declares a deviation from %q, which is no check", d.Check)
		case !excusable:
			return fmt.Errorf("it declares a deviation from %q, without which nothing works", d.Check)
		case d.Reason == "":
			return fmt.Errorf("it declares a deviation from %q without a reason", d.Check)
		}
	}
	return nil
}

var readChecks = []check{
	{
		name: "group_is_empty", vital: true,
		promise: "(of the subject, not of the contract) the group is empty, so that all that is removed was launched here",
		run: func(ctx context.Context, t *trial) error {
			s, err := t.status(ctx)
			if err != nil {
				return err
			}
			all, err := t.list(ctx)
			if err != nil {
				return err
			}
			if s.Desired != 0 || len(all) != 0 {
				return fmt.Errorf("group %q has desired %d and %d instances: use one that is empty", t.Group, s.Desired, len(all))
			}
			t.ours = true
			if s.Max < t.MaxInstances {
				return fmt.Errorf("group %q has max %d, the checks need %d", t.Group, s.Max, t.MaxInstances)
			}
			return nil
		},
	},
	{
		name:    "status_in_order",
		promise: "Status answers for each of groups, in that order; a group that can't be read has its own Err",
		run:     statusInOrder,
	},
	{
		name:    "status_of_nothing",
		promise: "Status of no groups is no answers and no error",
		run: func(ctx context.Context, t *trial) error {
			all, err := t.Provider.Status(ctx, nil)
			if err != nil || len(all) != 0 {
				return fmt.Errorf("%d answers and error %w", len(all), orNone(err))
			}
			return nil
		},
	},
	{
		name:    "unknown_group",
		promise: "a group that doesn't exist is ErrNotFound, not an empty one",
		run: func(ctx context.Context, t *trial) error {
			_, err := t.Provider.ListInstances(ctx, noGroup)
			if err := want(pluginsdk.KindNotFound, err); err != nil {
				return fmt.Errorf("ListInstances: %w", err)
			}
			_, err = t.Provider.SetDesired(ctx, pluginsdk.SetDesired{Group: noGroup, Target: 1, Token: t.token()})
			if err := want(pluginsdk.KindNotFound, err); err != nil {
				return fmt.Errorf("SetDesired: %w", err)
			}
			return nil
		},
	},
}

func statusInOrder(ctx context.Context, t *trial) error {
	asked := []string{noGroup, t.Group, noGroup + "-2"}
	all, err := t.Provider.Status(ctx, asked)
	if err != nil {
		return fmt.Errorf("one group that doesn't exist must not fail the others: %w", err)
	}
	var answered []string
	for _, s := range all {
		answered = append(answered, s.Group)
	}
	if !slices.Equal(asked, answered) {
		return fmt.Errorf("asked for %s, answered %s", strings.Join(asked, ", "), strings.Join(answered, ", "))
	}
	for _, i := range []int{0, 2} {
		if err := want(pluginsdk.KindNotFound, all[i].Err); err != nil {
			return fmt.Errorf("entry %s: %w", asked[i], err)
		}
	}
	s := all[1]
	if s.Err != nil {
		return fmt.Errorf("entry %s: %w", t.Group, s.Err)
	}
	if s.Min < 0 || s.Min > s.Max || s.Desired < 0 {
		return fmt.Errorf("min %d, max %d, desired %d", s.Min, s.Max, s.Desired)
	}
	return nil
}

// orNone lets %w print what isn't there.
func orNone(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}
