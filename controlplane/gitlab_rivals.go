package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// looked tells the desk what each look at the fleet has found: which pools can grow, and
// what waits for those that take the same jobs as others.
func (g *gitLab) looked(pic *scaler.Picture) {
	if g.desk == nil {
		return
	}
	g.desk.SetRoom(pic.Rooms())
	g.desk.SetQueues(queuesOf(pic, g.tokens.Groups()))
}

// queuesOf is what waits for each of the pools that take the same jobs as others, if all
// of that is known.
func queuesOf(pic *scaler.Picture, groups [][]route.Rival) map[string]jobrouter.Queue {
	queues := map[string]jobrouter.Queue{}
	for _, group := range groups {
		first := &group[0].Pool
		var fit []demand.Class
		for _, c := range pic.Classes {
			if ok, _ := router.Fits(&first.Capability, &c.Requirement); ok {
				fit = append(fit, c)
			}
		}
		_, at := pic.DemandFor(first)
		q := queueOf(fit, at)
		for i := range group {
			if known, _ := pic.DemandFor(&group[i].Pool); known == policy.Whole {
				queues[group[i].Pool.Name] = q
			}
		}
	}
	return queues
}

// queueOf adds classes up, as they were at a time. Of the oldest job it is known how long
// it has waited also where nobody has counted for that time.
func queueOf(classes []demand.Class, at time.Time) jobrouter.Queue {
	q := jobrouter.Queue{At: at}
	byAge := map[time.Duration]int{}
	counted := true
	var oldest time.Time
	for i := range classes {
		c := &classes[i]
		q.Jobs += c.Pending
		counted = counted && c.Waited != nil
		for _, w := range c.Waited {
			byAge[w.For] += w.Jobs
		}
		if !c.Oldest.IsZero() && (oldest.IsZero() || c.Oldest.Before(oldest)) {
			oldest = c.Oldest
		}
	}
	if !counted {
		return q
	}
	q.Waited = []demand.Waited{}
	for age, jobs := range byAge {
		q.Waited = append(q.Waited, demand.Waited{For: age, Jobs: jobs})
	}
	if !oldest.IsZero() {
		q.Waited = append(q.Waited, demand.Waited{For: at.Sub(oldest), Jobs: 1})
	}
	slices.SortFunc(q.Waited, func(a, b demand.Waited) int { return cmp.Compare(a.For, b.For) })
	for i := len(q.Waited) - 2; i >= 0; i-- { // whoever has waited for longer has waited for that too
		q.Waited[i].Jobs = max(q.Waited[i].Jobs, q.Waited[i+1].Jobs)
	}
	return q
}

// ages are the times for which GitLab's jobs are counted that have waited so long: those
// that some pool is waited for, and what tells that a pool is given no jobs.
func (g *gitLab) ages() []time.Duration {
	if g.tokens == nil {
		return nil
	}
	var ages []time.Duration
	for _, group := range g.tokens.Groups() {
		ages = append(ages, jobrouter.FreePatience)
		for i := range group {
			if d := group[i].Pool.SpillAfter; d > 0 {
				ages = append(ages, d)
			}
		}
	}
	slices.Sort(ages)
	return slices.Compact(ages)
}

// holds says which pools' machines are given no job, because others go first.
type holds struct {
	mu struct {
		sync.Mutex
		said map[string]*seldom // by pool: a pool may be held and let go with every job
		now  map[string]jobrouter.HoldInfo
	}
}

func newHolds() *holds {
	h := &holds{}
	h.mu.said, h.mu.now = map[string]*seldom{}, map[string]jobrouter.HoldInfo{}
	return h
}

// note takes a change in, and returns what holds it back from being told too often.
func (h *holds) note(i jobrouter.HoldInfo) *seldom {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.Behind == "" {
		delete(h.mu.now, i.Pool)
	} else {
		h.mu.now[i.Pool] = i
	}
	if h.mu.said[i.Pool] == nil {
		h.mu.said[i.Pool] = &seldom{}
	}
	return h.mu.said[i.Pool]
}

// finding is why a pool's machines are given no job now; empty = they are.
func (h *holds) finding(pool string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, held := h.mu.now[pool]
	if !held {
		return ""
	}
	return heldText(i)
}

func heldText(i jobrouter.HoldInfo) string {
	why := "has a free machine"
	if i.Why == jobrouter.MayGrow {
		why = "can still get machines, and jobs wait for them"
	}
	return fmt.Sprintf("held_back: jobs go to pool %s first, which %s", i.Behind, why)
}

func (g *gitLab) held(i jobrouter.HoldInfo) {
	g.c.metrics.QuestionHeld(i.Pool, string(i.Why))
}

func (g *gitLab) holdChanged(i jobrouter.HoldInfo) {
	said := g.holds.note(i)
	g.c.metrics.PoolHeldBack(i.Pool, i.Behind != "")
	if i.Behind == "" {
		return
	}
	said.say(time.Now(), func(unsaid int) {
		g.c.log.Info("GitLab is not asked for a pool's machines", "pool", i.Pool, "why", heldText(i), "unsaid", unsaid)
	})
}

// turn is whose turn it is as the front proxy asks for it.
func (g *gitLab) turn(ctx context.Context, who route.Caller) (may, atOnce bool) {
	held, contested := g.desk.Turn(ctx, who)
	switch {
	case held != nil:
		g.held(*held)
		g.holdChanged(*held)
	case contested:
		g.holdChanged(jobrouter.HoldInfo{Pool: who.Pool.Name})
	}
	return held == nil, contested
}
