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
	Registered int  `json:"registered"` // machines on record when Coming was counted, as registered counts them
	// CooledUntil is when the provider may be asked again after a refusal.
	CooledUntil time.Time `json:"cooled_until,omitzero"`
}

// supply turns an offer and the machines of this moment into what
// attribution needs. It may be called from any goroutine.
func (p *Pool) supply(now time.Time, o offer, machines []router.Machine, silentAfter time.Duration) demand.Supply {
	def := p.def.Load()
	coming := o.Coming
	if n := registered(machines) - o.Registered; n > 0 {
		coming = max(0, coming-n*def.CapacityPerInstance) // these are free places by now
	}
	return demand.Supply{
		Pool: def.Name, Capability: def.Capability, Priority: def.Priority, CostPerJob: def.CostPerJob,
		Free: freePlaces(now, machines, def.MaxUses, silentAfter), Booting: coming,
		// A drain that was taken back since is a free place by now, or has a job.
		Draining:   min(o.Draining, drainingPlaces(now, machines, silentAfter)),
		Launchable: o.Launchable, CooledOff: o.Down || now.Before(o.CooledUntil),
	}
}

func registered(machines []router.Machine) int {
	n := 0
	for i := range machines {
		if machines[i].InstanceID != "" {
			n++
		}
	}
	return n
}
