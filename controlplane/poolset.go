package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/spillway-ci/spillway"
)

// The parts of a poolSet.
const (
	configPart      = "config"      // pools of the configuration
	coordinatorPart = "coordinator" // pools that were registered while it runs
	cellsPart       = "cells"       // what other cells offer
)

// poolSet is every pool that the router knows: those of the configuration and those
// that other parts add while it runs, each with the priority in force.
type poolSet struct {
	changed func([]spillway.Pool) // is told all of them after each change, one change at a time

	mu struct {
		sync.Mutex
		parts      []poolsOf
		priorities map[string]pinned // by pool; nil = they were not read yet
	}
}

// poolsOf is the pools of one part.
type poolsOf struct {
	part  string
	pools []spillway.Pool // with the priorities that the part gave them
}

// pinned is a priority that somebody has set for a pool, for as long as its runners take
// what they took then: for another capability nobody has chosen it.
type pinned struct {
	fingerprint spillway.Fingerprint
	priority    int
}

func newPoolSet(changed func([]spillway.Pool)) *poolSet {
	return &poolSet{changed: changed}
}

// replace sets the pools of a part. A name that another part has is refused, and
// nothing is changed.
func (s *poolSet) replace(part string, pools []spillway.Pool) error {
	return s.update(part, func([]spillway.Pool) []spillway.Pool { return slices.Clone(pools) })
}

// update is replace by what change makes of the pools that the part has: nobody else
// changes them meanwhile.
func (s *poolSet) update(part string, change func(pools []spillway.Pool) []spillway.Pool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.mu.parts, func(p poolsOf) bool { return p.part == part })
	var pools []spillway.Pool
	if at >= 0 {
		pools = slices.Clone(s.mu.parts[at].pools)
	}
	pools = change(pools)
	names := map[string]bool{}
	for i := range pools {
		names[pools[i].Name] = true
	}
	for _, p := range s.mu.parts {
		for k := range p.pools {
			if p.part != part && names[p.pools[k].Name] {
				return fmt.Errorf("pool %s: %w: there is a pool of that name (%s)", p.pools[k].Name, spillway.ErrInvalid, p.part)
			}
		}
	}
	if at < 0 {
		s.mu.parts = append(s.mu.parts, poolsOf{part, pools})
	} else {
		s.mu.parts[at].pools = pools
	}
	s.changed(s.list())
	return nil
}

// pin sets the priorities that people have set. They are read again and again, and
// nobody is told where they are what they were.
func (s *poolSet) pin(priorities map[string]pinned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.priorities != nil && maps.Equal(s.mu.priorities, priorities) {
		return
	}
	s.mu.priorities = priorities
	s.changed(s.list())
}

// all returns the pools, the configuration's first, with the priorities in force.
func (s *poolSet) all() []spillway.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// given returns the pools with the priorities that their parts gave them.
func (s *poolSet) given() []spillway.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []spillway.Pool
	for _, p := range s.mu.parts {
		all = append(all, p.pools...)
	}
	return all
}

// configured returns the pools of the configuration, with the priorities that it has.
func (s *poolSet) configured() []spillway.Pool { return s.of(configPart) }

// of returns the pools of a part, with the priorities that it gave them.
func (s *poolSet) of(part string) []spillway.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.parts {
		if p.part == part {
			return slices.Clone(p.pools)
		}
	}
	return nil
}

// inForce returns p with the priority in force.
func (s *poolSet) inForce(p spillway.Pool) spillway.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withPriority(p)
}

// list is called with mu held.
func (s *poolSet) list() []spillway.Pool {
	var all []spillway.Pool
	for _, p := range s.mu.parts {
		for i := range p.pools {
			all = append(all, s.withPriority(p.pools[i]))
		}
	}
	return all
}

// withPriority is called with mu held.
func (s *poolSet) withPriority(p spillway.Pool) spillway.Pool {
	if pin, ok := s.mu.priorities[p.Name]; ok && pin.fingerprint == p.Capability.Fingerprint() {
		p.Priority = pin.priority
	}
	return p
}
