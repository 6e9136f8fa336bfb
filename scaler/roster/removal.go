package roster

import (
	"cmp"
	"time"
)

// Order is a drain to be ordered, or to be taken back.
type Order struct {
	Instance string
	Machine  string
	On       bool
	Reason   string
	// Again: it stands by the machine's record, and is only said once more.
	Again bool
}

// Drain chooses n usable instances that are proven idle for idle_time, those idle
// for longest first, and marks them draining. It may choose fewer.
func (r *Roster) Drain(now time.Time, n int) []Order {
	var out []Order
	for _, in := range r.sorted(byLastUsed, Usable) {
		if len(out) >= n {
			break
		}
		if in.Kept || !r.provenIdle(now, in) || now.Sub(in.lastUsed) < r.rules.IdleTime {
			continue
		}
		in.Phase, in.DrainedAt, in.DrainReason = Draining, now, "idle"
		out = append(out, Order{Instance: in.ID, Machine: in.Machine, On: true, Reason: "idle"})
	}
	return out
}

// TakeBack chooses n of our own drains to be taken back, the latest first.
func (r *Roster) TakeBack(n int) []Order {
	var out []Order
	for _, in := range r.sorted(func(a, b *Instance) int { return b.DrainedAt.Compare(a.DrainedAt) }, Draining) {
		if len(out) >= n {
			break
		}
		out = append(out, r.takeBack(in, "needed again"))
	}
	return out
}

func (r *Roster) takeBack(in *Instance, why string) Order {
	in.Phase, in.DrainedAt, in.DrainReason = Usable, time.Time{}, ""
	in.ackedAt = time.Time{}
	return Order{Instance: in.ID, Machine: in.Machine, Reason: why}
}

// Leaving orders the drain of instances that leave for good and were not told yet,
// or that nobody has acknowledged in time: the order may be lost with the store.
// One that somebody keeps is left alone unless it goes whatever we do.
func (r *Roster) Leaving(now time.Time) []Order {
	var out []Order
	for _, in := range r.sorted(byLastUsed, UsedUp, Interrupted, Broken, Zombie, Removing) {
		doomed := in.Phase == Interrupted || in.Phase == Removing
		if in.Machine == "" || (in.Kept && !doomed) || (in.Phase == Removing && in.Hook != TerminationHook) {
			continue
		}
		if in.DrainedAt.IsZero() || (!r.acknowledged(now, in) && now.Sub(in.DrainedAt) >= r.rules.AckTimeout) {
			again := !in.DrainedAt.IsZero() && in.drained
			in.DrainedAt, in.DrainReason = now, cmp.Or(in.DrainReason, string(in.Phase))
			out = append(out, Order{Instance: in.ID, Machine: in.Machine, On: true, Reason: in.DrainReason, Again: again})
		}
	}
	return out
}

// SecondLook looks again at each of our drains: Aborted are taken back, since the
// machine has work after all or nobody acknowledged in time.
func (r *Roster) SecondLook(now time.Time) (aborted []Order) {
	for _, in := range r.sorted(byLastUsed, Draining) {
		acked := r.acknowledged(now, in)
		switch {
		case in.Kept:
			r.note(in.ID, DrainAborted, "somebody keeps it")
			aborted = append(aborted, r.takeBack(in, "kept"))
		case in.paused:
			r.note(in.ID, DrainAborted, "somebody paused its runner")
			aborted = append(aborted, r.takeBack(in, "paused"))
		case in.crowded:
			r.note(in.ID, DrainAborted, "another machine than %s says that it is on it too", in.Machine)
			aborted = append(aborted, r.takeBack(in, "another machine is there"))
		case acked && in.heartbeatAt.After(in.ackedAt) && in.inUse > 0:
			r.note(in.ID, DrainAborted, "the second look found %d jobs", in.inUse)
			aborted = append(aborted, r.takeBack(in, "found busy"))
		case !acked && now.Sub(in.DrainedAt) >= r.rules.AckTimeout:
			r.note(in.ID, DrainAborted, "not acknowledged within %s", r.rules.AckTimeout)
			aborted = append(aborted, r.takeBack(in, "not acknowledged"))
		}
	}
	return aborted
}

// Evidence says why an instance may be removed.
type Evidence string

// The kinds of evidence.
const (
	Idle            Evidence = "idle"             // idle, drained, acknowledged, idle again
	NeverRegistered Evidence = "never_registered" // no contact since launch, register_timeout over
	LostForGood     Evidence = "lost"             // silent for silent_timeout, and the provider agrees
	StillThere      Evidence = "still_there"      // removed before, and still there
	Unhealthy       Evidence = "unhealthy"        // broken, and idle as above
)

// Removal is an instance that may be removed now.
type Removal struct {
	Instance string
	Evidence Evidence
}

// Removals returns who may be removed now. scaleIn false (a hold): only what has
// never registered and what was asked for before. Who is silent is Lost's to say.
func (r *Roster) Removals(now time.Time, scaleIn bool) []Removal {
	var out []Removal
	for _, in := range r.sorted(byLastUsed, BootFailed, Removing, Draining, UsedUp, Interrupted, Broken) {
		left := in.Kept || (in.paused && in.Phase != Removing)
		if ev := r.evidence(now, in, scaleIn); ev != "" && in.Listed && !left {
			out = append(out, Removal{Instance: in.ID, Evidence: ev})
		}
	}
	return out
}

func (r *Roster) evidence(now time.Time, in *Instance, scaleIn bool) Evidence {
	if !in.RemovedAt.IsZero() && now.Sub(in.RemovedAt) < r.rules.RemoveRetry {
		return ""
	}
	switch in.Phase {
	case BootFailed:
		if r.withoutMachine(now, in) {
			return NeverRegistered
		}
	case Removing:
		held := in.Hook == TerminationHook                    // it goes when that lets it go
		if !in.RemovedAt.IsZero() && in.inUse == 0 && !held { // its drain may have been lost since
			return StillThere
		}
	case Draining, UsedUp, Interrupted:
		if scaleIn && r.idleTwice(now, in) {
			return Idle
		}
	case Broken:
		if scaleIn && r.idleTwice(now, in) {
			return Unhealthy
		}
	case Booting, Usable, Paused, Silent, Zombie:
	}
	return ""
}

// idleTwice is the second look: second_look after the acknowledgement, and idle
// in a heartbeat that is newer than it.
func (r *Roster) idleTwice(now time.Time, in *Instance) bool {
	return r.acknowledged(now, in) && now.Sub(in.ackedAt) >= r.rules.SecondLook &&
		in.heartbeatAt.After(in.ackedAt) && r.provenIdle(now, in)
}

// acknowledged: the machine said after our order that it takes no more jobs.
//
// An owner that has lost its memory orders again what is drained already, and
// hears of the first acknowledgement for ever. For an instance that leaves for good
// it counts if a later heartbeat still came with it: such a drain is never taken
// back, which would have voided it.
func (r *Roster) acknowledged(now time.Time, in *Instance) bool {
	switch {
	case in.DrainedAt.IsZero() || in.ackedAt.IsZero():
		return false
	case !in.ackedAt.Before(in.DrainedAt):
		return true
	default:
		return (in.Leaves != "" || in.Phase == Removing) &&
			now.Sub(in.DrainedAt) >= r.rules.AckTimeout && in.heartbeatAt.After(in.DrainedAt)
	}
}

// lostPass is the time between two passes of removing silent instances: the next
// ones may still come back while the first are replaced.
const lostPass = 2 * time.Minute

// Lost returns the silent instances that may be removed now: silent for
// silent_timeout, and only where the provider says too that something is wrong.
// They go in passes of max(5, max/4). While more than half of all are silent it is
// more likely the network or us: nothing goes before the last of them has been
// silent for twice as long. That the provider still finds them dead by then is
// better proof than their number, and a pool must not stay at its maximum with
// nothing alive in it.
func (r *Roster) Lost(now time.Time) []Removal {
	if now.Sub(r.LostAt) < lostPass {
		return nil
	}
	silent := r.sorted(func(a, b *Instance) int { return a.SilentAt.Compare(b.SilentAt) }, Silent)
	if n := len(silent); n*2 > len(r.Instances) && now.Sub(silent[n-1].SilentAt) < 2*r.rules.SilentTimeout {
		return nil
	}
	var out []Removal
	for _, in := range silent {
		if len(out) >= max(5, r.rules.Max/4) {
			break
		}
		if in.Unhealthy && in.Listed && !in.Kept && now.Sub(in.SilentAt) >= r.rules.SilentTimeout {
			out = append(out, Removal{Instance: in.ID, Evidence: LostForGood})
		}
	}
	return out
}

// RemoveAsked records that removals were asked for. It is called before the
// provider is, so that after a crash the question is asked again and not forgotten.
func (r *Roster) RemoveAsked(now time.Time, removals []Removal) {
	for _, rem := range removals {
		in, ok := r.Instances[rem.Instance]
		if !ok {
			continue
		}
		if rem.Evidence != StillThere {
			in.EndedFor = in.reason(rem.Evidence)
		}
		in.RemovedAt, in.Phase = now, Removing
		if rem.Evidence == LostForGood {
			r.LostAt = now
		}
	}
}

// reason is why an instance is removed, for whoever asks who ended it.
func (in *Instance) reason(ev Evidence) string {
	if ev == Idle {
		return cmp.Or(in.DrainReason, string(ev))
	}
	return string(ev)
}

// RemoveFailed says that the provider did not remove an instance: it is still
// there, and is asked about again after remove_retry.
func (r *Roster) RemoveFailed(id string) {
	in, ok := r.Instances[id]
	switch {
	case !ok:
	case in.Machine == "":
		in.Phase = BootFailed
	default:
		in.Phase = in.phaseBeforeSilence() // where it was when it was asked for: drained, for whatever reason
	}
}

// RemoveRefused says that the provider did nothing at all: it may be asked again.
func (r *Roster) RemoveRefused(id string) {
	if in, ok := r.Instances[id]; ok {
		r.RemoveFailed(id)
		in.RemovedAt = time.Time{}
	}
}

func byLastUsed(a, b *Instance) int { return a.lastUsed.Compare(b.lastUsed) }
