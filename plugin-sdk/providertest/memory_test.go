package providertest_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// memory is a cloud with one group, "g". bug names the promise that it breaks;
// empty: none.
type memory struct {
	pluginsdk.Unsupported

	bug  string
	caps []pluginsdk.Capability
	mu   struct {
		sync.Mutex
		configured bool
		desired    int
		next       int
		instances  []*pluginsdk.Instance
		tokens     map[string]bool
		inUse      int
	}
}

var allCapabilities = []pluginsdk.Capability{
	pluginsdk.CanWithdraw, pluginsdk.CanProtect, pluginsdk.CanWatch,
	pluginsdk.CanCompleteHook, pluginsdk.CanReportHealth, pluginsdk.CanFind, pluginsdk.CanCount,
}

func newMemory(bug string, caps ...pluginsdk.Capability) *memory {
	m := &memory{bug: bug, caps: caps}
	m.mu.tokens = map[string]bool{}
	return m
}

func (m *memory) Describe(context.Context) (pluginsdk.Description, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := pluginsdk.Description{
		Name: "memory", Version: "1.0.0", Capabilities: m.caps,
		ConfigSchema: `{"type":"object","additionalProperties":false,"properties":{"region":{"type":"string"}}}`,
	}
	switch m.bug {
	case "describe needs configure":
		if !m.mu.configured {
			return d, pluginsdk.ErrInvalid
		}
	case "no version":
		d.Version = ""
	case "a name in two lines":
		d.Name += "\n2"
	case "unknown capability":
		d.Capabilities = append(slices.Clone(d.Capabilities), "fly")
	case "schema is broken":
		d.ConfigSchema = `{"type":"objekt"}`
	case "schema allows anything":
		d.ConfigSchema = `{}`
	case "deviates from nothing known":
		d.Deviations = []pluginsdk.Deviation{{Check: "fly", Reason: "no wings"}}
	case "deviates from what it must":
		d.Deviations = []pluginsdk.Deviation{{Check: "configure", Reason: "no wish"}}
	case "deviates without a reason":
		d.Deviations = []pluginsdk.Deviation{{Check: "watch"}}
	case "deviates needlessly":
		d.Deviations = []pluginsdk.Deviation{{Check: "watch", Reason: "it says"}}
	case "gone is removed, and it says so":
		d.Deviations = []pluginsdk.Deviation{{Check: "remove_nothing", Reason: "the cloud can't tell"}}
	}
	return d, nil
}

func (m *memory) Configure(_ context.Context, config []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil && m.bug != "config may be anything" {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "config: %w", err)
	}
	for k := range c {
		if k != "region" && m.bug != "unknown keys are ignored" {
			return pluginsdk.Errorf(pluginsdk.KindInvalid, "unknown key %q", k)
		}
	}
	m.mu.configured = true
	return nil
}

func (m *memory) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if m.bug == "status ignores its context" {
		if ctx.Err() != nil {
			select {}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := []pluginsdk.GroupStatus{}
	for _, g := range groups {
		s := pluginsdk.GroupStatus{Group: g, Desired: m.mu.desired, Max: 10}
		if g != "g" {
			s = pluginsdk.GroupStatus{Group: g, Err: pluginsdk.ErrNotFound}
			switch m.bug {
			case "unknown group fails all":
				return nil, pluginsdk.ErrNotFound
			case "unknown group is empty":
				s.Err = nil
			case "unknown group is left out":
				continue
			}
		}
		answers = append(answers, s)
	}
	if m.bug == "status in another order" {
		slices.Reverse(answers)
	}
	return answers, nil
}

func (m *memory) ListInstances(_ context.Context, group string) ([]pluginsdk.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if group != "g" {
		if m.bug == "unknown group has no instances" {
			return nil, nil
		}
		return nil, pluginsdk.ErrNotFound
	}
	if m.mu.inUse++; m.bug == "not made for concurrent calls" && m.mu.tokens["providertest-concurrent-0"] {
		return nil, pluginsdk.ErrTransient
	}
	var all []pluginsdk.Instance
	m.mu.instances = slices.DeleteFunc(m.mu.instances, func(i *pluginsdk.Instance) bool {
		all = append(all, *i)
		if i.State == pluginsdk.StateCreating && m.bug != "nothing ever runs" {
			i.State = pluginsdk.StateRunning
		}
		return i.State == pluginsdk.StateDeleting
	})
	switch {
	case m.bug == "listed twice" && len(all) > 0:
		all = append(all, all[0])
	case m.bug == "nameless state" && len(all) > 0:
		all[0].State = "rebooting"
	case m.bug == "address is a URL" && len(all) > 0:
		all[0].Address = "http://10.0.0.7:9252/metrics"
	case m.bug == "incomplete list" && len(all) > 1:
		all = all[1:]
	}
	return all, nil
}

func (m *memory) SetDesired(_ context.Context, r pluginsdk.SetDesired) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	repeated := m.mu.tokens[r.Token]
	m.mu.tokens[r.Token] = true
	switch {
	case r.Group != "g" && m.bug != "launches in unknown groups":
		return 0, pluginsdk.ErrNotFound
	case r.Target < 0 && m.bug != "negative targets":
		return 0, pluginsdk.ErrInvalid
	case m.bug == "relative" && repeated:
		m.launch(1)
		return m.mu.desired, nil
	case m.bug == "conflict although equal" && !repeated && r.Expected != m.mu.desired:
		return 0, pluginsdk.Conflict(m.mu.desired)
	case r.Target == m.mu.desired:
		return r.Target, nil
	case r.Expected != m.mu.desired && m.bug == "conflict observes nonsense":
		return 0, pluginsdk.Conflict(99)
	case r.Expected != m.mu.desired && m.bug != "no compare":
		if m.bug == "conflict writes" {
			m.launch(r.Target)
		}
		return 0, pluginsdk.Conflict(m.mu.desired)
	}
	m.launch(r.Target - m.mu.desired)
	if m.bug == "returns what it was" {
		return r.Expected, nil
	}
	return r.Target, nil
}

func (m *memory) launch(n int) {
	m.mu.desired += n
	if m.bug == "launches one more" {
		n++
	}
	for range n {
		m.mu.next++
		m.mu.instances = append(m.mu.instances, &pluginsdk.Instance{ID: "i-" + strconv.Itoa(m.mu.next), State: pluginsdk.StateCreating})
	}
}

func (m *memory) find(id string) *pluginsdk.Instance {
	for _, i := range m.mu.instances {
		if i.ID == id {
			return i
		}
	}
	return nil
}

func (m *memory) Remove(_ context.Context, _ string, ids []string, _ string) ([]pluginsdk.RemoveResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var results []pluginsdk.RemoveResult
	for _, id := range ids {
		i := m.find(id)
		if i == nil || i.State == pluginsdk.StateDeleting {
			results = append(results, m.removeGone(id))
			continue
		}
		if m.bug == "ends somebody else" {
			i = m.mu.instances[len(m.mu.instances)-1]
		}
		i.State = pluginsdk.StateDeleting
		if m.bug != "desired stays" {
			m.mu.desired--
		} else {
			m.launch(1)
			m.mu.desired--
		}
		results = append(results, pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed})
	}
	if m.bug == "results in another order" {
		slices.Reverse(results)
	}
	return results, nil
}

func (m *memory) removeGone(id string) pluginsdk.RemoveResult {
	switch m.bug {
	case "gone counts":
		m.mu.desired--
	case "gone fails":
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.NotRemoved, Err: pluginsdk.ErrNotFound}
	case "gone is removed", "gone is removed, and it says so":
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed}
	}
	return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.AlreadyGone}
}

func (m *memory) Withdraw(_ context.Context, _ string, expected int, _ string) (pluginsdk.WithdrawResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.caps, pluginsdk.CanWithdraw) && m.bug != "undeclared withdraw" {
		return pluginsdk.WithdrawResult{}, pluginsdk.ErrUnsupported
	}
	if expected != m.mu.desired && m.bug != "withdraws without compare" {
		return pluginsdk.WithdrawResult{}, pluginsdk.Conflict(m.mu.desired)
	}
	withdrawn := 0
	for _, i := range m.mu.instances {
		creating := i.State == pluginsdk.StateCreating
		if creating || m.bug == "withdraws what runs" && i.State == pluginsdk.StateRunning {
			i.State = pluginsdk.StateDeleting
			withdrawn++
		}
	}
	if m.bug == "withdraw miscounts" && withdrawn > 0 {
		return pluginsdk.WithdrawResult{Desired: m.mu.desired, Withdrawn: withdrawn}, nil
	}
	m.mu.desired -= withdrawn
	return pluginsdk.WithdrawResult{Desired: m.mu.desired, Withdrawn: withdrawn}, nil
}

func (m *memory) Protect(_ context.Context, _ string, ids []string, on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.bug == "undeclared protect":
		return nil
	case !slices.Contains(m.caps, pluginsdk.CanProtect):
		return pluginsdk.ErrUnsupported
	}
	for _, id := range ids {
		if i := m.find(id); i != nil && m.bug != "protects nothing" {
			i.Protected = on
		}
	}
	return nil
}

func (m *memory) has(c pluginsdk.Capability) bool {
	return slices.Contains(m.caps, c) || m.bug == "undeclared "+string(c)
}

func (m *memory) CompleteHook(_ context.Context, _ string, ids []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.has(pluginsdk.CanCompleteHook) {
		return pluginsdk.ErrUnsupported
	}
	for _, id := range ids {
		switch i := m.find(id); {
		case i == nil && m.bug == "hooks of what is gone fail":
			return pluginsdk.ErrNotFound
		case i != nil && m.bug == "hooks end instances":
			i.State = pluginsdk.StateDeleting
			m.mu.desired--
		}
	}
	return nil
}

func (m *memory) ReportUnhealthy(_ context.Context, _ string, ids []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.has(pluginsdk.CanReportHealth) {
		return pluginsdk.ErrUnsupported
	}
	for _, id := range ids {
		i := m.find(id)
		switch {
		case i == nil || m.bug == "unhealthy ones stay":
			continue
		case m.bug == "unhealthy ones are not replaced":
			m.mu.desired--
		default:
			m.launch(1)
			m.mu.desired--
		}
		i.State = pluginsdk.StateDeleting
	}
	return nil
}

func (m *memory) Findings(_ context.Context, groups []string) ([]pluginsdk.Finding, error) {
	if !m.has(pluginsdk.CanFind) {
		return nil, pluginsdk.ErrUnsupported
	}
	var all []pluginsdk.Finding
	for _, g := range groups {
		f := pluginsdk.Finding{Group: g, Code: "group_not_found", Severity: pluginsdk.FindingError, Message: "no group " + g, Fix: "make one"}
		switch {
		case g == "g" && m.bug == "finding without a fix":
			f.Fix = ""
		case g == "g" && m.bug == "finding with a free code":
			f.Code = "Group not found"
		case g == "g" && m.bug == "finding without a severity":
			f.Severity = ""
		case g == "g" && m.bug == "finding about somebody else":
			f.Group = "other"
		case g == "g" || m.bug == "finds nothing":
			continue
		}
		all = append(all, f)
	}
	return all, nil
}

func (m *memory) Count(_ context.Context, name string) (pluginsdk.Count, error) {
	switch {
	case !m.has(pluginsdk.CanCount):
		return pluginsdk.Count{}, pluginsdk.ErrUnsupported
	case name == "queue" && m.bug == "counts below zero":
		return pluginsdk.Count{Jobs: -1, At: time.Now()}, nil
	case name == "queue":
		return pluginsdk.Count{Jobs: 3, At: time.Now()}, nil
	case m.bug == "what isn't known counts 0":
		return pluginsdk.Count{At: time.Now()}, nil
	default:
		return pluginsdk.Count{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "no metric %q", name)
	}
}

func (m *memory) Watch(ctx context.Context, _ []string, _ func(pluginsdk.Interruption)) error {
	if !slices.Contains(m.caps, pluginsdk.CanWatch) && m.bug != "undeclared watch" {
		return pluginsdk.ErrUnsupported
	}
	if m.bug == "watch ends" {
		return nil
	}
	<-ctx.Done()
	if m.bug == "watch ends with an error" {
		return ctx.Err()
	}
	return nil
}

func (m *memory) Close(context.Context) error {
	if m.bug == "close fails" {
		return pluginsdk.ErrTransient
	}
	return nil
}
