package cells

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// A peer refuses a job for want of a place, or for what the job is: its admission
// controllers say no. The same job would be refused again then, and is not offered there
// for a time: else it would go to and fro for as long as it waits.
const (
	// denyFirst is how long a job that was denied is not offered to that peer; each further
	// denial of it doubles that, up to DenyMost: policies change, and controllers that were
	// gone come back.
	denyFirst = 5 * time.Minute
	DenyMost  = time.Hour
	// MaxDenied bounds the jobs of which it is known that one peer denies them [jobs]; one
	// more has the one forgotten that would be offered first.
	MaxDenied = 1_000
)

// Denial is what is known of a job that a peer denies.
type Denial struct {
	Class spillway.JobClass
	Why   string // a sentence of the peer's
	Times int
	Until time.Time // when it may be offered again
}

// denials is what one peer denies.
type denials struct {
	jobs map[spillway.JobID]Denial
}

// note enters a denial that was just heard.
func (d *denials) note(now time.Time, id spillway.JobID, class spillway.JobClass, why string) {
	times := d.jobs[id].Times + 1
	wait := DenyMost
	if shift := times - 1; shift < 8 { // beyond, it is the most anyway
		wait = min(denyFirst<<shift, DenyMost)
	}
	d.enter(id, Denial{Class: class, Why: why, Times: times, Until: now.Add(wait)})
}

func (d *denials) enter(id spillway.JobID, x Denial) {
	if _, known := d.jobs[id]; !known && len(d.jobs) >= MaxDenied {
		first := slices.MinFunc(slices.Collect(maps.Keys(d.jobs)), func(a, b spillway.JobID) int {
			return cmp.Or(d.jobs[a].Until.Compare(d.jobs[b].Until), cmp.Compare(a, b))
		})
		delete(d.jobs, first)
	}
	d.jobs[id] = x
}

// Denied are the jobs that the peer denies now, with those whose time is over and that
// count when they are denied again.
func (o *Outbound) Denied() map[spillway.JobID]Denial { return maps.Clone(o.denied.jobs) }

// InheritDenied takes over what another replica, or an earlier life of this one, was
// denied.
func (o *Outbound) InheritDenied(known map[spillway.JobID]Denial) {
	for _, id := range slices.Sorted(maps.Keys(known)) {
		o.denied.enter(id, known[id])
	}
}

// Denies reports whether a job is not to be offered now, and why.
func (o *Outbound) Denies(now time.Time, id spillway.JobID) (why string, denied bool) {
	d, known := o.denied.jobs[id]
	return d.Why, known && now.Before(d.Until)
}

// ForgetDenied drops a job that has ended.
func (o *Outbound) ForgetDenied(id spillway.JobID) { delete(o.denied.jobs, id) }
