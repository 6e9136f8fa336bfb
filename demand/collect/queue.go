package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// Counter counts the router's own queue.
type Counter interface {
	Counts(ctx context.Context) ([]router.ClassCount, error)
}

// Queue is the router's own queue as a source of demand. Its view is always whole:
// it is read in one go, or it is an error.
type Queue struct {
	Counter Counter
}

// Demand reads the queue.
func (q Queue) Demand(ctx context.Context) (demand.View, error) {
	at := time.Now()
	counts, err := q.Counter.Counts(ctx)
	if err != nil {
		return demand.View{}, fmt.Errorf("counting the queue: %w", err)
	}
	return View(counts, at), nil
}

// View turns counts that were true at a time into a view.
func View(counts []router.ClassCount, at time.Time) demand.View {
	v := demand.View{At: at, Classes: make([]demand.Class, 0, len(counts))}
	for _, c := range counts {
		if c.Unadmitted > 0 {
			v.Classes = append(v.Classes, demand.Class{
				ID: c.Class, Requirement: c.Requirement, Priority: c.Priority, Pending: c.Unadmitted, Oldest: c.Oldest, Unadmitted: true,
			})
		}
		if c.Pending == 0 {
			continue
		}
		v.Classes = append(v.Classes, demand.Class{
			ID: c.Class, Requirement: c.Requirement, Priority: c.Priority, Pending: c.Pending, Oldest: c.Oldest, Waited: c.Waited,
		})
	}
	return v
}
