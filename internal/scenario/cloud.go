package scenario

import (
	"time"

	"go.yaml.in/yaml/v3"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// cloud reads one pool's group onto cfg, which holds the defaults.
func (r *reader) cloud(n *yaml.Node, path string, cfg *fake.Config) {
	before := len(r.problems)
	seen := r.mapping(n, path, map[string]field{
		"boot":             r.boot(&cfg.Boot),
		"min":              r.count(&cfg.Min),
		"max":              r.count(&cfg.Max),
		"initial":          r.count(&cfg.Initial),
		"never_register":   r.neverRegister(&cfg.NeverRegister),
		"errors":           r.errorWindows(&cfg.Errors),
		"partial":          r.number(&cfg.Partial),
		"late_fill":        r.duration(&cfg.LateFill),
		"visible_after":    r.duration(&cfg.VisibleAfter),
		"victim":           oneOf(r, &cfg.Victim, fake.BusyFirst, fake.Oldest, fake.RandomVictim),
		"protected":        r.truth(&cfg.Protected),
		"auto_replace":     r.truth(&cfg.AutoReplace),
		"price":            r.number(&cfg.PricePerHour),
		"launch_hook":      r.duration(&cfg.LaunchHook),
		"termination_hook": r.duration(&cfg.TerminationHook),
		"halts":            r.halts(&cfg.Halts),
		"kept":             r.texts(&cfg.Kept),
	})
	if !seen["initial"] {
		cfg.Initial = cfg.Min
	}
	if !seen["max"] {
		cfg.Max = max(cfg.Max, cfg.Min)
	}
	if len(r.problems) == before {
		r.problemsOf(n.Line, path, cfg.Validate())
	}
}

func (r *reader) boot(dst *fake.Boot) field {
	return func(n *yaml.Node, path string) {
		*dst = fake.Boot{}
		if n.Kind == yaml.ScalarNode {
			r.duration(&dst.P50)(n, path)
			return
		}
		seen := r.mapping(n, path, map[string]field{"p50": r.duration(&dst.P50), "p95": r.duration(&dst.P95)})
		if !seen["p50"] {
			r.failf(n.Line, path, "needs p50; or write one time, such as 60s")
		}
	}
}

func (r *reader) neverRegister(dst *fake.NeverRegister) field {
	return func(n *yaml.Node, path string) {
		r.mapping(n, path, map[string]field{
			"every": r.count(&dst.Every), "ids": r.texts(&dst.IDs), "all": r.truth(&dst.All),
		})
	}
}

func (r *reader) errorWindows(dst *[]fake.ErrorWindow) field {
	return func(n *yaml.Node, path string) {
		r.list(n, path, func(item *yaml.Node, path string) {
			w := fake.ErrorWindow{To: MaxDuration, Ratio: 1, Delivery: fake.ByCall}
			seen := r.mapping(item, path, map[string]field{
				"from": r.duration(&w.From),
				"to":   r.duration(&w.To),
				"kind": oneOf(r, &w.Kind, pluginsdk.KindCapacity, pluginsdk.KindQuota, pluginsdk.KindThrottled,
					pluginsdk.KindAuth, pluginsdk.KindInvalid, pluginsdk.KindTransient),
				"ratio":    r.number(&w.Ratio),
				"delivery": oneOf(r, &w.Delivery, fake.ByCall, fake.ByActivity),

				"retry_after": r.duration(&w.RetryAfter),
			})
			if !seen["kind"] {
				r.failf(item.Line, path, "needs a kind")
			}
			*dst = append(*dst, w)
		})
	}
}

// halts are the times in which the group launches or removes nothing.
func (r *reader) halts(dst *[]fake.Halt) field {
	return func(n *yaml.Node, path string) {
		r.list(n, path, func(item *yaml.Node, path string) {
			h := fake.Halt{To: MaxDuration}
			r.mapping(item, path, map[string]field{
				"from": r.duration(&h.From), "to": r.duration(&h.To), "launch": r.text(&h.Launch), "removal": r.text(&h.Removal),
			})
			*dst = append(*dst, h)
		})
	}
}

// within checks that a time is not after the end of the story.
func (r *reader) within(line int, path string, at, end time.Duration) {
	if at > end {
		r.failf(line, path, "%s is after the end of the story (duration %s)", at, end)
	}
}
