package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

// deniedEvery is how often it is looked what has become of the jobs that a peer denies.
// Meanwhile one that another replica gives a machine still counts as waiting.
const deniedEvery = 5 * time.Second

// denials is what the router and the store are told of what a peer denies. It belongs to
// the peer's owner.
type denials struct {
	kept    map[spillway.JobID]cells.Denial // in the stored book
	placed  map[spillway.JobID]bool         // on a machine by now: they come back only if that is lost
	barred  []router.Bar                    // as the router was told last
	pools   []string                        // for these
	looking bool
	lookAt  time.Time
}

// deniedEntry is a job that the peer denies, in the stored book. The times are of the
// replica that has written it: a replica whose clock is wrong offers it sooner or later.
type deniedEntry struct {
	Class spillway.JobClass `json:"class"`
	Why   string            `json:"why"`
	Times int               `json:"times"`
	Until time.Time         `json:"until"`
}

func (p *peer) deniedKind() string { return "cells-denied:" + p.opt.Peer }

// readDenied reads what the peer has denied until now.
func (p *peer) readDenied(ctx context.Context) map[spillway.JobID]cells.Denial {
	raw, err := p.origin.store.Settings(ctx, p.deniedKind())
	if err != nil {
		p.origin.trouble("read what cell "+p.opt.Peer+" denies", err)
	}
	known := make(map[spillway.JobID]cells.Denial, len(raw))
	for id, data := range raw {
		var e deniedEntry
		if json.Unmarshal(data, &e) == nil {
			known[spillway.JobID(id)] = cells.Denial(e)
		}
	}
	return known
}

// keepDenied has the router and the stored book know what the peer denies.
func (p *peer) keepDenied(now time.Time) {
	denied := p.book.Denied()
	p.tellDenied(now, denied)
	for id, d := range denied {
		if p.denied.kept[id] != d {
			p.putDenied(id, d)
		}
	}
	for id := range p.denied.kept {
		if _, still := denied[id]; !still {
			p.dropDenied(id)
		}
	}
	p.denied.kept = denied
	p.lookDenied(now)
}

// tellDenied has the router keep those that wait away from the peer's pools.
func (p *peer) tellDenied(now time.Time, denied map[spillway.JobID]cells.Denial) {
	var bars []router.Bar
	for _, id := range slices.Sorted(maps.Keys(denied)) {
		if d := denied[id]; now.Before(d.Until) && !p.denied.placed[id] {
			bars = append(bars, router.Bar{Job: id, Class: d.Class, Why: d.Why, Until: d.Until})
		}
	}
	pools := slices.Sorted(maps.Keys(p.machines))
	if slices.Equal(bars, p.denied.barred) && slices.Equal(pools, p.denied.pools) {
		return
	}
	p.origin.router.SetBars(p.ctx, p.opt.Peer, pools, bars)
	p.denied.barred, p.denied.pools = bars, pools
}

func (p *peer) putDenied(id spillway.JobID, d cells.Denial) {
	p.beside(func(ctx context.Context) func() {
		data, err := json.Marshal(deniedEntry(d))
		if err == nil {
			err = p.origin.store.PutSetting(context.WithoutCancel(ctx), p.deniedKind(), string(id), data)
		}
		if err != nil {
			p.origin.trouble("keep that cell "+p.opt.Peer+" denies job "+string(id), err)
		}
		return nil // without it, the next replica offers the job once more
	})
}

func (p *peer) dropDenied(id spillway.JobID) {
	p.beside(func(ctx context.Context) func() {
		if _, err := p.origin.store.DropSetting(context.WithoutCancel(ctx), p.deniedKind(), string(id)); err != nil {
			p.origin.trouble("forget that cell "+p.opt.Peer+" denied job "+string(id), err)
		}
		return nil // the next replica finds that it has ended
	})
}

// lookDenied looks, now and then, which of them still wait.
func (p *peer) lookDenied(now time.Time) {
	ids := slices.Sorted(maps.Keys(p.denied.kept))
	if p.denied.looking || len(ids) == 0 || now.Before(p.denied.lookAt) {
		return
	}
	p.denied.looking, p.denied.lookAt = true, now.Add(deniedEvery)
	p.beside(func(ctx context.Context) func() {
		records, err := p.origin.store.GetMany(ctx, ids)
		if err != nil && ctx.Err() == nil {
			p.origin.trouble("read the jobs that cell "+p.opt.Peer+" denies", err)
		}
		return func() {
			p.denied.looking = false
			if err == nil {
				p.sawDenied(ids, records)
			}
		}
	})
}

func (p *peer) sawDenied(ids []spillway.JobID, records []*spillway.JobRecord) {
	p.denied.placed = make(map[spillway.JobID]bool)
	for i, r := range records {
		switch {
		case r == nil || r.State.Terminal():
			p.book.ForgetDenied(ids[i])
		case r.Pool != "" && p.machines[r.Pool] == nil: // in our own one it is about to be given back
			p.denied.placed[ids[i]] = true
		}
	}
	p.keepDenied(time.Now())
}
