package suite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
)

// The jobs that polling replicas see: each sees half of all, and half of what its
// neighbour sees.
const (
	idsPerClass  = 1_000
	viewReplicas = 3
	firstViewID  = 9_000_000_000 // above 2^32, as large instances have them
	idStep       = 13            // ids of one class are never neighbours
)

// views is what each replica sees of the jobs, by class.
type views struct {
	classes  []spillway.JobClass
	perClass int // distinct jobs, over all replicas
	seen     [viewReplicas]map[spillway.JobClass][]spillway.JobID
}

func newViews(jobs int) *views {
	v := &views{perClass: idsPerClass}
	for r := range v.seen {
		v.seen[r] = map[spillway.JobClass][]spillway.JobID{}
	}
	for c := range jobs / idsPerClass {
		class := spillway.Requirement{Tags: []string{"class-" + strconv.Itoa(c)}}.Class()
		v.classes = append(v.classes, class)
		for r := range v.seen {
			from, to := v.window(r)
			ids := make([]spillway.JobID, 0, to-from)
			for i := from; i < to; i++ {
				ids = append(ids, spillway.JobID(strconv.Itoa(firstViewID+idStep*(c*v.perClass+i))))
			}
			v.seen[r][class] = ids
		}
	}
	return v
}

// window is the part of each class that a replica sees.
func (v *views) window(replica int) (from, to int) {
	step := v.perClass / (viewReplicas + 1)
	from = replica * step
	if replica == viewReplicas-1 {
		return from, v.perClass
	}
	return from, from + 2*step
}

// union is how many jobs of a class the first so many replicas see together.
func (v *views) union(replicas int) int {
	_, to := v.window(replicas - 1)
	return to
}

func (v *views) replicaNames(n int) []string {
	names := make([]string, n)
	for r := range names {
		names[r] = "replica-" + strconv.Itoa(r)
	}
	return names
}

// jobs is how many there are, seen by any replica.
func (v *views) jobs() int { return len(v.classes) * v.perClass }

// sets is into how many sets the ids are spread.
func (v *views) sets() int { return len(v.classes) * v.setsPerClass() }

// setsPerClass is into how many sets the ids of a class are spread at most: Redis
// keeps a set of numbers small while it has no more than 512, and 400 are planned.
func (v *views) setsPerClass() int { return (v.perClass + 399) / 400 }

// wrongCounts is how many classes have another number of jobs than the first so many
// replicas see.
func (v *views) wrongCounts(counts map[spillway.JobClass]int, replicas int) int {
	wrong := max(0, len(counts)-len(v.classes))
	for _, class := range v.classes {
		if counts[class] != v.union(replicas) {
			wrong++
		}
	}
	return wrong
}

// eachChunk calls f for the ids in parts of what one command carries.
func eachChunk(ids []spillway.JobID, f func([]spillway.JobID)) {
	const idsPerCommand = 500
	for part := range slices.Chunk(ids, idsPerCommand) {
		f(part)
	}
}

// waitForEpoch waits until a new interval of the wall clock has just begun. The
// server's clock is this machine's.
func waitForEpoch(ctx context.Context, interval time.Duration) error {
	const margin = 20 * time.Millisecond
	now := time.Now()
	begin := now.Truncate(interval).Add(interval + margin)
	select {
	case <-time.After(begin.Sub(now)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// epochOf is the interval that a time is in.
func epochOf(t time.Time, interval time.Duration) int64 {
	return t.UnixMilli() / interval.Milliseconds()
}

var errEpochTooShort = fmt.Errorf("a replica's views did not fit into one epoch, again and again: this machine is too slow or too busy")
