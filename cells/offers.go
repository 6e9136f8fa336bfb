package cells

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// MaxOffers bounds the capabilities that one cell offers [capabilities].
const MaxOffers = 200

// MaxPlaces bounds the places of one offer [jobs].
const MaxPlaces = 100_000

// Stock is what a cell knows of one of its own pools.
type Stock struct {
	Capability spillway.Capability
	CostPerJob float64
	Free       int // places on machines that take jobs now
	Room       int // places that the pool could come to have, as far as it may be offered
	Waiting    int // jobs of the cell itself that wait and that the pool could take
}

// Offer is what a cell would take of jobs that need one capability.
type Offer struct {
	Capability spillway.Capability
	Free       int // jobs
	Growth     int // jobs more, on machines that have yet to be launched
	CostPerJob float64
}

// Offers is what a cell offers to others: places that its own jobs leave. Pools of one
// capability are one offer, at the price of the cheapest that has a place. A capability
// without a place is offered too, with none, so that a peer's pools do not come and go.
func Offers(stock []Stock) []Offer {
	byPrint := map[spillway.Fingerprint]*Offer{}
	priced := map[spillway.Fingerprint]bool{}
	for i := range stock {
		s := &stock[i]
		if s.Capability.Origin != "" {
			continue // GitLab's own jobs, or what is itself another cell's
		}
		fp := s.Capability.Fingerprint()
		o := byPrint[fp]
		if o == nil {
			o = &Offer{Capability: s.Capability.Normalize()}
			byPrint[fp] = o
		}
		free := max(0, s.Free-s.Waiting)
		room := max(0, s.Room-max(0, s.Waiting-s.Free))
		o.Free, o.Growth = min(o.Free+free, MaxPlaces), min(o.Growth+room, MaxPlaces)
		if free+room > 0 && (!priced[fp] || s.CostPerJob < o.CostPerJob) {
			o.CostPerJob, priced[fp] = s.CostPerJob, true
		}
	}
	list := make([]Offer, 0, len(byPrint))
	for _, o := range byPrint {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Offer) int { // the most places first: the rest is cut off
		return cmp.Or(cmp.Compare(b.Free+b.Growth, a.Free+a.Growth), cmp.Compare(a.Capability.Fingerprint().String(), b.Capability.Fingerprint().String()))
	})
	return list[:min(len(list), MaxOffers)]
}

// Terms are how an origin sees one peer.
type Terms struct {
	Peer       string
	CostFactor float64 // the peer's cost, in the origin's money
	Distance   float64 // what the way costs, per job
	MaxJobs    int     // of the origin that may be there at once, for each capability
	// SpillAfter is how long a job waits in its own cell at least; StartWithin is how long
	// it may wait in the peer before it is taken back.
	SpillAfter  time.Duration
	StartWithin time.Duration
}

// PoolPriority is the priority of every pool of another cell: it comes after all others.
// The place before it stands for jobs that have not waited for long enough (package
// router), so that the pools of the cell itself end at MaxOwnPriority.
const (
	PoolPriority   = spillway.MaxPoolPriority
	MaxOwnPriority = PoolPriority - 2
)

// PoolName names what a peer offers of a capability as a pool of the origin. It stays the
// same for as long as the capability does.
func PoolName(peer string, fp spillway.Fingerprint) string { return "cell-" + peer + "-" + fp.Short() }

// Pool is what a peer offers of a capability, as the origin's router knows it.
func (t *Terms) Pool(o *Offer) spillway.Pool {
	c := o.Capability
	fp := c.Fingerprint()
	c.Origin = spillway.CellOrigin
	return spillway.Pool{
		Name: PoolName(t.Peer, fp), Capability: c, Priority: PoolPriority, CapacityPerInstance: t.MaxJobs,
		CostPerJob: t.price(o.CostPerJob), LeastWait: t.SpillAfter, StartWithin: t.StartWithin,
	}
}

// maxPrice is what a job costs at a peer that does not say it in numbers: it comes last.
const maxPrice = 1e12

func (t *Terms) price(offered float64) float64 {
	price := offered*t.CostFactor + t.Distance
	if !(price >= 0 && price < maxPrice) {
		return maxPrice
	}
	return price
}
