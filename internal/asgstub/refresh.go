package asgstub

import (
	"fmt"
	"time"
)

// The states of a refresh:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_InstanceRefresh.html
const (
	refreshInProgress = "InProgress"
	refreshSuccessful = "Successful"
)

// refresh is an instance refresh: it replaces the instances one by one, and waits
// for those that are protected.
type refresh struct {
	id      string
	no      int
	status  string
	started time.Time
	ended   time.Time
	all     int
	todo    int
	stuck   bool // it does not go on
	current *instance
}

func (g *group) activeRefresh() *refresh {
	for _, r := range g.refreshes {
		if r.status == refreshInProgress {
			return r
		}
	}
	return nil
}

// refreshNo is the refresh that instances launched now belong to; 0 for none yet.
func (g *group) refreshNo() int { return len(g.refreshes) }

func (g *group) startRefresh() *refresh {
	n := g.active()
	r := &refresh{
		id: g.uuid(), no: len(g.refreshes) + 1, status: refreshInProgress, started: g.c.mu.now, all: n, todo: n,
	}
	g.refreshes = append(g.refreshes, r)
	g.refreshStep()
	return r
}

// refreshStep goes on with the refresh under way: the next old instance is
// terminated, and its replacement awaited.
func (g *group) refreshStep() {
	r := g.activeRefresh()
	if r == nil || r.stuck || g.deleted || g.isSuspended(procRefresh) {
		return
	}
	if r.current != nil && r.current.left.IsZero() || g.active() < g.desired {
		return
	}
	old := func(in *instance) bool { return in.refreshed < r.no }
	r.todo = 0
	for _, in := range g.instances {
		if in.counts() && old(in) {
			r.todo++
		}
		if in.state == Pending || in.state == PendingWait {
			return // until it is in service
		}
	}
	if r.todo == 0 {
		r.status, r.ended = refreshSuccessful, g.c.mu.now
		return
	}
	in := g.victim(old)
	if in == nil {
		return // all that are left are protected: it waits
	}
	r.current = in
	g.why = ""
	g.terminate(in, Refreshed, fmt.Sprintf("At %s an instance was taken out of service in response to an instance refresh.", seconds(g.c.mu.now)))
	g.converge(Refreshed)
}
