package gcemig

import (
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// session is what Configure makes. Only what its groups remember ever changes.
type session struct {
	*clients
	clock
	owner  string            // "" = nobody is asked for
	groups map[string]*group // by their names in the contract
	scopes []scope           // of the groups, each once
}

// group is one managed instance group.
type group struct {
	id   string // its name in the contract and the configuration
	name string // its name in the scope
	scope
	memory memory
}

// memory is what a group remembers from one call to the next. A write relies on none
// of it, but may be refused for the owner.
type memory struct {
	sync.Mutex
	seen     bool // whether target is known
	target   int  // as last read
	stable   bool
	grewAt   time.Time // when target was last seen to be larger than before
	readAt   time.Time // when it was last tried to read its errors, zero = never
	failures []pluginsdk.GroupFailure

	details   map[uint64]detail // of the instances of the last list, by id
	detailsAt time.Time         // when they were all read, zero = never
	owner     string            // by their labels
}

func newSession(c config, made *clients, clock clock) *session {
	s := &session{clients: made, clock: clock, owner: c.Owner, groups: make(map[string]*group, len(c.Groups))}
	scopes := make(map[address]scope)
	for _, id := range c.Groups {
		a, _ := c.resolve(id) // Check has looked at it
		place := address{zone: a.zone, region: a.region}
		in, known := scopes[place]
		if !known {
			in = s.newScope(place)
			scopes[place] = in
			s.scopes = append(s.scopes, in)
		}
		s.groups[id] = &group{id: id, name: a.name, scope: in}
	}
	return s
}

func (s *session) newScope(place address) scope {
	if place.zone != "" {
		return &zone{s.clients, place.zone}
	}
	return &region{s.clients, place.region}
}

// find is the group of that name, once there is a session.
func (p *Provider) find(id string) (*session, *group, error) {
	s, err := p.configured.Get()
	if err != nil {
		return nil, nil, err
	}
	g := s.groups[id]
	if g == nil {
		return nil, nil, errNotFound(id)
	}
	return s, g, nil
}
