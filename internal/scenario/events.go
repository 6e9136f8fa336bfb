package scenario

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// eventKinds are the words that say what happens, one in each event.
var eventKinds = []string{
	"cancel", "duplicate", "set_desired", "kill_instance", "interrupt", "unhealthy", "keep", "signal", "plugin", "store", "replica", "runner", "config",
	"controller", "link", "offers",
}

// event reads one entry of events. The rest of the scenario is known by now.
func (s *storyReader) event(n *yaml.Node, path string) {
	ev := Event{Line: n.Line}
	var names []string
	times := 1
	set := func(a Action) field { return s.action(a, &ev.Action) }
	before := len(s.problems)
	seen := s.mapping(n, path, map[string]field{
		"at":            s.duration(&ev.At),
		"cancel":        s.texts(&names),
		"duplicate":     s.texts(&names),
		"times":         s.count(&times),
		"set_desired":   set(SetDesired{}),
		"kill_instance": set(KillInstance{}),
		"interrupt":     set(Interrupt{}),
		"unhealthy":     set(Unhealthy{}),
		"keep":          set(Keep{}),
		"signal":        set(Signal{}),
		"plugin":        set(Plugin{}),
		"store":         set(Store{}),
		"replica":       set(Replica{}),
		"runner":        set(Runner{}),
		"controller":    set(Control{}),
		"link":          set(Link{}),
		"offers":        set(Offers{}),
		"config":        func(n *yaml.Node, _ string) { ev.Action = Reload{Config: s.reloads[n]} },
	})
	if len(s.problems) > before || n.Kind != yaml.MappingNode {
		return
	}
	kind := s.onlyKind(n, path, seen)
	switch kind {
	case "cancel":
		ev.Action = Cancel{Jobs: s.resolveJobs(s.book, names, ev.At, n.Line, path)}
	case "duplicate":
		ev.Action = Duplicate{Jobs: s.resolveJobs(s.book, names, ev.At, n.Line, path), Times: times}
	}
	if !seen["at"] {
		s.failf(n.Line, path, "an event needs at")
	}
	if seen["times"] && (kind != "duplicate" || times < 1 || times > MaxTimes) {
		s.failf(n.Line, join(path, "times"), "goes with duplicate, 1 to %d", MaxTimes)
	}
	s.within(n.Line, path, ev.At, s.story.Duration)
	s.story.Events = append(s.story.Events, ev)
}

// onlyKind returns the one word of n that says what happens.
func (s *storyReader) onlyKind(n *yaml.Node, path string, seen map[string]bool) string {
	var found []string
	for _, k := range eventKinds {
		if seen[k] {
			found = append(found, k)
		}
	}
	if len(found) != 1 {
		s.failf(n.Line, path, "an event has exactly one of %s", strings.Join(eventKinds, ", "))
		return ""
	}
	return found[0]
}

// action reads the settings of an action that has its own.
func (s *storyReader) action(kind Action, dst *Action) field {
	return func(n *yaml.Node, path string) {
		before := len(s.problems)
		a := s.readAction(kind, n, path)
		if len(s.problems) == before {
			*dst = a
		}
	}
}

func (s *storyReader) readAction(kind Action, n *yaml.Node, path string) Action {
	switch a := kind.(type) {
	case SetDesired:
		s.need(n, path, map[string]field{"pool": s.pool(&a.Pool), "to": s.count(&a.To)}, "pool", "to")
		return a
	case KillInstance:
		s.need(n, path, map[string]field{"pool": s.pool(&a.Pool), "nth": s.count(&a.Nth)}, "pool", "nth")
		return a
	case Interrupt:
		a.Kind, a.Via = pluginsdk.SpotInterruption, ViaProvider
		s.need(n, path, map[string]field{
			"pool": s.pool(&a.Pool), "nth": s.count(&a.Nth), "notice": s.duration(&a.Notice), "via": s.via(&a.Via),
			"kind": oneOf(s.reader, &a.Kind, pluginsdk.SpotInterruption, pluginsdk.Maintenance, pluginsdk.Rebalance),
		}, "pool", "nth")
		return a
	case Unhealthy:
		a.Via = ViaProvider
		s.need(n, path, map[string]field{"pool": s.pool(&a.Pool), "nth": s.count(&a.Nth), "via": s.via(&a.Via)}, "pool", "nth")
		return a
	case Keep:
		s.need(n, path, map[string]field{"pool": s.pool(&a.Pool), "nth": s.count(&a.Nth)}, "pool", "nth")
		return a
	case Signal:
		a.For = DefaultFaultFor
		s.need(n, path, map[string]field{
			"source": oneOf(s.reader, &a.Source, "jobs"),
			"fault":  oneOf(s.reader, &a.Fault, SignalError, SignalTimeout, SignalEmpty, SignalStale, SignalPartial),
			"for":    s.duration(&a.For),
		}, "source", "fault")
		return a
	case Plugin:
		return s.plugin(a, n, path)
	case Runner:
		s.need(n, path, map[string]field{
			"pool": s.pool(&a.Pool), "nth": s.count(&a.Nth), "fault": oneOf(s.reader, &a.Fault, RunnerDeleted, RunnerPaused, RunnerResumed),
		}, "pool", "nth", "fault")
		if s.story.Mode == Orchestrate {
			s.failf(n.Line, path, "there is no GitLab in mode orchestrate: set mode to observe or route")
		}
		return a
	case Store:
		a.For = DefaultFaultFor
		seen := s.need(n, path, map[string]field{
			"fault": oneOf(s.reader, &a.Fault, StoreDown, StoreWiped, StoreReadonly),
			"for":   s.duration(&a.For),
		}, "fault")
		if seen["for"] && a.Fault == StoreWiped {
			s.failf(n.Line, path, "a store is wiped at once: for does not go with it")
		}
		return a
	case Control:
		return s.control(n, path)
	case Link:
		return s.link(n, path)
	case Offers:
		return s.offers(n, path)
	default:
		return s.replica(n, path)
	}
}

// via reads whose word it is.
func (s *storyReader) via(dst *Via) field { return oneOf(s.reader, dst, ViaProvider, ViaMachine) }

func (s *storyReader) plugin(a Plugin, n *yaml.Node, path string) Action {
	seen := s.need(n, path, map[string]field{
		"pool":  s.pool(&a.Pool),
		"fault": oneOf(s.reader, &a.Fault, PluginCrash, PluginHang),
		"for":   s.duration(&a.For),
	}, "pool", "fault")
	switch {
	case seen["for"]:
	case a.Fault == PluginCrash:
		a.For = DefaultCrashFor
	default:
		a.For = DefaultFaultFor
	}
	return a
}

func (s *storyReader) replica(n *yaml.Node, path string) Action {
	var a Replica
	s.need(n, path, map[string]field{
		"n":             s.count(&a.N),
		"fault":         oneOf(s.reader, &a.Fault, ReplicaKill, ReplicaPause),
		"restart_after": s.duration(&a.RestartAfter),
	}, "n", "fault")
	if a.N >= s.story.Replicas {
		s.failf(n.Line, join(path, "n"), "there is no replica %d (replicas: %d)", a.N, s.story.Replicas)
	}
	if a.Fault == ReplicaPause && a.RestartAfter == 0 {
		s.failf(n.Line, path, "a pause needs restart_after")
	}
	return a
}

// need is mapping with keys that must be there.
func (s *storyReader) need(n *yaml.Node, path string, fields map[string]field, keys ...string) map[string]bool {
	seen := s.mapping(n, path, fields)
	for _, k := range keys {
		if !seen[k] && n.Kind == yaml.MappingNode {
			s.failf(n.Line, path, "needs %s", k)
		}
	}
	return seen
}

// pool reads the name of a pool that exists.
func (s *storyReader) pool(dst *string) field {
	return func(n *yaml.Node, path string) {
		s.text(dst)(n, path)
		if _, ok := s.story.Clouds[*dst]; !ok && s.pools != nil {
			s.failf(n.Line, path, "there is no pool %.60q; there are %s", *dst, strings.Join(s.pools, ", "))
		}
	}
}

// readReloads merges the reloads among the events in the order of their time, so
// that everything else may speak of the pools that they bring.
func (s *storyReader) readReloads(events *yaml.Node) {
	if events == nil || events.Kind != yaml.SequenceNode || s.story.Config == nil {
		return
	}
	type reload struct {
		at    time.Duration
		patch *yaml.Node
	}
	var list []reload
	for _, ev := range events.Content {
		if patch := value(ev, "config"); patch != nil {
			r := reload{patch: patch}
			if at := value(ev, "at"); at != nil {
				r.at, _ = parseDuration(at.Value) // event reports what is wrong with it
			}
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b reload) int { return cmp.Compare(a.at, b.at) })
	s.reloads = make(map[*yaml.Node]*config.Config)
	present := s.story.Config
	for _, r := range list {
		next, err := present.Merge(s.file, r.patch)
		if err != nil {
			s.addConfigError(r.patch.Line, s.path("config"), err)
			continue
		}
		s.checkReload(r.patch.Line, next)
		s.addPools(next)
		s.reloads[r.patch], present = next, next
	}
}

// value is that of key in n, nil if there is none.
func value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}
