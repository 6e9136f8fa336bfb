// Package watch knows the machines of pools whose jobs others hand out: it brings
// together what the registry, the book of routed jobs, the runners' metrics, GitLab and
// the group's list say of each instance, has scaler/evidence judge it, and shows the
// result as [scaler.Machines] like any other.
//
// The group of a pool is listed by the replica that scales it, and by no other. So that
// one judges, and shows the others on a board what it found: each of them attributes the
// jobs of all pools. All times in its facts are by its own clock: an order counts from
// when it first saw it in force, so that clocks that differ neither shorten a drain nor
// make one wait for ever.
package watch
