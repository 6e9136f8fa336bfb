package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	"github.com/spillway-ci/spillway/router"
)

// entry is an attempt in the stored book of an origin: what its next replica has to know of
// it. The pool is kept whole, since the peer may not be there to offer it.
type entry struct {
	Class    spillway.JobClass `json:"class"`
	Pool     spillway.Pool     `json:"pool"`
	GiveBack time.Duration     `json:"give_back"`
}

// kept is an entry with its attempt.
type kept struct {
	ref cells.Ref
	entry
}

func (p *peer) bookKind() string { return "cells-out:" + p.opt.Peer }

// readBook reads the stored book.
func (p *peer) readBook(ctx context.Context) ([]kept, error) {
	raw, err := p.origin.store.Settings(ctx, p.bookKind())
	if err != nil {
		p.origin.trouble("read the book on cell "+p.opt.Peer, err)
		return nil, err
	}
	var list []kept
	for name, data := range raw {
		ref, err := parseRef(name)
		k := kept{ref: ref}
		if err == nil {
			err = json.Unmarshal(data, &k.entry)
		}
		if err != nil {
			p.origin.trouble("read the book on cell "+p.opt.Peer, err)
			continue // of a newer version: its claim decides
		}
		list = append(list, k)
	}
	return list, nil
}

// parseRef reads what Ref.String wrote.
func parseRef(s string) (cells.Ref, error) {
	at := strings.LastIndexByte(s, '/')
	n, err := strconv.Atoi(s[at+1:])
	if at < 1 || err != nil || n < 1 {
		return cells.Ref{}, fmt.Errorf("%w: %.80q does not name an attempt", spillway.ErrInvalid, s)
	}
	return cells.Ref{ID: spillway.JobID(s[:at]), Attempt: n}, nil
}

// inherit goes on with what the stored book has.
func (p *peer) inherit(list []kept) {
	known := make([]cells.Known, len(list))
	for i, k := range list {
		known[i] = cells.Known{Ref: k.ref, Class: k.Class, Pool: k.Pool.Name, GiveBack: k.GiveBack}
		p.inherited[k.Pool.Name] = k.Pool
	}
	p.book.Inherit(time.Now(), known)
}

// keepThenSend writes a job into the stored book, extends the claim on it, and sends it.
func (p *peer) keepThenSend(ref cells.Ref, class spillway.JobClass, pool spillway.Pool) {
	mark, giveBack := p.book.Newest(), p.book.GiveBack()
	p.beside(func(ctx context.Context) func() {
		err := p.keep(ctx, ref, entry{class, pool, giveBack})
		if err != nil && ctx.Err() == nil {
			p.origin.trouble("keep job "+ref.String(), err)
		}
		return func() { p.kept(ref, mark, err) }
	})
}

func (p *peer) keep(ctx context.Context, ref cells.Ref, e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := p.origin.store.PutSetting(ctx, p.bookKind(), ref.String(), data); err != nil {
		return err
	}
	stale, err := p.origin.store.Renew(ctx, []router.JobRef{{ID: ref.ID, Class: e.Class, Attempt: ref.Attempt}}, e.GiveBack)
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("job %s is not ours any more", ref)
	}
	return err
}

func (p *peer) kept(ref cells.Ref, mark cells.Mark, err error) {
	if err != nil {
		p.details[ref] = "it could not be kept: " + err.Error()
	}
	send, steps := p.book.Kept(time.Now(), ref, mark, err == nil && p.holds(time.Now()))
	if !send && len(steps) == 0 {
		p.forget(ref) // it was withdrawn meanwhile
	}
	p.steps(steps)
	if !send {
		return
	}
	p.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Spill{Spill: &cellsv1.Spill{
		Job: p.jobs[ref], Attempt: int32(ref.Attempt), Beat: mark.Beat,
	}}})
	delete(p.jobs, ref) // its secrets are not needed here any more
	tell(p.origin.opt.Events.HandedOver, HandedOver{Peer: p.opt.Peer, Ref: ref})
}

// forget drops an attempt from the stored book. If that fails, the next replica to read it
// is told by the router that the attempt is not ours.
func (p *peer) forget(ref cells.Ref) {
	delete(p.jobs, ref)
	delete(p.results, ref)
	p.beside(func(ctx context.Context) func() {
		if _, err := p.origin.store.DropSetting(context.WithoutCancel(ctx), p.bookKind(), ref.String()); err != nil {
			p.origin.trouble("forget job "+ref.String(), err)
		}
		return nil
	})
}

// beat answers a beat of the peer, once the claims on what it has are extended.
func (p *peer) beat(l *outLink, number uint64) {
	if !p.holds(time.Now()) {
		return
	}
	mark, claims := p.book.Beat(number)
	if len(claims) == 0 {
		p.renewed(l, mark, nil, nil)
		return
	}
	giveBack := p.book.GiveBack()
	p.beside(func(ctx context.Context) func() {
		stale, err := p.origin.store.Renew(ctx, claims, giveBack)
		if err != nil {
			if ctx.Err() == nil {
				p.origin.trouble("renew claims on jobs of cell "+p.opt.Peer, err)
			}
			return nil // no answer: the lease goes on running out
		}
		return func() { p.renewed(l, mark, without(claims, stale), stale) }
	})
}

func without(claims, stale []router.JobRef) []router.JobRef {
	gone := make(map[router.JobRef]bool, len(stale))
	for _, ref := range stale {
		gone[ref] = true
	}
	var left []router.JobRef
	for _, ref := range claims {
		if !gone[ref] {
			left = append(left, ref)
		}
	}
	return left
}

func (p *peer) renewed(l *outLink, mark cells.Mark, extended, stale []router.JobRef) {
	covered, also, ok := p.book.Renewed(time.Now(), mark, extended, stale)
	if !ok || p.link != l {
		return
	}
	p.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Renew{Renew: &cellsv1.Renew{
		Beat: mark.Beat, Covered: attempts(covered), Also: attempts(also),
	}}})
}

func sortedNames(pools map[string]spillway.Pool) []string { return slices.Sorted(maps.Keys(pools)) }
