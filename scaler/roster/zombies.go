package roster

import "time"

// findZombies gives up machines that say that they are the pool's, on instances
// that the last lists of the group don't have and none before them had. What they
// are is unknown: an instance that somebody has detached, a machine with a wrong
// name, a leftover of an earlier group. They are not capacity of the group, so they
// get no more jobs and are not counted; what they run, they finish. Nothing can end
// them by name.
//
// Where most machines are such, the names that machines give themselves are not
// those of the provider: they serve on, and a person has to look.
func (r *Roster) findZombies(now time.Time) {
	var found []*Instance
	registered := 0
	for _, id := range r.ids() {
		in := r.Instances[id]
		if in.RegisteredAt.IsZero() || r.silent(now, in) {
			continue
		}
		registered++
		if in.stranger(now) && in.Phase != Removing {
			found = append(found, in)
		}
	}
	if len(found)*2 > registered {
		return
	}
	for _, in := range found {
		if in.Phase != Zombie {
			r.note(in.ID, TurnedZombie, "machine %s says that it is on it, and %d complete lists don't have it", in.Machine, in.Unlisted)
			in.leave(Zombie)
			in.DrainedAt = time.Time{}
		}
	}
}

// Strangers is how many machines are on instances that no list has had for long
// enough to be sure, drained or not.
func (r *Roster) Strangers(now time.Time) int {
	n := 0
	for _, in := range r.Instances {
		if in.stranger(now) {
			n++
		}
	}
	return n
}

// strangerAfter is how long a cloud may take to list what it has launched.
const strangerAfter = 2 * time.Minute

func (in *Instance) stranger(now time.Time) bool {
	return !in.Listed && in.Machine != "" && in.Unlisted >= missedListsGone && now.Sub(in.UnlistedAt) >= strangerAfter
}

// unlisted counts a list without an instance that none has had yet.
func (in *Instance) unlisted(now time.Time) {
	if in.Listed {
		return
	}
	if in.Unlisted++; in.Unlisted == 1 {
		in.UnlistedAt = now
	}
}

// strangerSince reports whether a machine has registered since then on an instance
// that is in no list. It may be the machine of one that is, under a wrong name.
func (r *Roster) strangerSince(launched time.Time) bool {
	for _, in := range r.Instances {
		if !in.Listed && in.Machine != "" && !in.RegisteredAt.Before(launched) {
			return true
		}
	}
	return false
}
