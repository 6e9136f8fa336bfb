package scenario

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/providers/fake"
)

// peerAddress stands in for the address of a peer, which a story need not name.
const peerAddress = "localhost:8443"

// addressPeers gives the peers of a configuration that have no address one. What is wrong
// otherwise, whoever reads the configuration says.
func addressPeers(n *yaml.Node) {
	section := value(n, "cells")
	if section == nil {
		return
	}
	peers := value(section, "peers")
	if peers == nil || peers.Kind != yaml.SequenceNode {
		return
	}
	for _, p := range peers.Content {
		if p = resolve(p); p.Kind == yaml.MappingNode && value(p, "address") == nil {
			p.Content = append(p.Content,
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "address", Line: p.Line},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: peerAddress, Line: p.Line})
		}
	}
}

// readCells reads the stories of the other cells: each is one of its own, that is played
// beside this one.
func (s *storyReader) readCells(line int, n *yaml.Node) {
	if s.at != "" || s.story.Config == nil {
		return
	}
	switch {
	case n != nil && s.story.Config.Cells == nil:
		s.failf(n.Line, "cells", "the configuration does not name this cell: set config.cells.name")
		return
	case n != nil && s.story.Mode != Orchestrate:
		s.failf(n.Line, "cells", "cells hand jobs to each other in mode orchestrate only")
		return
	case n != nil && n.Kind != yaml.MappingNode:
		s.failf(n.Line, "cells", "must be stories (name: story)")
		return
	case n != nil && len(n.Content)/2 > MaxCells:
		s.failf(n.Line, "cells", "more than %d", MaxCells)
		return
	}
	s.cells = make(map[string]*storyReader)
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		s.readCell(n.Content[i], resolve(n.Content[i+1]))
	}
	s.checkPeers(line)
}

func (s *storyReader) readCell(key, n *yaml.Node) {
	name, at := key.Value, join("cells", key.Value)
	switch {
	case !cells.ValidName(name):
		s.failf(key.Line, at, "%.60q can't name a cell", name)
		return
	case s.cells[name] != nil || name == s.story.Config.Cells.Name:
		s.failf(key.Line, at, "there is a cell %s already", name)
		return
	}
	c := &storyReader{reader: s.reader, dir: s.dir, book: newJobBook(), at: at, story: &Scenario{
		Path: s.story.Path, Seed: s.story.Seed, Mode: Orchestrate, Duration: s.story.Duration, Replicas: 1, Clouds: make(map[string]fake.Config),
	}}
	c.read(n)
	if cfg := c.story.Config; cfg != nil && (cfg.Cells == nil || cfg.Cells.Name != name) {
		s.failf(key.Line, at, "the configuration must name the cell so: set config.cells.name to %s", name)
	}
	s.cells[name] = c
	if s.story.Cells == nil {
		s.story.Cells = make(map[string]*Scenario)
	}
	s.story.Cells[name] = c.story
}

// checkPeers reports peers that are no cells of the story.
func (s *storyReader) checkPeers(line int) {
	known := s.cellNames()
	for _, c := range append([]*storyReader{s}, slices.Collect(maps.Values(s.cells))...) {
		if c.story.Config == nil || c.story.Config.Cells == nil {
			continue
		}
		for _, p := range c.story.Config.Cells.Peers {
			if !slices.Contains(known, p.Name) {
				s.failf(line, c.path("config.cells.peers"), "there is no cell %s; there are %s", p.Name, strings.Join(known, ", "))
			}
		}
	}
}

func (s *storyReader) cellNames() []string {
	var names []string
	if c := s.story.Config.Cells; c != nil {
		names = append(names, c.Name)
	}
	return append(names, slices.Sorted(maps.Keys(s.cells))...)
}

// link reads a fault of the way to another cell.
func (s *storyReader) link(n *yaml.Node, path string) Action {
	a := Link{For: DefaultFaultFor}
	s.need(n, path, map[string]field{
		"to": s.text(&a.To), "fault": oneOf(s.reader, &a.Fault, LinkCut, LinkStalled), "for": s.duration(&a.For),
	}, "to", "fault")
	if peers := s.peers(); !slices.Contains(peers, a.To) {
		s.failf(n.Line, path, "%.60q is no peer of this cell; there are %s", a.To, strings.Join(peers, ", "))
	}
	return a
}

// peers are the cells that this one may hand jobs to.
func (s *storyReader) peers() []string {
	var peers []string
	if s.story.Config != nil && s.story.Config.Cells != nil {
		for _, p := range s.story.Config.Cells.Peers {
			peers = append(peers, p.Name)
		}
	}
	return peers
}

// offers reads a cell's word on its free places.
func (s *storyReader) offers(n *yaml.Node, path string) Action {
	a := Offers{For: DefaultFaultFor}
	seen := s.need(n, path, map[string]field{
		"fault": oneOf(s.reader, &a.Fault, OffersStale, OffersLie), "free": s.count(&a.Free), "for": s.duration(&a.For),
	}, "fault")
	if seen["free"] != (a.Fault == OffersLie) {
		s.failf(n.Line, path, "free goes with lie, and lie with free")
	}
	if s.story.Config != nil && s.story.Config.Cells == nil {
		s.failf(n.Line, path, "this control plane is no cell: set config.cells.name")
	}
	return a
}
