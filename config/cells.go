package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

// The defaults and bounds of the cells section.
const (
	// DefaultCellSpillAfter: less hands jobs over for which an instance is booting; more lets
	// a job wait for longer than the way costs.
	DefaultCellSpillAfter = time.Minute
	// DefaultStartWithin: an instance of the peer may have to boot first (not smaller); the
	// origin may have a place by then (not larger).
	DefaultStartWithin = 5 * time.Minute
	MinStartWithin     = time.Second
	// DefaultPeerJobs bounds the jobs that a peer has of one capability: more are lost
	// together when the way is cut.
	DefaultPeerJobs = 100
	MaxCellPeers    = 32
	maxCostFactor   = 1e6
	maxDistance     = 1e6
)

// Cells makes this control plane one cell of several.
type Cells struct {
	Name        string        `yaml:"name"`
	Region      string        `yaml:"region,omitempty"`
	Cost        float64       `yaml:"cost"`         // per job, on pools without cost_per_job
	SpillAfter  time.Duration `yaml:"spill_after"`  // how long a job waits here before another cell may have it
	StartWithin time.Duration `yaml:"start_within"` // how long it may wait there
	Lease       time.Duration `yaml:"lease"`        // of our jobs there
	EndWithin   time.Duration `yaml:"end_within"`   // of others' jobs here
	OfferGrowth bool          `yaml:"offer_growth"` // also places on instances that have yet to be launched
	Peers       []CellPeer    `yaml:"peers,omitempty"`
}

// CellPeer is a cell that jobs may be handed over to.
type CellPeer struct {
	Name       string       `yaml:"name"`
	Address    string       `yaml:"address"` // of its listen.api
	Token      SecretSource `yaml:"token,omitempty"`
	TLS        *StoreTLS    `yaml:"tls,omitempty"`
	CostFactor float64      `yaml:"cost_factor"` // its cost, in our money
	Distance   float64      `yaml:"distance"`    // what the way costs, per job
	MaxJobs    int          `yaml:"max_jobs"`    // of ours there at once, for each capability
}

func (c *Cells) setDefaults() {
	c.SpillAfter, c.StartWithin = DefaultCellSpillAfter, DefaultStartWithin
	c.Lease, c.EndWithin = cells.DefaultLease, cells.DefaultEndWithin
}

func (p *CellPeer) setDefaults() { p.CostFactor, p.MaxJobs = 1, DefaultPeerJobs }

// Timing is what links of this cell go by.
func (c *Cells) Timing() cells.Timing { return cells.Timing{Lease: c.Lease, EndWithin: c.EndWithin} }

// Terms are how a peer is seen.
func (c *Cells) Terms(p *CellPeer) cells.Terms {
	return cells.Terms{
		Peer: p.Name, CostFactor: p.CostFactor, Distance: p.Distance, MaxJobs: p.MaxJobs, SpillAfter: c.SpillAfter, StartWithin: c.StartWithin,
	}
}

func (v *validator) cells() {
	c := v.config.Cells
	if c == nil {
		return
	}
	v.need(cells.ValidName(c.Name), "cells.name", "%s can't name a cell; use 1 to %d of a-z, 0-9, - and _, beginning with a letter or digit", quote(c.Name), cells.MaxNameBytes)
	v.need(len(c.Region) <= cells.MaxRegionBytes, "cells.region", "%d bytes, at most %d are allowed", len(c.Region), cells.MaxRegionBytes)
	v.need(c.Cost >= 0 && c.Cost <= maxDistance, "cells.cost", "%g is out of range; use 0 to %g", c.Cost, float64(maxDistance))
	v.need(c.SpillAfter == 0 || c.SpillAfter >= router.RemotePatience && c.SpillAfter <= spillway.MaxSpillAfter, "cells.spill_after",
		"%s is out of range; use 0s (not at all), or %s to %s", c.SpillAfter, router.RemotePatience, spillway.MaxSpillAfter)
	v.between(c.StartWithin, MinStartWithin, spillway.MaxSpillAfter, "cells.start_within")
	v.between(c.Lease, cells.MinLease, cells.MaxLease, "cells.lease")
	v.between(c.EndWithin, cells.MinEndWithin, cells.MaxEndWithin, "cells.end_within")
	v.need(len(c.Peers) <= MaxCellPeers, "cells.peers", "%d peers, at most %d are allowed", len(c.Peers), MaxCellPeers)
	first := map[string]int{}
	for i := range c.Peers {
		v.cellPeer(c, i, first)
	}
	v.cellPools(c)
}

func (v *validator) cellPeer(c *Cells, i int, first map[string]int) {
	p, at := &c.Peers[i], fmt.Sprintf("cells.peers[%d]", i)
	v.need(cells.ValidName(p.Name), at+".name", "%s can't name a cell; use 1 to %d of a-z, 0-9, - and _, beginning with a letter or digit", quote(p.Name), cells.MaxNameBytes)
	v.need(p.Name != c.Name || c.Name == "", at+".name", "%s is this cell itself; name another one", p.Name)
	if k, taken := first[p.Name]; taken {
		v.need(false, at+".name", "%s is the name of cells.peers[%d] already; each peer needs its own", quote(p.Name), k)
	} else {
		first[p.Name] = i
	}
	host, ok := reached(p.Address)
	v.need(ok, at+".address", "%s: write HOST:PORT, where the other cell's listen.api is reached", quote(p.Address))
	address, err := netip.ParseAddr(host)
	isLoopback := host == "localhost" || err == nil && address.IsLoopback()
	v.need(!ok || p.TLS != nil || isLoopback, at+".tls", "jobs and their secrets would cross the network in plaintext; set tls (tls: {} trusts the system's authorities)")
	if t := p.TLS; t != nil {
		v.need((t.CertFile == "") == (t.KeyFile == ""), at+".tls", "cert_file and key_file belong together; set both or neither")
	}
	v.need(p.CostFactor > 0 && p.CostFactor <= maxCostFactor, at+".cost_factor", "%g is out of range; use more than 0, to %g", p.CostFactor, float64(maxCostFactor))
	v.need(p.Distance >= 0 && p.Distance <= maxDistance, at+".distance", "%g is out of range; use 0 to %g", p.Distance, float64(maxDistance))
	v.intBetween(p.MaxJobs, 1, cells.MaxHeld, at+".max_jobs")
}

// cellPools: pools of this cell come before those of others, and beside the time that a
// job has to wait.
func (v *validator) cellPools(c *Cells) {
	if len(c.Peers) == 0 {
		return
	}
	times := map[time.Duration]bool{}
	for i := range v.config.Pools {
		p := &v.config.Pools[i]
		v.need(p.Mode != ModeOrchestrate || p.Priority <= cells.MaxOwnPriority, fmt.Sprintf("pools[%d].priority", i),
			"%d is for pools of other cells; use 0 to %d", p.Priority, cells.MaxOwnPriority)
		if p.SpillAfter > 0 {
			times[p.SpillAfter] = true
		}
	}
	if c.SpillAfter > 0 {
		times[c.SpillAfter] = true
	}
	v.need(len(times) <= router.MaxSpillTimes, "cells.spill_after", "%d different times of spill_after with those of the pools, at most %d are allowed", len(times), router.MaxSpillTimes)
}
