package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/router"
)

// stockFresh is how old what was counted may be to be offered.
const stockFresh = 10 * time.Second

func sortedRefs[V any](m map[cells.Ref]V) []cells.Ref {
	return slices.SortedFunc(maps.Keys(m), func(a, b cells.Ref) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Attempt, b.Attempt))
	})
}

// claimOrigin has this replica answer for an origin, unless the origin has a newer link. It
// returns the attempts that the cell has of it.
func (in *inCells) claimOrigin(origin string, epoch uint64) ([]cells.Ref, bool) {
	records, err := in.world.store.Settings(linkKind)
	if err != nil {
		return nil, false
	}
	var known answering
	if data, ok := records[origin]; ok && json.Unmarshal(data, &known) == nil && known.Epoch > epoch {
		return nil, false
	}
	if !in.putAnswering(origin, records[origin], answering{in.replica.name, epoch, known.Count + 1}) {
		return nil, false
	}
	jobs, err := in.readJobs()
	return jobs[origin], err == nil
}

func (in *inCells) putAnswering(origin string, was []byte, a answering) bool {
	data, err := json.Marshal(a)
	if err != nil {
		return false
	}
	ours, err := in.world.store.SwapSetting(linkKind, origin, was, data)
	return err == nil && ours
}

// readJobs reads the stored book, by origin.
func (in *inCells) readJobs() (map[string][]cells.Ref, error) {
	raw, err := in.world.store.Settings(inKind)
	if err != nil {
		return nil, err
	}
	jobs := make(map[string][]cells.Ref)
	for _, local := range sortedKeys(raw) {
		var e inEntry
		if json.Unmarshal(raw[local], &e) == nil {
			jobs[e.Origin] = append(jobs[e.Origin], e.Ref)
		}
	}
	return jobs, nil
}

// inherit has this replica answer for attempts that the stored book has.
func (in *inCells) inherit(o *inOrigin, refs []cells.Ref) {
	o.book.Inherit(in.world.now, refs)
	for _, ref := range refs {
		in.job(o, ref)
	}
}

// readBook reads the stored book again, and says that this replica lives.
func (in *inCells) readBook() {
	w, every := in.world, bookEvery
	for _, o := range in.origins {
		if o.beatEvery > 0 {
			every = min(every, o.beatEvery)
		}
	}
	if w.now.Sub(in.readAt) < every {
		return
	}
	in.readAt = w.now
	raw, err := w.store.Settings(linkKind)
	if err != nil {
		return
	}
	records := make(map[string]answering)
	for _, origin := range sortedKeys(raw) {
		var a answering
		if json.Unmarshal(raw[origin], &a) != nil {
			continue
		}
		if o := in.origins[origin]; o != nil && a.Replica == in.replica.name && a.Epoch <= o.epoch {
			if a.Count++; !in.putAnswering(origin, raw[origin], a) {
				return
			}
		}
		records[origin] = a
	}
	if jobs, err := in.readJobs(); err == nil {
		in.sortOrigins(records, jobs)
	}
}

// sortOrigins takes over what nobody answers for, lets go of what another replica answers
// for, and learns of jobs that another replica has taken meanwhile.
func (in *inCells) sortOrigins(records map[string]answering, jobs map[string][]cells.Ref) {
	now := in.world.now
	for _, name := range sortedKeys(records) {
		a, o := records[name], in.origins[name]
		if a.Replica == in.replica.name {
			if o == nil { // from an earlier life
				o = in.newOrigin(name)
				o.epoch = a.Epoch
			}
			delete(in.others, name)
			in.inherit(o, jobs[name])
			continue
		}
		if o != nil && o.link != nil && o.epoch >= a.Epoch {
			continue // the record is about to be ours
		}
		if o != nil {
			if o.link != nil {
				o.link.end()
			}
			delete(in.origins, name)
		}
		other := in.others[name]
		if other.answering != a {
			other.answering, other.changedAt = a, now
		}
		in.others[name] = other
		if now.Sub(other.changedAt) > replicaGone && len(jobs[name]) > 0 {
			delete(in.others, name)
			if refs, ok := in.claimOrigin(name, a.Epoch); ok {
				o := in.newOrigin(name)
				o.epoch = a.Epoch
				in.inherit(o, refs)
			}
		}
	}
}

// takeStock counts what this cell can offer: what its own jobs leave.
func (in *inCells) takeStock() {
	w := in.world
	linked := slices.ContainsFunc(slices.Collect(maps.Values(in.origins)), func(o *inOrigin) bool { return o.link != nil })
	if !linked {
		return
	}
	if list, ok := w.countStock(in.replica); ok {
		in.stock, in.stockAt = list, w.now
	}
}

func (w *world) countStock(r *replica) ([]cells.Offer, bool) {
	machines, err := w.store.Machines(w.ctx)
	if err != nil {
		return nil, false
	}
	waiting, err := w.counts()
	if err != nil {
		return nil, false
	}
	free := make(map[string]int)
	for i := range machines {
		if m := &machines[i]; m.Connected && w.now.Sub(m.HeardAt) <= w.config.Timeouts.Silent && m.TakesJobs() {
			free[m.Pool] += max(0, m.Capacity-m.InUse())
		}
	}
	var stock []cells.Stock
	for _, p := range w.pools() {
		s := cells.Stock{Capability: p.Capability, CostPerJob: cmp.Or(p.CostPerJob, w.config.Cells.Cost), Free: free[p.Name], Room: r.roomToOffer(p.Name)}
		for k := range waiting {
			if n := waiting[k].Pending + waiting[k].Unadmitted; n > 0 && router.Match(&p.Capability, &waiting[k].Requirement).OK() {
				s.Waiting += n
			}
		}
		stock = append(stock, s)
	}
	return cells.Offers(stock), true
}

// roomToOffer is how much a pool can grow for others.
func (r *replica) roomToOffer(pool string) int {
	w := r.world
	if !w.config.Cells.OfferGrowth || r.last == nil {
		return 0
	}
	room, known := r.last.Rooms()[pool]
	if !known || room.Down || w.now.Before(room.CooledUntil) || w.now.Sub(room.At) > router.RoomFresh {
		return 0
	}
	return room.Jobs
}

// offers is what was counted last, nothing when that is long ago; or what the story has
// the cell say.
func (in *inCells) offers() []cells.Offer {
	w, list := in.world, slices.Clone(in.stock)
	switch w.ways.offers.at(w.now) {
	case scenario.OffersStale:
		return w.ways.stale
	case scenario.OffersLie:
		for i := range list {
			list[i].Free, list[i].Growth = w.ways.free, 0
		}
	default:
		if w.now.Sub(in.stockAt) > stockFresh {
			for i := range list {
				list[i].Free, list[i].Growth = 0, 0
			}
		}
	}
	return list
}

// offersNow is what the cell offers at this moment.
func (w *world) offersNow() []cells.Offer {
	if r := w.anyReplica(); r != nil {
		list, _ := w.countStock(r)
		return list
	}
	return nil
}
