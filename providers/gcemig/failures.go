package gcemig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// maxErrorReads bounds the groups whose errors one Status reads [calls]. With up to
	// twice as many in trouble each is read within two polls.
	maxErrorReads = 20
	// growthWatch is how long a group's errors are read after it grew, though it is
	// stable: one that creates without retries lowers its target again and is.
	growthWatch = 2 * time.Minute
	// failureAge is how old an error may be to be told: longer than any poll takes to
	// see it, and no history.
	failureAge = 15 * time.Minute
	// maxFailures bounds what is told of one group, the newest [entries].
	maxFailures = 50
)

// saw takes note of what a list says of the group.
func (g *group) saw(igm *computepb.InstanceGroupManager, now time.Time) {
	g.memory.Lock()
	defer g.memory.Unlock()
	m := &g.memory
	target := int(igm.GetTargetSize())
	if m.seen && (target > m.target || !m.stable) {
		m.grewAt = now // or was converging until now: the last errors are not read yet
	}
	m.seen, m.target, m.stable = true, target, igm.GetStatus().GetIsStable()
}

// grew is saw for what we did ourselves.
func (g *group) grew(now time.Time) {
	g.memory.Lock()
	defer g.memory.Unlock()
	g.memory.grewAt = now
}

// readFailures reads the errors of the groups that are converging or grew lately,
// those first that have waited longest. What can't be read is left for the next
// poll: the numbers of the status are true without it.
func (s *session) readFailures(ctx context.Context, found map[*group]*computepb.InstanceGroupManager) {
	now := s.now()
	type turn struct {
		*group
		readAt time.Time
	}
	var turns []turn
	for g := range found {
		g.memory.Lock()
		if m := &g.memory; m.seen && (!m.stable || now.Sub(m.grewAt) < growthWatch) {
			turns = append(turns, turn{g, m.readAt})
		}
		g.memory.Unlock()
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(a.readAt.Compare(b.readAt), cmp.Compare(a.id, b.id))
	})
	for _, t := range turns[:min(len(turns), maxErrorReads)] {
		list, err := t.failures(ctx, t.name)
		t.memory.Lock()
		t.memory.readAt = now // it had its turn, or one that can't be read would always be first
		if err == nil {
			t.memory.failures = failuresOf(list)
		}
		t.memory.Unlock()
		if err != nil {
			return // most others would fare no better
		}
	}
}

// recentFailures is what the group failed at lately, the newest first. It stays until
// it is old, also when it is not read again, so that each is counted once.
func (g *group) recentFailures(now time.Time) []pluginsdk.GroupFailure {
	g.memory.Lock()
	defer g.memory.Unlock()
	var recent []pluginsdk.GroupFailure
	for _, f := range g.memory.failures {
		if now.Sub(f.At) < failureAge && len(recent) < maxFailures {
			recent = append(recent, f)
		}
	}
	return recent
}

// launchActions are what an instance comes into being by.
var launchActions = []string{"CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING", "STARTING", "RESUMING"}

// failuresOf makes failures of the errors of a group. Hundreds of instances that
// can't be created for one reason are one failure for each zone and minute.
func failuresOf(list []*computepb.InstanceManagedByIgmError) []pluginsdk.GroupFailure {
	type wave struct {
		pluginsdk.GroupFailure
		instances int
		text      string
	}
	waves := make(map[string]*wave)
	for _, e := range list {
		at, err := time.Parse(time.RFC3339, e.GetTimestamp())
		if err != nil || !slices.Contains(launchActions, e.GetInstanceActionDetails().GetAction()) {
			continue
		}
		code, zone := e.GetError().GetCode(), after(e.GetInstanceActionDetails().GetInstance(), "zones")
		id := strings.Join([]string{code, zone, at.UTC().Truncate(time.Minute).Format("20060102T1504Z")}, "/")
		w := waves[id]
		if w == nil {
			w = &wave{GroupFailure: pluginsdk.GroupFailure{ID: id, Kind: kindOfCode(code)}}
			waves[id] = w
		}
		w.instances++
		if !at.Before(w.At) {
			w.At, w.text = at, fmt.Sprintf("%s in %s: %s", code, cmp.Or(zone, "no zone"), e.GetError().GetMessage())
		}
	}
	failures := make([]pluginsdk.GroupFailure, 0, len(waves))
	for _, w := range waves {
		w.Message = cut(w.text)
		if w.instances > 1 {
			w.Message = fmt.Sprintf("%d times %s", w.instances, w.Message)
		}
		failures = append(failures, w.GroupFailure)
	}
	slices.SortFunc(failures, func(a, b pluginsdk.GroupFailure) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID))
	})
	return failures
}
