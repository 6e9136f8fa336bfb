package roster

import (
	"time"

	"github.com/spillway-ci/spillway/router"
)

// settle moves each instance to the phase that what is known of it says.
func (r *Roster) settle(now time.Time) {
	for _, id := range r.ids() {
		r.settleOne(now, r.Instances[id])
	}
	r.condemn()
}

func (r *Roster) settleOne(now time.Time, in *Instance) {
	switch in.Phase {
	case Booting:
		if !in.RegisteredAt.IsZero() {
			in.Phase = Usable
			r.settleOne(now, in)
			return
		}
		if now.Sub(in.LaunchedAt) >= r.rules.RegisterTimeout && r.settledIn(now) {
			in.Phase = BootFailed
			r.Boot.failed(now, in.LaunchedAt)
			r.note(in.ID, NeverCame, "not registered %s after launch", r.rules.RegisterTimeout)
		}
	case Usable, Draining, UsedUp, Interrupted, Broken, Paused:
		r.settleRegistered(now, in)
	case Silent:
		if !r.silent(now, in) {
			in.SilentAt = time.Time{}
			in.Phase = in.phaseBeforeSilence()
			r.note(in.ID, CameBack, "")
			r.settleOne(now, in)
		}
	case Zombie:
		if r.silent(now, in) {
			r.note(in.ID, Gone, "a machine that was not the group's has left")
			delete(r.Instances, in.ID)
		}
	case Removing:
		if r.outlived(now, in) {
			in.RemovedAt, in.EndedFor = time.Time{}, ""
			in.DrainedAt, in.DrainReason, in.ackedAt = time.Time{}, "", time.Time{}
			in.Phase = in.phaseBeforeSilence()
			r.note(in.ID, DrainAborted, "its removal came to nothing, and it takes jobs")
			r.settleOne(now, in)
		}
	case BootFailed:
	}
}

// settledIn reports whether this owner has looked for long enough to have heard every
// machine that lives. One that has lost its memory, and its store the machines' records,
// would take a fleet that serves for failed boots, and launch it once more.
func (r *Roster) settledIn(now time.Time) bool { return now.Sub(r.startedAt) >= r.rules.SilentAfter }

// outlived reports whether an instance takes jobs though its removal was asked for, long
// ago: the provider did nothing, and the drain was lost with the store. Until it is drained
// anew it serves, and is counted so.
func (r *Roster) outlived(now time.Time, in *Instance) bool {
	asked := !in.RemovedAt.IsZero() && now.Sub(in.RemovedAt) >= r.rules.RemoveRetry
	takesJobs := in.recorded && in.connected && !in.drained && in.heartbeatAt.After(in.RemovedAt) && !r.silent(now, in)
	return asked && takesJobs && in.stays && !in.absent && in.Hook == NoHook
}

func (r *Roster) settleRegistered(now time.Time, in *Instance) {
	switch {
	case in.RegisteredAt.IsZero(): // its notice came before its machine, which may come still
		if now.Sub(in.LaunchedAt) >= r.rules.RegisterTimeout {
			in.Phase = BootFailed // of no pool's fault
		}
	case r.silent(now, in):
		in.Phase = Silent
		if in.SilentAt.IsZero() { // else its removal has failed, and it is as silent as before
			in.SilentAt = now
			r.note(in.ID, WentSilent, "not heard for %s", now.Sub(later(in.heardAt, in.RegisteredAt)).Round(time.Second))
		}
	case in.Leaves != "":
	case in.stopping, r.rules.MaxUses > 0 && in.uses >= r.rules.MaxUses:
		in.leave(UsedUp)
	case in.complaint != "":
		r.note(in.ID, FellIll, "by %s word: %s", in.complainant, in.complaint)
		in.leave(Broken)
	case in.paused && in.Phase == Usable:
		in.Phase = Paused
		r.note(in.ID, WasPaused, "with %d jobs on it", in.inUse)
	case !in.paused && in.Phase == Paused && in.recorded: // a new owner hears of it in a while
		in.Phase = Usable
		r.note(in.ID, WasResumed, "")
	}
}

// leave drains an instance for good. A drain that it has already goes on.
func (in *Instance) leave(phase Phase) { in.Phase, in.Leaves = phase, phase }

// phaseBeforeSilence is where an instance goes on that is heard again.
func (in *Instance) phaseBeforeSilence() Phase {
	switch {
	case in.Leaves != "":
		return in.Leaves
	case !in.DrainedAt.IsZero():
		return Draining
	default:
		return Usable
	}
}

// silent: not heard for silent_after. After a change of owner an instance has
// that long again to be heard.
func (r *Roster) silent(now time.Time, in *Instance) bool {
	return now.Sub(later(in.heardAt, r.startedAt)) >= r.rules.SilentAfter
}

// Notice is an instance's interruption, as the provider or its own machine tells it.
type Notice struct {
	Instance string
	Kind     string    // one of the router's Interruption kinds
	Deadline time.Time // zero = not known
}

// Interrupt takes a notice, and reports whether it is news.
//
// An instance that will be taken is drained for good and at once, and what replaces
// it is not waited for. One that only may be taken ([router.InterruptionRebalance])
// serves on until it is idle: such a notice may come hours early, or for nothing,
// and no job is at stake before the other kind comes.
func (r *Roster) Interrupt(n Notice) bool {
	in, ok := r.Instances[n.Instance]
	if !ok || in.Phase == Removing || in.Phase == BootFailed || in.Phase == Zombie || !in.graver(n) {
		return false
	}
	if in.Notice != n.Kind {
		r.note(in.ID, Noticed, "%s%s", n.Kind, n.deadline())
	}
	in.Notice, in.TakenAt = n.Kind, n.Deadline
	if n.Kind != router.InterruptionRebalance && in.Phase != Interrupted {
		in.leave(Interrupted)
		in.DrainedAt, in.DrainReason = time.Time{}, string(Interrupted)
	}
	return true
}

// graver reports whether n says more than what is known. What is taken with
// whatever runs on it is gravest.
func (in *Instance) graver(n Notice) bool {
	if in.Notice == n.Kind {
		return in.TakenAt.IsZero() && !n.Deadline.IsZero()
	}
	return in.Notice == "" || in.Notice == router.InterruptionRebalance || n.Kind == router.InterruptionSpot
}

// doomedWithin is how long before its end the jobs of an instance that is taken are
// given up: the longest notice of a spot market, and about the boot of what they
// need then. Until that they may still end by themselves.
const doomedWithin = 2 * time.Minute

func (in *Instance) doomed(now time.Time) bool {
	return in.Notice == router.InterruptionSpot && (in.TakenAt.IsZero() || in.TakenAt.Sub(now) <= doomedWithin)
}

func (n Notice) deadline() string {
	if n.Deadline.IsZero() {
		return ""
	}
	return ", at " + n.Deadline.UTC().Format(time.TimeOnly)
}

// massFew and massPercent bound how many instances are given up on the provider's
// word alone: more at once are rather a health check that is set up wrong.
const (
	massFew     = 3
	massPercent = 45
)

// condemn drains for good what the provider finds unhealthy. A silent one needs no
// drain: see Lost.
func (r *Roster) condemn() {
	registered, broken := 0, 0
	for _, in := range r.Instances {
		if !in.RegisteredAt.IsZero() {
			registered++
		}
		if in.Leaves == Broken {
			broken++
		}
	}
	for _, in := range r.sorted(byLastUsed, Usable, Draining) {
		if !in.Unhealthy || in.Kept {
			continue
		}
		if broken++; broken > massFew && broken*100 > registered*massPercent {
			return
		}
		r.note(in.ID, FellIll, "by the provider's word")
		in.leave(Broken)
	}
}

// retire drains for good what serves well and shall not stay: what is older than
// max_age, and what may be taken soon, once it is idle. It does so in paces of a
// quarter, and waits for what replaces the last of them: the places of a pool that
// was launched at once must not all go at once.
func (r *Roster) retire(now time.Time) {
	c := r.Census(now)
	since := now.Sub(r.RetiredAt)
	if since < r.rules.RemoveRetry || (c.Booting > 0 && since < r.rules.RegisterTimeout) {
		return
	}
	pace := max(1, c.Usable/4)
	for _, in := range r.sorted(func(a, b *Instance) int { return a.LaunchedAt.Compare(b.LaunchedAt) }, Usable) {
		old := r.rules.MaxAge > 0 && now.Sub(in.LaunchedAt) >= r.rules.MaxAge
		risky := in.Notice == router.InterruptionRebalance && in.inUse == 0
		switch {
		case pace == 0:
			return
		case in.Kept || !in.Listed:
			continue
		case risky:
			in.leave(Interrupted)
		case old:
			r.note(in.ID, Aged, "%s old", now.Sub(in.LaunchedAt).Round(time.Second))
			in.leave(UsedUp)
			in.DrainReason = string(Aged)
		default:
			continue
		}
		pace--
		r.RetiredAt = now
	}
}
