package scaler

import (
	"time"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// offer is what the rest of the fleet may count on, in jobs.
type offer struct {
	Coming     int  `json:"coming"`     // booting instances
	Draining   int  `json:"draining"`   // our drains that can be taken back
	Launchable int  `json:"launchable"` // up to max
	Down       bool `json:"down"`       // the provider can't be asked
	Unfilled   int  `json:"unfilled"`   // of Coming: instances that were asked for and are not in the book yet
	// CooledUntil is when the provider may be asked again after a refusal.
	CooledUntil time.Time `json:"cooled_until,omitzero"`
}

// offered is an offer as it was made, with the book that it was counted from.
type offered struct {
	offer
	boots map[string]bool // as roster.Roster.Boots
}

// counted is what attribution made of an offer.
type counted struct {
	offer  offer
	coming int // places on booting instances [jobs]
}

// supply turns an offer and the machines of this moment into what
// attribution needs. It may be called from any goroutine.
func (p *Pool) supply(now time.Time, o *offered, machines []router.Machine, silentAfter time.Duration) demand.Supply {
	def := p.def.Load()
	booted := o.booted(now, machines, silentAfter) // these are free places by now
	return demand.Supply{
		Pool: def.Name, Capability: def.Capability, Priority: def.Priority, CostPerJob: def.CostPerJob,
		Free:    freePlaces(now, machines, def.MaxUses, silentAfter),
		Booting: max(0, o.Coming-booted*def.CapacityPerInstance),
		// A drain that was taken back since is a free place by now, or has a job.
		Draining:   min(o.Draining, drainingPlaces(now, machines, silentAfter)),
		Launchable: o.Launchable, CooledOff: o.Down || now.Before(o.CooledUntil), SpillAfter: def.SpillAfter,
	}
}

// roomIn is how much the pool can grow.
func (o *offered) roomIn(now time.Time, s *demand.Supply) router.Room {
	r := router.Room{Jobs: s.Booting + s.Draining, Down: o.Down, At: now}
	if now.Before(o.CooledUntil) {
		r.CooledUntil = o.CooledUntil
	}
	if !s.CooledOff {
		r.Jobs += s.Launchable
	}
	return r
}

// booted counts the instances that were coming when the offer was made and have a
// machine by now. Numbers alone don't tell: a machine may be of an instance that was
// up before and is heard again, after an outage or a store that has lost its records,
// while the record of one that is gone is dropped.
func (o *offered) booted(now time.Time, machines []router.Machine, silentAfter time.Duration) int {
	listed, others := make(map[string]bool), make(map[string]bool)
	for i := range machines {
		m := &machines[i]
		boots, known := o.boots[m.InstanceID]
		switch {
		case m.InstanceID == "":
		case boots:
			listed[m.InstanceID] = true
		case !known && m.Connected && now.Sub(m.HeardAt) < silentAfter:
			others[m.InstanceID] = true
		}
	}
	return len(listed) + min(len(others), o.Unfilled)
}
