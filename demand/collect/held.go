package collect

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// heldEvery is between two looks at the jobs that are held [time].
	heldEvery = 2 * time.Second
	// heldTimeout is how long a job that is held counts after its replica was last heard
	// of it, where no list tells what became of it: GitLab offers a job again when nobody
	// has kept it for two minutes.
	heldTimeout = 2 * time.Minute
)

// tellHeld tells all replicas which jobs this one holds, until ctx ends.
func (g *GitLab) tellHeld(ctx context.Context) {
	ticker := time.NewTicker(heldEvery)
	defer ticker.Stop()
	var before []Sighting
	for {
		before = g.tellHeldOnce(ctx, before)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-g.wake:
		}
	}
}

// tellHeldOnce tells what is held now. A job that was held before and isn't any more
// has nearly always been given to a machine: it is told as running, which whatever is
// learned of it afterwards overrules. Counting it on until the next list would launch
// a machine for a job that has one.
func (g *GitLab) tellHeldOnce(ctx context.Context, before []Sighting) []Sighting {
	now := time.Now()
	kept := g.o.Held.Held()
	m := message{Replica: g.o.Replica}
	if g.o.API == nil { // else the lists tell which jobs wait
		m.Lacks, m.Problem = g.heldLacks(kept)
	}
	held := make([]Sighting, len(kept))
	still := make(map[JobKey]bool, len(kept))
	for i := range kept {
		held[i] = kept[i].Sighting
		held[i].State, held[i].At = spillway.Pending, now
		still[held[i].Job] = true
	}
	m.Jobs = append(m.Jobs, held...)
	for _, s := range before {
		if !still[s.Job] {
			s.State, s.At = spillway.Running, now
			m.Jobs = append(m.Jobs, s)
		}
	}
	if err := tell(ctx, g.o.Store, m); err != nil && ctx.Err() == nil {
		g.o.Events.trouble("telling which jobs are held", err)
	}
	return held
}
