package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Choices decide what the descriptors leave open. Keys are "service", the name of a
// method such as Init, a role such as Init.config, or "state." and a state's name in
// the plugin. The value "" of a role that isn't needed leaves it unbound.
type Choices map[string]string

const stateChoice = "state."

// Reason says why something was bound to what it is bound to.
type Reason string

// The reasons.
const (
	ByPerson Reason = "set by --set"
	ByKind   Reason = "the only one of its kind"
	ByName   Reason = "the only one of its kind with that name"
	ByMethod Reason = "the method's name"
	ByWord   Reason = "the value's name"
	Assumed  Reason = "not in the descriptors: the Go interface's own word"
)

// Bound is one line of a proposal.
type Bound struct {
	What   string `json:"what"` // as a key of Choices
	To     string `json:"to"`   // "" = nothing
	Type   string `json:"type,omitempty"`
	Reason Reason `json:"reason,omitempty"`
}

// Proposal is a binding and why it is this one.
type Proposal struct {
	Binding Binding `json:"binding"`
	Lines   []Bound `json:"lines"`
}

// Propose binds what a fleeting plugin does to the descriptors of one. Where two
// could be meant, or something needed is missing, there is no proposal: the error
// names all of it and what decides (ErrAmbiguous where that is a choice).
func Propose(d *Descriptors, chosen Choices) (*Proposal, error) {
	p := &proposer{chosen: chosen, used: map[string]bool{}, proposal: &Proposal{Binding: Binding{
		Methods: map[string]string{}, Fields: map[string]string{}, States: map[string]State{},
	}}}
	service, err := p.service(d)
	if err != nil {
		return nil, err
	}
	p.methods(service)
	for _, r := range roles {
		p.role(r)
	}
	p.states()
	for _, key := range slices.Sorted(maps.Keys(chosen)) {
		if !p.used[key] {
			p.wrong("--set %.80q decides nothing here; use service, %s, %s or %sVALUE", key, strings.Join(methodNames(), ", "), strings.Join(roleNames(), ", "), stateChoice)
		}
	}
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return p.proposal, nil
}

type proposer struct {
	chosen   Choices
	used     map[string]bool
	problems []error
	proposal *Proposal

	found   map[string]protoreflect.MethodDescriptor
	element protoreflect.MessageDescriptor // of Update.instances
	state   protoreflect.FieldDescriptor
	taken   []string // fields that are bound, by message and path
}

func (p *proposer) wrong(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, args...))
}

func (p *proposer) choice(key string) (value string, ok bool) {
	value, ok = p.chosen[key]
	p.used[key] = p.used[key] || ok
	return value, ok
}

func (p *proposer) bound(what, to, typ string, why Reason) {
	p.proposal.Lines = append(p.proposal.Lines, Bound{what, to, typ, why})
}

// service is the only one that has all methods that are needed.
func (p *proposer) service(d *Descriptors) (protoreflect.ServiceDescriptor, error) {
	var have, fit []protoreflect.ServiceDescriptor
	name, isChosen := p.choice("service")
	for _, s := range d.Services {
		have = append(have, s)
		if (isChosen && string(s.FullName()) == name) || (!isChosen && p.complete(s)) {
			fit = append(fit, s)
		}
	}
	switch {
	case len(fit) == 1:
		why := ByMethod
		if isChosen {
			why = ByPerson
		}
		p.proposal.Binding.Service = string(fit[0].FullName())
		p.bound("service", p.proposal.Binding.Service, "", why)
		return fit[0], nil
	case isChosen:
		return nil, fmt.Errorf("--set service=%.200s: there is no such service; there are %s", name, servicesOf(have))
	case len(fit) > 1:
		return nil, fmt.Errorf("%w: services %s all have the methods of a fleeting plugin: choose with --set service=NAME", ErrAmbiguous, servicesOf(fit))
	default:
		return nil, fmt.Errorf("no service has the methods Init, Update, Increase and Decrease; there are %s: if they have other names, choose with --set Init=NAME and so on", servicesOf(have))
	}
}

func servicesOf(all []protoreflect.ServiceDescriptor) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s.FullName())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (p *proposer) complete(s protoreflect.ServiceDescriptor) bool {
	for _, m := range methods {
		if m.need && len(p.methodsLike(s, m.name)) == 0 {
			return false
		}
	}
	return true
}

// methodsLike are the methods that are chosen for a name, or have it.
func (p *proposer) methodsLike(s protoreflect.ServiceDescriptor, name string) []protoreflect.MethodDescriptor {
	want, isChosen := p.choice(name)
	var like []protoreflect.MethodDescriptor
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		if (isChosen && string(m.Name()) == want) || (!isChosen && strings.EqualFold(string(m.Name()), name)) {
			like = append(like, m)
		}
	}
	return like
}

func (p *proposer) methods(s protoreflect.ServiceDescriptor) {
	p.found = map[string]protoreflect.MethodDescriptor{}
	for _, m := range methods {
		want, isChosen := p.choice(m.name)
		like := p.methodsLike(s, m.name)
		switch {
		case isChosen && want == "" && !m.need:
			p.bound(m.name, "", "", ByPerson)
		case len(like) > 1:
			p.problems = append(p.problems, fmt.Errorf("%w: %s has both %s and %s: choose with --set %s=NAME", ErrAmbiguous, s.FullName(), like[0].Name(), like[1].Name(), m.name))
		case len(like) == 0 && (m.need || isChosen):
			p.wrong("%s has no method %s", s.FullName(), strings.Trim(m.name+"="+want, "="))
		case len(like) == 0:
			p.bound(m.name, "", "", "")
		case like[0].IsStreamingClient() || (like[0].IsStreamingServer() && !m.stream):
			p.wrong("%s streams: this program can't speak to that", like[0].FullName())
		default:
			p.found[m.name] = like[0]
			p.proposal.Binding.Methods[m.name] = string(like[0].Name())
			p.bound(m.name, string(like[0].Name()), streams(like[0]), p.why(isChosen, ByMethod))
		}
	}
}

func (p *proposer) why(chosen bool, otherwise Reason) Reason {
	if chosen {
		return ByPerson
	}
	return otherwise
}

func streams(m protoreflect.MethodDescriptor) string {
	if m.IsStreamingServer() {
		return "stream"
	}
	return "unary"
}

// message is where a role's field is.
func (p *proposer) message(r role) protoreflect.MessageDescriptor {
	m := p.found[r.method]
	if m == nil {
		return nil
	}
	switch r.side {
	case inRequest:
		return m.Input()
	case inInstance:
		return p.element
	case inAnswer:
	}
	return m.Output()
}

// role binds one field.
func (p *proposer) role(r role) {
	m := p.message(r)
	if m == nil {
		return // its method, or the list that it is in, isn't there
	}
	path, why, ok := p.pick(r, m)
	if !ok {
		return
	}
	if path == nil {
		p.bound(r.name, "", "", why)
	} else {
		p.taken = append(p.taken, takenName(m, path))
		p.proposal.Binding.Fields[r.name] = path.String()
		p.bound(r.name, path.String(), Type(path.last()), why)
	}
	switch r.name {
	case UpdateInstances:
		p.element = elementOf(m, path)
	case UpdateState:
		p.state = path.last()
	}
}

// elementOf is the message that has an instance's id and state.
func elementOf(answer protoreflect.MessageDescriptor, instances Path) protoreflect.MessageDescriptor {
	if instances == nil {
		return answer
	}
	return instances.last().Message()
}

func takenName(m protoreflect.MessageDescriptor, path Path) string {
	return string(m.FullName()) + "/" + path.String()
}

// pick decides which field a role is bound to; nil for none. ok is false where there
// is a problem.
func (p *proposer) pick(r role, m protoreflect.MessageDescriptor) (path Path, why Reason, ok bool) {
	if want, isChosen := p.choice(r.name); isChosen {
		return p.pickChosen(r, m, want)
	}
	fit := slices.DeleteFunc(fitting(m, r.kinds), func(path Path) bool { return slices.Contains(p.taken, takenName(m, path)) })
	if r.name == UpdateInstances {
		return p.pickList(r, m, fit)
	}
	byName := named(fit, r.words)
	switch {
	case !r.need && len(byName) == 0:
		return nil, "", true
	case r.need && len(fit) == 1:
		return fit[0], ByKind, true
	case len(byName) == 1:
		return byName[0], ByName, true
	case len(fit) == 0:
		p.wrong("%s: no field of %s is %s that could be %s; it has %s", r.name, m.FullName(), kindNames(r.kinds), r.what, fieldsOf(m))
	case len(byName) > 1:
		p.ambiguous(r, m, byName)
	default:
		p.ambiguous(r, m, fit)
	}
	return nil, "", false
}

func (p *proposer) pickChosen(r role, m protoreflect.MessageDescriptor, want string) (Path, Reason, bool) {
	if want == "" && !r.need {
		return nil, ByPerson, true
	}
	path, err := find(m, want)
	switch {
	case err != nil:
		p.wrong("--set %s=%.200s: %w; it has %s", r.name, want, err, fieldsOf(m))
	case !slices.Contains(r.kinds, kindOf(path.last())):
		p.wrong("--set %s=%.200s: it is %s, not %s", r.name, want, Type(path.last()), kindNames(r.kinds))
	default:
		return path, ByPerson, true
	}
	return nil, "", false
}

// pickList takes the only list whose elements have what an instance has. A stream
// may have no list: then each of its messages is an instance.
func (p *proposer) pickList(r role, m protoreflect.MessageDescriptor, lists []Path) (Path, Reason, bool) {
	lists = slices.DeleteFunc(lists, func(path Path) bool { return !looksLikeInstance(path.last().Message()) })
	byName := named(lists, r.words)
	switch {
	case len(lists) == 1:
		return lists[0], ByKind, true
	case len(byName) == 1:
		return byName[0], ByName, true
	case len(lists) > 1:
		p.ambiguous(r, m, lists)
	case p.found[Update].IsStreamingServer() && looksLikeInstance(m):
		return nil, "", true
	default:
		p.wrong("%s: no field of %s is a list of what has an id and a state; it has %s", r.name, m.FullName(), fieldsOf(m))
	}
	return nil, "", false
}

// looksLikeInstance: a string for the id and one more field for the state.
func looksLikeInstance(m protoreflect.MessageDescriptor) bool {
	ids := fitting(m, []kind{text})
	states := fitting(m, []kind{text, enumeration})
	return len(ids) >= 1 && len(states) >= 2
}

func (p *proposer) ambiguous(r role, m protoreflect.MessageDescriptor, fit []Path) {
	p.problems = append(p.problems, fmt.Errorf("%w: %s (%s) is one of %s of %s: choose with --set %s=FIELD",
		ErrAmbiguous, r.name, r.what, strings.Join(pathNames(fit), ", "), m.FullName(), r.name))
}

func kindNames(kinds []kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, " or ")
}

func fieldsOf(m protoreflect.MessageDescriptor) string {
	all := paths(m)
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.String() + " (" + Type(p.last()) + ")"
	}
	return strings.Join(names, ", ")
}
