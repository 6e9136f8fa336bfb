package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrMismatch is a plugin that is not what the profile says. The text says where.
var ErrMismatch = errors.New("the plugin is not what the wire profile says")

// Plan is a binding that was held against a plugin's descriptors.
type Plan struct {
	methods map[string]protoreflect.MethodDescriptor
	fields  map[string]Path
	states  map[string]State // by the plugin's own name
}

// Has reports whether the plugin has a method. It may still be unimplemented.
func (p *Plan) Has(method string) bool { return p.methods[method] != nil }

// Resolve holds a binding against the descriptors of the plugin that runs: all must
// be there and of the right kind, for another version of a plugin may have moved it.
func Resolve(d *Descriptors, b *Binding) (*Plan, error) {
	r := &resolver{plan: &Plan{methods: map[string]protoreflect.MethodDescriptor{}, fields: map[string]Path{}, states: map[string]State{}}}
	i := slices.IndexFunc(d.Services, func(s protoreflect.ServiceDescriptor) bool { return string(s.FullName()) == b.Service })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no service %s; there are %s", ErrMismatch, b.Service, servicesOf(d.Services))
	}
	for _, m := range methods {
		r.method(d.Services[i], m, b.Methods[m.name])
	}
	for _, role := range roles {
		r.role(role, b.Fields[role.name])
	}
	r.states(b.States)
	if len(r.problems) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrMismatch, strings.Join(r.problems, "; "))
	}
	return r.plan, nil
}

type resolver struct {
	plan     *Plan
	problems []string
}

func (r *resolver) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *resolver) method(s protoreflect.ServiceDescriptor, m method, name string) {
	if name == "" {
		if m.need {
			r.wrong("nothing is bound to %s", m.name)
		}
		return
	}
	found := s.Methods().ByName(protoreflect.Name(name))
	switch {
	case found == nil:
		r.wrong("%s has no method %s", s.FullName(), name)
	case found.IsStreamingClient() || (found.IsStreamingServer() && !m.stream):
		r.wrong("%s streams", found.FullName())
	default:
		r.plan.methods[m.name] = found
	}
}

// message is where a role's field is; nil where something above it is missing.
func (r *resolver) message(role role) protoreflect.MessageDescriptor {
	m := r.plan.methods[role.method]
	switch {
	case m == nil:
		return nil
	case role.side == inRequest:
		return m.Input()
	case role.side == inInstance:
		return elementOf(m.Output(), r.plan.fields[UpdateInstances])
	default:
		return m.Output()
	}
}

func (r *resolver) role(role role, name string) {
	m := r.message(role)
	if m == nil {
		return
	}
	if name == "" {
		if role.need {
			r.wrong("nothing is bound to %s", role.name)
		}
		return
	}
	path, err := find(m, name)
	switch {
	case err != nil:
		r.wrong("%s: %v", role.name, err)
	case !slices.Contains(role.kinds, kindOf(path.last())):
		r.wrong("%s: %s is %s, not %s", role.name, name, Type(path.last()), kindNames(role.kinds))
	default:
		r.plan.fields[role.name] = path
	}
}

// states must name the values of an enum that there are, and all that are needed.
func (r *resolver) states(states map[string]State) {
	for _, s := range needed {
		if !slices.Contains(slices.Collect(maps.Values(states)), s) {
			r.wrong("no state means %s", s)
		}
	}
	path := r.plan.fields[UpdateState]
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if path != nil && path.last().Kind() == protoreflect.EnumKind && path.last().Enum().Values().ByName(protoreflect.Name(name)) == nil {
			r.wrong("enum %s has no value %s", path.last().Enum().FullName(), name)
			continue
		}
		r.plan.states[name] = states[name]
	}
}
