package simcloud

import (
	"slices"
	"time"
)

// deeds are what somebody else does to a cloud, and when.
type deeds struct {
	list []deed // by time; those of one moment in the order of their planning
}

type deed struct {
	at time.Time
	do func()
}

func (d *deeds) plan(at time.Time, do func()) {
	place := len(d.list)
	for place > 0 && d.list[place-1].at.After(at) {
		place--
	}
	d.list = slices.Insert(d.list, place, deed{at, do})
}

// next is when the next one is.
func (d *deeds) next() (at time.Time, ok bool) {
	if len(d.list) == 0 {
		return time.Time{}, false
	}
	return d.list[0].at, true
}

// take removes the next one, if it is due at now.
func (d *deeds) take(now time.Time) (do func(), ok bool) {
	if len(d.list) == 0 || d.list[0].at.After(now) {
		return nil, false
	}
	do = d.list[0].do
	d.list = slices.Delete(d.list, 0, 1)
	return do, true
}

// sooner is the earlier of two times that may be none.
func sooner(a time.Time, hasA bool, b time.Time, hasB bool) (at time.Time, ok bool) {
	if !hasA || hasB && b.Before(a) {
		return b, hasB
	}
	return a, hasA
}
