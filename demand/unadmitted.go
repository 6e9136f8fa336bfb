package demand

import (
	"cmp"
	"slices"
)

// withUnadmitted attributes jobs that still wait for admission after all the others,
// and to places that are there or coming anyway: they hold what there is and launch
// nothing. Whether they will ever run is not known; a refusal takes a moment and an
// instance minutes, so a storm of jobs that are refused must not buy any, and a fleet
// must not be let go of because its jobs are being looked at.
func withUnadmitted(classes []Class, pools []Supply, match Matcher) Attribution {
	var sure, unsure []Class
	var sureOf, unsureOf []int // their indices in classes
	for i := range classes {
		if classes[i].Unadmitted {
			c := classes[i]
			c.Unadmitted = false
			unsure, unsureOf = append(unsure, c), append(unsureOf, i)
		} else {
			sure, sureOf = append(sure, classes[i]), append(sureOf, i)
		}
	}
	a := Attribute(sure, pools, match)
	a.renumber(sureOf)
	b := Attribute(unsure, leftovers(pools, a.Pools), match)
	b.renumber(unsureOf)
	for name, share := range b.Pools {
		all := a.Pools[name]
		all.Free, all.Coming = all.Free+share.Free, all.Coming+share.Coming
		a.Pools[name] = all
	}
	a.Flows = append(a.Flows, b.Flows...)
	slices.SortFunc(a.Flows, func(x, y Flow) int {
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Stage, y.Stage))
	})
	a.Unmatched = append(a.Unmatched, b.Unmatched...)
	slices.SortFunc(a.Unmatched, func(x, y Unmatched) int { return cmp.Compare(x.Class, y.Class) })
	return a
}

// leftovers are the places that an attribution has left, without any to be launched.
func leftovers(pools []Supply, used map[string]PoolShare) []Supply {
	rest := slices.Clone(pools)
	for i := range rest {
		p, share := &rest[i], used[rest[i].Pool]
		p.Free = max(0, p.Free-share.Free)
		booting := min(max(0, p.Booting), share.Coming)
		p.Booting, p.Draining = p.Booting-booting, max(0, p.Draining-(share.Coming-booting))
		p.Launchable, p.SpillAfter = 0, 0
	}
	return rest
}

// renumber gives entries the indices that they have among all.
func (a *Attribution) renumber(of []int) {
	for i := range a.Flows {
		a.Flows[i].Class = of[a.Flows[i].Class]
	}
	for i := range a.Unmatched {
		a.Unmatched[i].Class = of[a.Unmatched[i].Class]
	}
	for i := range a.Overflow {
		a.Overflow[i].Class = of[a.Overflow[i].Class]
	}
}

func anyUnadmitted(classes []Class) bool {
	return slices.ContainsFunc(classes, func(c Class) bool { return c.Unadmitted })
}
