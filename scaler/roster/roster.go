package roster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/router"
)

// Roster is the book. It belongs to one owner. The exported fields are what is
// persisted.
type Roster struct {
	Instances map[string]*Instance `json:"instances"`
	Boot      Breaker              `json:"boot"`
	RetiredAt time.Time            `json:"retired_at,omitzero"` // when healthy instances were last drained for good
	LostAt    time.Time            `json:"lost_at,omitzero"`    // when silent ones were last removed

	rules     Rules
	startedAt time.Time // when this owner took over: nothing is removed before it has heard two heartbeats
	heardAll  time.Time // when machines were last seen whole
	unheard   bool      // a job may run on an instance that nothing was heard of
	hookStops bool      // runners take jobs until the hook that ends their instance stops them
	changes   []Change
}

// New returns an empty book, owned from now on.
func New(rules Rules, now time.Time) *Roster {
	return &Roster{Instances: map[string]*Instance{}, rules: rules, startedAt: now}
}

// Adopt continues a persisted book under a new owner.
func (r *Roster) Adopt(persisted Roster) {
	r.Boot, r.RetiredAt, r.LostAt = persisted.Boot, persisted.RetiredAt, persisted.LostAt
	for id, in := range persisted.Instances {
		if in == nil || in.ID != id {
			continue // nobody wrote this: the next list tells what there is
		}
		if in.Leaves == "" && (in.Phase == UsedUp || in.Phase == Interrupted) {
			in.Leaves = in.Phase // by a version that did not keep it
		}
		r.Instances[id] = in
	}
}

// Has reports whether the instance is in the book.
func (r *Roster) Has(id string) bool { return r.Instances[id] != nil }

// SetRules changes the rules, as after a reload.
func (r *Roster) SetRules(rules Rules) { r.rules = rules }

// JobsUnheardOf says whether a job may run on an instance that nothing is heard of, as
// where GitLab gives jobs to runners that nobody can ask. Silence proves nothing then:
// such an instance is neither removed nor let go.
func (r *Roster) JobsUnheardOf(may bool) { r.unheard = may }

// StoppedByHook says whether machines may be given jobs until the hook that ends their
// instance has stopped their runners. Then only a heartbeat from after that lets an
// instance go.
func (r *Roster) StoppedByHook(yes bool) { r.hookStops = yes }

// Changes returns what happened since the last call.
func (r *Roster) Changes() []Change {
	c := r.changes
	r.changes = nil
	return c
}

func (r *Roster) note(id string, kind ChangeKind, format string, args ...any) {
	machine := ""
	if in := r.Instances[id]; in != nil {
		machine = in.Machine
	}
	r.changes = append(r.changes, Change{Instance: id, Machine: machine, Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

// Listed takes a complete list of the provider. A list that came back short is no
// proof: an instance is gone after three complete lists in a row without it, or
// when the provider says that it is going.
func (r *Roster) Listed(now time.Time, list []Listed) {
	seen := make(map[string]bool, len(list))
	for _, l := range list {
		seen[l.ID] = true
		in := r.entry(now, l.ID, l.LaunchedAt)
		in.Missed, in.Listed, in.absent, in.Unlisted = 0, true, false, 0
		in.Unhealthy, in.Kept, in.creating, in.stays = l.Unhealthy, l.Kept, l.Creating, !l.Deleting
		in.hold(now, l.Hook)
		if in.Phase == Zombie {
			in.Phase, in.Leaves = Draining, "" // it is the group's after all; what is drained can be taken back
		}
		if l.Deleting && in.Phase != Removing {
			r.ending(in)
		}
	}
	for _, id := range r.ids() {
		if !seen[id] {
			in := r.Instances[id]
			in.absent = in.Listed
			in.unlisted(now)
			r.missing(now, in)
		}
	}
	r.settle(now)
	r.findZombies(now)
}

// ending takes the provider's word that it ends an instance.
func (r *Roster) ending(in *Instance) {
	switch {
	case !in.RemovedAt.IsZero():
	case in.Leaves == Interrupted:
		r.note(in.ID, Noticed, "the provider is ending it, as announced, with %d jobs on it", in.inUse)
	default:
		r.note(in.ID, GoneForeign, "the provider is ending it, not asked by us, with %d jobs on it", in.inUse)
	}
	in.Phase = Removing
}

// missing counts a list without in. An instance that is still heard serves on,
// whatever the list says; one that was never in a list may not be visible yet.
func (r *Roster) missing(now time.Time, in *Instance) {
	if in.connected && now.Sub(in.heardAt) < r.rules.SilentAfter {
		return
	}
	in.Missed++
	if in.Missed < missedListsGone && in.Phase != Removing {
		return
	}
	r.drop(now, in, "missing from %d complete lists", in.Missed)
}

// drop takes an instance that is gone out of the book, and says who ended it. why
// is for one whose end nobody has announced.
func (r *Roster) drop(now time.Time, in *Instance, why string, args ...any) {
	switch {
	case !in.RemovedAt.IsZero():
		r.note(in.ID, Gone, "removed by us: %s", in.EndedFor)
	case in.Leaves == Interrupted:
		r.note(in.ID, Gone, "taken by its cloud: %s", in.Notice)
	case in.Phase == Removing:
		r.note(in.ID, Gone, "ended by somebody else")
		r.endedEarly(now, in)
	default:
		r.note(in.ID, GoneForeign, why, args...)
		r.endedEarly(now, in)
	}
	delete(r.Instances, in.ID)
}

// endedEarly counts an instance that somebody, or it itself, ended before it ever
// registered: a boot that fails fast is a failed boot, and launching again each time
// is a storm.
func (r *Roster) endedEarly(now time.Time, in *Instance) {
	if in.RegisteredAt.IsZero() && in.Phase != BootFailed {
		r.Boot.failed(now, in.LaunchedAt)
	}
}

// WriteOff drops up to n instances that are missing from the last list. The group's
// number fell by as many: whoever ended them lowered it with them, so there is no need
// to wait for more lists. One that is still heard serves on.
func (r *Roster) WriteOff(now time.Time, n int) {
	for _, id := range r.ids() {
		in := r.Instances[id]
		heard := in.connected && now.Sub(in.heardAt) < r.rules.SilentAfter
		if n <= 0 || !in.absent || in.Phase == Removing || heard {
			continue
		}
		n--
		r.drop(now, in, "missing from the list, and the group's number fell with it")
	}
}

func (r *Roster) entry(now time.Time, id string, launched time.Time) *Instance {
	in, ok := r.Instances[id]
	if !ok {
		in = &Instance{ID: id, Phase: Booting, LaunchedAt: now}
		r.Instances[id] = in
		r.note(id, Appeared, "")
	}
	if !launched.IsZero() {
		in.LaunchedAt = launched
	}
	return in
}

// Heard takes the records of all machines of the pool, whole.
func (r *Roster) Heard(now time.Time, machines []router.Machine) {
	r.heardAll = now
	for _, in := range r.Instances {
		in.recorded, in.crowded = false, false
		in.inUse, in.beside = in.inUse-in.beside, 0
	}
	for i := range machines {
		m := &machines[i]
		if m.InstanceID == "" {
			continue // on nobody's instance: it takes jobs, but is not ours to scale
		}
		r.heardOne(now, m)
	}
	for i := range machines {
		r.heardBeside(now, &machines[i])
	}
	r.settle(now)
	r.retire(now)
}

// heardBeside takes the record of a machine that is not the newest on its instance, and
// lives: a process that another one has not replaced after all, or one of two that are
// told the same of where they are. What the newest says is not all there is.
func (r *Roster) heardBeside(now time.Time, m *router.Machine) {
	in := r.Instances[m.InstanceID]
	if in == nil || in.Machine == string(m.ID) || now.Sub(m.HeardAt) >= r.rules.SilentAfter || !m.Connected && m.InUse() == 0 {
		return
	}
	in.crowded = true
	in.inUse, in.beside = in.inUse+m.InUse(), in.beside+m.InUse()
}

func (r *Roster) heardOne(now time.Time, m *router.Machine) {
	in, known := r.Instances[m.InstanceID]
	if !known {
		if !m.Connected || now.Sub(m.HeardAt) >= r.rules.SilentAfter {
			return // a record left behind by an instance that is gone, or by a replica that was killed
		}
		in = r.entry(now, m.InstanceID, m.RegisteredAt) // until a list says when it was launched
	}
	if in.Machine != "" && in.Machine != string(m.ID) && m.RegisteredAt.Before(in.RegisteredAt) {
		return // an older process of the same instance
	}
	if in.RegisteredAt.IsZero() {
		r.note(in.ID, Registered, "%s after launch", m.RegisteredAt.Sub(in.LaunchedAt).Round(time.Millisecond))
		r.Boot.registered(m.RegisteredAt, in.LaunchedAt)
		if in.Phase == BootFailed {
			in.Phase = Booting // late is better than never; settle makes it usable
		}
	}
	in.Machine, in.RegisteredAt = string(m.ID), m.RegisteredAt
	in.inUse, in.uses = m.InUse(), m.Uses
	in.lastUsed = later(m.LastUsedAt, m.RegisteredAt)
	in.heardAt, in.heartbeatAt = m.HeardAt, m.HeartbeatAt
	in.ackedAt, in.connected = m.DrainAckedAt, m.Connected
	in.stopping = !m.StoppingSince.IsZero()
	in.drained, in.recorded, in.paused = m.Draining, true, m.Paused
	in.complaint, in.complainant = m.Unhealthy, "its own"
	if m.UnhealthyBy != "" {
		in.complainant = m.UnhealthyBy + "'s"
	}
	if m.InterruptionKind != "" {
		r.Interrupt(Notice{Instance: in.ID, Kind: m.InterruptionKind, Deadline: m.InterruptionDeadline})
	}
	if !m.Draining && in.Phase == Draining {
		in.ackedAt = time.Time{}
	}
}

// Boots has every instance of the book, and says which of them still boot. A machine
// on one of those, or on one that isn't in the book and that Heard would take in,
// makes it one that has booted.
func (r *Roster) Boots() map[string]bool {
	out := make(map[string]bool, len(r.Instances))
	for id, in := range r.Instances {
		out[id] = in.Phase == Booting
	}
	return out
}

// Census counts.
func (r *Roster) Census(now time.Time) Census {
	var c Census
	for _, in := range r.Instances {
		if in.Phase == Zombie {
			c.Zombies++
			continue
		}
		c.Live++
		switch {
		case in.Phase == Removing:
		case !in.Listed:
			c.Unlisted++
		case in.absent:
			c.Absent++
		}
		if !in.RegisteredAt.IsZero() {
			c.Registered++
		}
		switch in.Phase {
		case Usable:
			c.Usable++
			c.RunningJobs += in.inUse
			c.FreePlaces += max(0, r.rules.Capacity-in.inUse)
			if in.drained { // taken back a moment ago: nobody counts its places as free yet
				c.DrainingPlaces += max(0, r.rules.Capacity-in.inUse)
			}
			r.countIdle(now, in, &c)
		case Booting:
			c.Booting++
		case Draining:
			c.Draining++
			c.DrainingPlaces += max(0, r.rules.Capacity-in.inUse)
		case UsedUp:
			c.UsedUp++
		case Interrupted:
			c.Interrupted++
			if in.doomed(now) {
				c.DoomedJobs += in.inUse
			}
		case Broken:
			c.Broken++
		case Paused:
			c.Paused++
		case Silent:
			c.Silent++
		case BootFailed:
			c.BootFailed++
		case Removing:
			c.Removing++
		case Zombie:
		}
	}
	return c
}

func (r *Roster) countIdle(now time.Time, in *Instance, c *Census) {
	if in.inUse > 0 {
		c.InUse++
		return
	}
	if in.Kept || !r.provenIdle(now, in) {
		return
	}
	due := in.lastUsed.Add(r.rules.IdleTime)
	switch {
	case !due.After(now):
		c.Removable++
	case c.NextIdle.IsZero() || due.Before(c.NextIdle):
		c.NextIdle = due
	}
}

// provenIdle: the router's book and the machine's own heartbeat agree on no job,
// and both are fresh; and no other machine is there, which nobody has told to drain.
// Unknown is not idle, and what is not in the last list is nothing to be named to the
// provider.
func (r *Roster) provenIdle(now time.Time, in *Instance) bool {
	return in.inUse == 0 && !in.crowded && in.connected && in.recorded && in.Listed && !in.absent &&
		!in.heartbeatAt.IsZero() && now.Sub(in.heartbeatAt) < r.rules.SilentAfter &&
		now.Sub(r.heardAll) < r.rules.SilentAfter
}

// WarmingUp reports whether the owner has not yet heard two full heartbeat periods, so nothing
// that it believes about idleness is old enough to remove anything.
func (r *Roster) WarmingUp(now time.Time) bool {
	return now.Sub(r.startedAt) < r.rules.SilentAfter*2/3
}

// Unready reports whether so many registered instances are lost at once that the cause is likely
// ours or the network's: more than 45 % and more than 3.
func (r *Roster) Unready(c Census) bool {
	lost := c.Silent
	return lost > 3 && lost*100 > c.Registered*45
}

// ids in a fixed order, so that equal inputs give equal outputs.
func (r *Roster) ids() []string {
	ids := make([]string, 0, len(r.Instances))
	for id := range r.Instances {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// sorted returns the instances in phase, by less, ties by id.
func (r *Roster) sorted(less func(a, b *Instance) int, phases ...Phase) []*Instance {
	var out []*Instance
	for _, in := range r.Instances {
		if slices.Contains(phases, in.Phase) {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b *Instance) int { return cmp.Or(less(a, b), cmp.Compare(a.ID, b.ID)) })
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
