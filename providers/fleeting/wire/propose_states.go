package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// states binds the names that the plugin has for states.
func (p *proposer) states() {
	if p.state == nil {
		return
	}
	if p.state.Kind() == protoreflect.EnumKind {
		p.enumStates(p.state.Enum())
	} else {
		p.textStates()
	}
	for _, s := range needed {
		if !p.means(s) {
			p.wrong("no state of the plugin means %s: choose with --set %sVALUE=%s", s, stateChoice, s)
		}
	}
}

func (p *proposer) means(s State) bool {
	for _, have := range p.proposal.Binding.States {
		if have == s {
			return true
		}
	}
	return false
}

// enumStates goes by the words in the values' names. A value that says nothing is
// unknown, which counts as running and busy.
func (p *proposer) enumStates(enum protoreflect.EnumDescriptor) {
	for i := range enum.Values().Len() {
		name := string(enum.Values().Get(i).Name())
		if p.chosenState(name) {
			continue
		}
		found := statesIn(name)
		switch len(found) {
		case 0:
			p.setState(name, Unknown, "")
		case 1:
			p.setState(name, found[0], ByWord)
		default:
			p.problems = append(p.problems, fmt.Errorf("%w: state %s could be %s or %s: choose with --set %s%s=STATE", ErrAmbiguous, name, found[0], found[1], stateChoice, name))
		}
	}
}

func statesIn(name string) []State {
	var found []State
	for _, w := range wordsOf(name) {
		if s := State(w); isState(s) && s != Unknown && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

// textStates has nothing to go by: the descriptors don't say which strings there are.
func (p *proposer) textStates() {
	for _, key := range slices.Sorted(maps.Keys(p.chosen)) {
		if name, ok := strings.CutPrefix(key, stateChoice); ok {
			p.chosenState(name)
		}
	}
	for _, s := range States {
		if _, ok := p.proposal.Binding.States[string(s)]; !ok && s != Unknown {
			p.setState(string(s), s, Assumed)
		}
	}
}

func (p *proposer) chosenState(name string) bool {
	want, ok := p.choice(stateChoice + name)
	if !ok {
		return false
	}
	if !isState(State(want)) {
		p.wrong("--set %s%.80s=%.80s: use creating, running, deleting, deleted, timeout or unknown", stateChoice, name, want)
		return true
	}
	p.setState(name, State(want), ByPerson)
	return true
}

func (p *proposer) setState(name string, s State, why Reason) {
	p.proposal.Binding.States[name] = s
	p.bound(stateChoice+name, string(s), "", why)
}
