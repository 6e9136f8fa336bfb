package store

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway/demand"
)

// MaxAges bounds the times for which the queue is counted [times].
const MaxAges = 16

// countedAges are the times for which Counts says how many jobs have waited so long; nil
// = it says of none.
type countedAges struct{ ages []time.Duration }

// CountAges has Counts say how many pending jobs of each class have waited for at least
// each of these times, MaxAges of them at most, from now on.
func (s *Store) CountAges(ages []time.Duration) {
	ages = slices.Compact(slices.Sorted(slices.Values(ages)))
	s.ages.Store(&countedAges{ages[:min(len(ages), MaxAges)]})
}

func (a *countedAges) micros() []any {
	if a == nil {
		return nil
	}
	args := make([]any, len(a.ages))
	for i, age := range a.ages {
		args[i] = age.Microseconds()
	}
	return args
}

// decode reads the numbers of jobs, one for each age.
func (a *countedAges) decode(answer any) ([]demand.Waited, error) {
	list, ok := answer.([]any)
	switch {
	case !ok:
		return nil, errReply
	case a == nil || len(a.ages) == 0:
		return nil, nil
	case len(list) != len(a.ages):
		return nil, errReply
	}
	waited := make([]demand.Waited, len(list))
	for i, n := range list {
		waited[i] = demand.Waited{For: a.ages[i], Jobs: int(asInt(n))}
	}
	return waited, nil
}
