package roster

import (
	"fmt"
	"time"
)

// hold notes what holds an instance, as the last list has it.
func (in *Instance) hold(now time.Time, h Hook) {
	switch {
	case h != TerminationHook:
		in.HeldAt = time.Time{}
	case in.HeldAt.IsZero():
		in.HeldAt = now
	}
	if h != in.Hook {
		in.Hook, in.HookAskedAt = h, time.Time{}
	}
}

// Release is an instance that its hook shall let go.
type Release struct {
	Instance string
	Hook     Hook
	Forced   bool // with jobs on it, as far as anybody knows: drain_timeout is over
}

// Releases returns what hooks hold for no more reason. A launched instance enters
// service once its machine has registered. One that is being ended goes when it is
// proven to have no job: twice idle as for a removal, or without a machine that
// could have one. Otherwise it goes at drain_timeout, or when the hook runs out.
//
// What was asked for is asked for again after remove_retry, whatever came of it:
// the next lists say whether it was.
func (r *Roster) Releases(now time.Time) []Release {
	var out []Release
	for _, id := range r.ids() {
		in := r.Instances[id]
		if !in.HookAskedAt.IsZero() && now.Sub(in.HookAskedAt) < r.rules.RemoveRetry {
			continue
		}
		switch in.Hook {
		case LaunchHook:
			if !in.RegisteredAt.IsZero() && in.Phase != Removing {
				out = append(out, Release{Instance: id, Hook: LaunchHook})
			}
		case TerminationHook:
			if ok, forced := r.mayEnd(now, in); ok {
				out = append(out, Release{Instance: id, Hook: TerminationHook, Forced: forced})
			}
		case NoHook:
		}
	}
	return out
}

// mayEnd says whether an instance that a terminating hook holds may go. One that
// somebody keeps stays for as long as the hook itself allows.
func (r *Roster) mayEnd(now time.Time, in *Instance) (ok, forced bool) {
	switch {
	case in.Kept:
		return false, false
	case r.withoutMachine(now, in), r.machineGone(now, in), r.idleTwice(now, in) && (!r.hookStops || in.heartbeatAt.After(in.HeldAt)):
		return true, false
	default:
		return r.givenUp(now, in) || r.rules.DrainTimeout > 0 && now.Sub(in.HeldAt) >= r.rules.DrainTimeout, true
	}
}

// machineGone: there was a machine, and there is not even a record of it any more,
// so that the router has given up its jobs; or the provider says as well that what
// is silent is dead.
func (r *Roster) machineGone(now time.Time, in *Instance) bool {
	return in.Machine != "" && r.silent(now, in) && r.heardLately(now) && (!in.recorded && !r.unheard || in.Unhealthy)
}

// givenUp: nothing was heard of the machine for silent_timeout. Its jobs went to
// others long ago, and its results would be refused; a hook that waits for a machine
// that died unseen waits for days.
func (r *Roster) givenUp(now time.Time, in *Instance) bool {
	return in.Machine != "" && !r.unheard && !in.heardAt.IsZero() && r.silent(now, in) && r.heardLately(now) && now.Sub(in.heardAt) >= r.rules.SilentTimeout
}

// withoutMachine: machines were seen whole since the launch and for as long as an
// owner needs to hear of all of them, and none was this instance's.
func (r *Roster) withoutMachine(now time.Time, in *Instance) bool {
	return in.Machine == "" && !r.unheard && r.startedAt.Add(r.rules.SilentAfter).Before(now) && r.heardLately(now) && !r.strangerSince(in.LaunchedAt)
}

func (r *Roster) heardLately(now time.Time) bool { return now.Sub(r.heardAll) < r.rules.SilentAfter }

// ReleaseAsked records that hooks were asked to let instances go. It is called
// before the provider is.
func (r *Roster) ReleaseAsked(now time.Time, releases []Release) {
	for _, rel := range releases {
		in, ok := r.Instances[rel.Instance]
		if !ok {
			continue
		}
		in.HookAskedAt = now
		if rel.Forced {
			why := fmt.Sprintf("drain_timeout of %s is over", r.rules.DrainTimeout)
			if r.givenUp(now, in) {
				why = fmt.Sprintf("its machine was silent for %s", r.rules.SilentTimeout)
			}
			r.note(in.ID, ForcedEnd, "%s, with %d jobs on it", why, in.inUse)
		}
	}
}

// ReleaseRefused says that the provider did nothing: it may be asked again.
func (r *Roster) ReleaseRefused(releases []Release) {
	for _, rel := range releases {
		if in, ok := r.Instances[rel.Instance]; ok {
			in.HookAskedAt = time.Time{}
		}
	}
}
