package sim

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// deniedEvery is how often an origin looks what has become of the jobs that a peer denies.
const deniedEvery = 5 * time.Second

// denials is what the router and the store are told of what a peer denies.
type denials struct {
	kept   map[spillway.JobID]cells.Denial
	placed map[spillway.JobID]bool
	barred []router.Bar
	pools  []string
	lookAt time.Time
}

func (o *outCell) deniedKind() string { return "cells-denied:" + o.terms.Peer }

// inheritDenied goes on with what the peer has denied until now.
func (o *outCell) inheritDenied() {
	o.denied = denials{kept: make(map[spillway.JobID]cells.Denial)}
	raw, err := o.world.store.Settings(o.deniedKind())
	if err != nil {
		return
	}
	for id, data := range raw {
		var d cells.Denial
		if json.Unmarshal(data, &d) == nil {
			o.denied.kept[spillway.JobID(id)] = d
		}
	}
	o.book.InheritDenied(o.denied.kept)
}

// keepDenied has the router and the stored book know what the peer denies.
func (o *outCell) keepDenied() {
	w := o.world
	if len(o.denied.kept) > 0 && !w.now.Before(o.denied.lookAt) {
		o.denied.lookAt = w.now.Add(deniedEvery)
		o.lookDenied()
	}
	denied := o.book.Denied()
	for _, id := range sortedKeys(denied) {
		if data, err := json.Marshal(denied[id]); err == nil && o.denied.kept[id] != denied[id] {
			_ = w.store.PutSetting(o.deniedKind(), string(id), data) // else the next replica offers it once more
		}
	}
	for _, id := range sortedKeys(o.denied.kept) {
		if _, still := denied[id]; !still {
			_ = w.store.DropSetting(o.deniedKind(), string(id)) // else the next replica finds that it has ended
		}
	}
	o.denied.kept = denied
	o.tellDenied()
}

func (o *outCell) tellDenied() {
	var bars []router.Bar
	for _, id := range sortedKeys(o.denied.kept) {
		if d := o.denied.kept[id]; o.world.now.Before(d.Until) && !o.denied.placed[id] {
			bars = append(bars, router.Bar{Job: id, Class: d.Class, Why: d.Why, Until: d.Until})
		}
	}
	pools := sortedKeys(o.machines)
	if slices.Equal(bars, o.denied.barred) && slices.Equal(pools, o.denied.pools) {
		return
	}
	o.replica.engine.SetBars(o.terms.Peer, pools, bars)
	o.denied.barred, o.denied.pools = bars, pools
}

// lookDenied looks which of them still wait.
func (o *outCell) lookDenied() {
	o.denied.placed = make(map[spillway.JobID]bool)
	for _, id := range sortedKeys(o.denied.kept) {
		rec, err := o.world.store.Job(id)
		switch {
		case errors.Is(err, store.ErrUnknownJob), err == nil && rec.State.Terminal():
			o.book.ForgetDenied(id)
		case err == nil && rec.Pool != "" && o.machines[rec.Pool] == nil: // in our own one it is about to be given back
			o.denied.placed[id] = true
		}
	}
}
