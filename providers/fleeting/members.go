package fleeting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

const (
	// missesToBeGone is how many lists in a row an instance must be missing from: a
	// cloud's list now and then lacks what is there.
	missesToBeGone = 5
	// unsureTime is how long an Increase without an answer counts as accepted. Less
	// and what it launched after all would be launched twice.
	unsureTime = time.Minute
	// maxFailures bounds the failures that Status tells of, newest last [entries].
	maxFailures = 20
	// beatsToBeUnhealthy is how many heartbeats in a row must fail.
	beatsToBeUnhealthy = 3
)

// rules are the times that the configuration sets.
type rules struct {
	fill   time.Duration // until what was accepted must be listed
	remove time.Duration // until what was removed must be listed as such
}

// members is what is known of the group. It decides with values: no calls, no
// clock. Its zero value knows nothing.
type members struct {
	known    map[string]*member
	waiting  []launch // accepted and not listed yet, oldest first
	failures []pluginsdk.GroupFailure
	listed   bool // there was a list
}

// member is one instance.
type member struct {
	id        string
	state     wire.State
	since     time.Time // first listed; zero = it was there before
	missing   int       // lists in a row without it
	removedAt time.Time // Decrease took it; zero = not
	badBeats  int       // in a row
}

// launch is what one Increase accepted, less what was listed since.
type launch struct {
	count int
	at    time.Time
	sure  bool // the plugin said so
}

// counted reports whether the instance is one that the group has. A state that
// nobody knows counts: it may well run.
func (m *member) counted() bool {
	return m.removedAt.IsZero() && (m.state == wire.Creating || m.state == wire.Running || m.state == wire.Unknown)
}

// desired is the number that the group has, or will have.
func (g *members) desired() int {
	n := g.unfilled()
	for _, m := range g.known {
		if m.counted() {
			n++
		}
	}
	return n
}

// unfilled is what was accepted and is not listed yet.
func (g *members) unfilled() int {
	n := 0
	for _, l := range g.waiting {
		n += l.count
	}
	return n
}

// changing reports whether the next list is expected to be another one.
func (g *members) changing() bool {
	if !g.listed || g.unfilled() > 0 {
		return true
	}
	for _, m := range g.known {
		if m.missing > 0 || m.state == wire.Creating || m.state == wire.Deleting || (!m.removedAt.IsZero() && m.state != wire.Deleted) {
			return true
		}
	}
	return false
}

// take takes a whole list, made at now.
func (g *members) take(now time.Time, list []wire.Instance, r rules) {
	if g.known == nil {
		g.known = map[string]*member{}
	}
	seen := make(map[string]bool, len(list))
	for _, in := range list {
		seen[in.ID] = true
		g.takeOne(now, in, r)
	}
	for id, m := range g.known {
		if seen[id] {
			continue
		}
		if m.missing++; m.state == wire.Deleted || m.missing >= missesToBeGone {
			delete(g.known, id)
		}
	}
	g.listed = true
	g.expire(now, r)
}

func (g *members) takeOne(now time.Time, in wire.Instance, r rules) {
	m := g.known[in.ID]
	if m == nil {
		m = &member{id: in.ID}
		g.known[in.ID] = m
		if g.listed { // else it was there before us, and nothing of ours
			m.since = now
			g.fill()
		}
	}
	if in.State == wire.Timeout && m.state != wire.Timeout {
		g.fail(now, "timeout/"+in.ID, pluginsdk.KindTransient, fmt.Sprintf("the plugin says that instance %q timed out; it may still exist in the cloud", in.ID))
	}
	m.state, m.missing = in.State, 0
	if !m.removedAt.IsZero() && now.Sub(m.removedAt) > r.remove && (in.State == wire.Creating || in.State == wire.Running || in.State == wire.Unknown) {
		m.removedAt = time.Time{} // nothing came of it: it is there, and may be removed again
	}
}

// fill takes a new instance for one of those that were accepted.
func (g *members) fill() {
	if len(g.waiting) == 0 {
		return // somebody else's, or of a launch that was given up
	}
	if g.waiting[0].count--; g.waiting[0].count == 0 {
		g.waiting = g.waiting[1:]
	}
}

// expire gives up what was accepted and never came.
func (g *members) expire(now time.Time, r rules) {
	g.waiting = slices.DeleteFunc(g.waiting, func(l launch) bool {
		limit := unsureTime
		if l.sure {
			limit = r.fill
		}
		if now.Sub(l.at) < limit {
			return false
		}
		if l.sure {
			g.fail(now, fmt.Sprintf("unfilled/%d", l.at.UnixNano()), pluginsdk.KindCapacity,
				fmt.Sprintf("the plugin accepted %d instances that were never listed within %s", l.count, r.fill))
		}
		return true
	})
}

// accepted notes what an Increase took.
func (g *members) accepted(now time.Time, took int) {
	if took > 0 {
		g.waiting = append(g.waiting, launch{took, now, true})
	}
}

// refused notes that an Increase took some of what it was asked for, and why not
// more nobody knows.
func (g *members) refused(now time.Time, asked, took int) {
	g.fail(now, fmt.Sprintf("refused/%d", now.UnixNano()), pluginsdk.KindCapacity, fmt.Sprintf("the plugin accepted %d of %d instances", took, asked))
}

// unsure notes an Increase of which nobody knows what it did.
func (g *members) unsure(now time.Time, asked int) {
	g.waiting = append(g.waiting, launch{asked, now, false})
}

// removable returns those of ids that can be removed, each once. Of the others
// nothing is left to be removed.
func (g *members) removable(ids []string) []string {
	var there []string
	for _, id := range ids {
		if m := g.known[id]; m != nil && m.counted() && !slices.Contains(there, id) {
			there = append(there, id)
		}
	}
	return there
}

// removed notes what a Decrease took.
func (g *members) removed(now time.Time, ids []string) {
	for _, id := range ids {
		if m := g.known[id]; m != nil {
			m.removedAt = now
		}
	}
}

// beat notes the outcome of a heartbeat.
func (g *members) beat(id string, well bool) {
	switch m := g.known[id]; {
	case m == nil:
	case well:
		m.badBeats = 0
	default:
		m.badBeats++
	}
}

// running are the ids of instances that a heartbeat makes sense for, in order.
func (g *members) running() []string {
	var ids []string
	for id, m := range g.known {
		if m.counted() && m.state == wire.Running {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// instances are all that may exist, in order.
func (g *members) instances() []pluginsdk.Instance {
	list := make([]pluginsdk.Instance, 0, len(g.known))
	for _, m := range g.known {
		if m.state != wire.Deleted {
			list = append(list, pluginsdk.Instance{
				ID: m.id, State: m.shown(), LaunchedAt: m.since, Unhealthy: m.state == wire.Timeout || m.badBeats >= beatsToBeUnhealthy,
			})
		}
	}
	slices.SortFunc(list, func(a, b pluginsdk.Instance) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (m *member) shown() pluginsdk.InstanceState {
	switch {
	case !m.counted():
		return pluginsdk.StateDeleting
	case m.state == wire.Creating:
		return pluginsdk.StateCreating
	case m.state == wire.Running:
		return pluginsdk.StateRunning
	default:
		return pluginsdk.StateUnknown
	}
}

// fail keeps a failure for Status.
func (g *members) fail(now time.Time, id string, kind pluginsdk.Kind, message string) {
	if len(g.failures) == maxFailures {
		g.failures = slices.Delete(g.failures, 0, 1)
	}
	g.failures = append(g.failures, pluginsdk.GroupFailure{ID: id, Kind: kind, Message: message, At: now})
}

// inState is how many instances are in a state.
func (g *members) inState(s wire.State) int {
	n := 0
	for _, m := range g.known {
		if m.state == s {
			n++
		}
	}
	return n
}
