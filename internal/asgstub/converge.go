package asgstub

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// healthRetry is how often a suspended health check is looked at again.
	healthRetry = 30 * time.Second
	// balanceAfter is how long zones may be out of balance until the group acts.
	balanceAfter = 30 * time.Second
)

// converge makes the group what desired says: it asks for what is missing, or
// takes back and ends what is too much. cause is why instances end.
func (g *group) converge(cause Cause) {
	if g.deleted {
		return
	}
	gap := g.desired + g.surplus - g.active() - g.outstanding()
	switch {
	case gap > 0 && !g.isSuspended(procLaunch):
		g.request(gap)
	case gap < 0:
		g.shrink(-gap, cause)
	}
	g.planBalance()
}

// settled is when something came to its end: perhaps there is more to do now.
func (g *group) settled() {
	g.refreshStep()
	g.refillWarm()
	g.planBalance()
}

// request asks EC2 for n instances. Some fail, some come late, some never.
func (g *group) request(n int) {
	filled := n
	if p := g.faults.Partial; p > 0 {
		filled = int(math.Round(float64(n) * p))
	}
	if rest := n - filled; rest > 0 {
		late := g.faults.LateFill
		g.later(request{count: rest, never: late == 0}, late)
	}
	g.attempt(filled)
}

// attempt launches n instances; what fails is tried again.
func (g *group) attempt(n int) {
	failed := make(map[*LaunchFault]int)
	var order []*LaunchFault
	before := g.active()
	cause := g.launchCause(before, before+n)
	for range n {
		zone, spot := g.nextZone(), g.spotNext()
		fault := g.faults.launch(g.c.mu.now, zone, spot, g.rng)
		if fault == nil {
			g.launch(zone, spot, cause)
			continue
		}
		if failed[fault] == 0 {
			order = append(order, fault)
		}
		failed[fault]++
	}
	lost := 0
	for _, fault := range order {
		g.failActivity(fault, cause)
		lost += failed[fault]
	}
	if lost > 0 {
		g.later(request{count: lost}, g.faults.retry())
	}
}

func (g *group) launchCause(from, to int) string {
	text := fmt.Sprintf("At %s an instance was started in response to a difference between desired and actual capacity, increasing the capacity from %d to %d.",
		seconds(g.c.mu.now), from, to)
	if g.why != "" {
		text = g.why + "  " + text
	}
	return text
}

// later keeps a request open until it is tried after d.
func (g *group) later(r request, d time.Duration) {
	g.requested++
	r.no = g.requested
	g.requests = append(g.requests, r)
	if !r.never {
		g.c.after(d, func() { g.tryAgain(r.no) })
	}
}

func (g *group) tryAgain(no int) {
	at := slices.IndexFunc(g.requests, func(r request) bool { return r.no == no })
	if at < 0 || g.deleted {
		return
	}
	n := g.requests[at].count
	g.requests = slices.Delete(g.requests, at, at+1)
	if g.isSuspended(procLaunch) {
		return // ResumeProcesses asks again
	}
	g.attempt(n)
}

// cancel drops n of the outstanding instances, the last asked for first.
func (g *group) cancel(n int) {
	for n > 0 && len(g.requests) > 0 {
		last := &g.requests[len(g.requests)-1]
		take := min(n, last.count)
		last.count -= take
		n -= take
		if last.count == 0 {
			g.requests = g.requests[:len(g.requests)-1]
		}
	}
}

// shrink takes back what is not there yet, then ends unprotected instances. What
// is protected stays, however low desired is, and an activity says so:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-instance-protection.html
func (g *group) shrink(n int, cause Cause) {
	open := min(n, g.outstanding())
	g.cancel(open)
	n -= open
	if n == 0 || g.isSuspended(procTerminate) {
		return
	}
	from := g.active()
	for range n {
		in := g.victim(nil)
		if in == nil {
			g.protectedActivity()
			return
		}
		g.terminate(in, cause, g.scaleInCause(in, from, from-n))
	}
}

func (g *group) scaleInCause(in *instance, from, to int) string {
	now := seconds(g.c.mu.now)
	text := fmt.Sprintf("At %s an instance was taken out of service in response to a difference between desired and actual capacity, shrinking the capacity from %d to %d.  At %s instance %s was selected for termination.",
		now, from, to, now, in.id)
	if g.why != "" {
		text = g.why + "  " + text
	}
	return text
}

// raceReplacement starts an instance too many and then takes an unprotected one.
func (g *group) raceReplacement() {
	if g.isSuspended(procLaunch) {
		return
	}
	g.surplus++
	resolve := min(raceAfter, min(g.faults.Pending, g.faults.Boot.P50)/2)
	g.c.after(resolve, func() {
		g.surplus--
		g.raceLost()
	})
	g.converge(Replaced)
}

// raceAfter is when a group notices, at the latest, that it launched one too many.
const raceAfter = 5 * time.Second

// raceLost takes any unprotected instance in service, not the one that was too
// many. Where there is none, that one goes, if it is not protected yet.
func (g *group) raceLost() {
	if g.active() > g.desired+g.surplus && !g.isSuspended(procTerminate) {
		if in := g.victim(func(in *instance) bool { return in.state == InService }); in != nil {
			g.terminate(in, Replaced, g.scaleInCause(in, g.active(), g.desired))
		}
	}
	g.converge(Replaced)
}
