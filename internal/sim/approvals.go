package sim

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// reloadGrace is how long after a reload a job may still go by the configuration before.
const reloadGrace = 2 * time.Minute

// approvals is what the rules know of admission: what controllers have really said, and
// what is on record of it.
type approvals struct {
	said     map[spillway.JobID]map[string]bool // by controller: its last word
	stored   map[spillway.JobID][]string        // who has approved it, by the store
	admitted map[spillway.JobID]bool            // it once was
}

func newApprovals() approvals {
	return approvals{
		said: make(map[spillway.JobID]map[string]bool), stored: make(map[spillway.JobID][]string), admitted: make(map[spillway.JobID]bool),
	}
}

// wiped notes that the store has forgotten everything: everybody is asked again.
func (c *rules) wiped() {
	c.approvals.stored, c.approvals.admitted = make(map[spillway.JobID][]string), make(map[spillway.JobID]bool)
}

// reloaded reports whether the controllers may have been other ones a moment ago.
func (c *rules) reloaded() bool {
	at := c.world.reloadedAt
	return !at.IsZero() && c.world.now.Sub(at) < reloadGrace
}

// said notes what a controller says of a job.
func (c *rules) said(controller string, id spillway.JobID, allow bool) {
	words := c.approvals.said[id]
	if words == nil {
		words = make(map[string]bool)
		c.approvals.said[id] = words
	}
	words[controller] = allow
}

// shown checks I13 and I15: a controller is asked of a job after all those before it have
// approved that, and not again once it has.
func (c *rules) shown(controller string, b *admission.Batch) {
	for _, s := range b.Subjects {
		approvers := c.world.policy.Approvers(&s.Job.Requirement)
		at := slices.IndexFunc(approvers, func(a admission.Controller) bool { return a.Name == controller })
		if at < 0 || c.reloaded() {
			continue // it only watches
		}
		for _, a := range approvers[:at] {
			if !c.approvals.said[s.Job.ID][a.Name] {
				c.broken("I13", "%s is asked of job %s before %s has approved that", controller, s.ID, a.Name)
			}
		}
		if slices.Contains(c.approvals.stored[s.Job.ID], controller) {
			c.broken("I15", "%s is asked again of job %s, which it has approved", controller, s.ID)
		}
	}
}

// ended checks I13: a review ends as the controllers have said.
func (c *rules) ended(e *store.ReviewEnd) {
	said := c.approvals.said[e.Ref.ID]
	switch e.To {
	case spillway.Rejected:
		refused := false
		for _, allow := range said {
			refused = refused || !allow
		}
		if !refused {
			c.broken("I13", "job %s is rejected, and nobody has refused it", e.Ref.ID)
		}
	case spillway.Admitted, spillway.Pending:
		for _, name := range e.Approved {
			if !said[name] {
				c.broken("I13", "job %s is on record as approved by %s, which has not", e.Ref.ID, name)
			}
		}
		c.approvals.stored[e.Ref.ID] = e.Approved
		if e.To == spillway.Admitted {
			c.approvals.admitted[e.Ref.ID] = true
			c.unapproved(e.Ref.ID)
		}
	default:
	}
}

// unapproved checks I13: a job is admitted when everybody has approved it who must.
func (c *rules) unapproved(id spillway.JobID) {
	job := c.world.jobs[id]
	if c.reloaded() {
		return
	}
	for _, a := range c.world.policy.Approvers(&job.Job.Requirement) {
		if !c.approvals.said[id][a.Name] {
			c.broken("I13", "job %s is admitted, and %s has not approved it", id, a.Name)
		}
	}
}

// starts checks I13: no job begins that has to be admitted first and was not.
func (c *rules) starts(job *spillway.Job) {
	if needs := c.world.policy.Needs(&job.Requirement); needs && c.world.gitlab == nil && !c.reloaded() && !c.approvals.admitted[job.ID] {
		c.broken("I13", "job %s begins without having been admitted", job.ID)
	}
}

// limit is how long a job may be in a state.
func (w *world) limit(state spillway.JobState, job *spillway.Job) time.Duration {
	limits := router.Timeouts{Pending: w.config.Timeouts.Pending, Unmatched: w.config.Timeouts.Unmatched, Assigned: w.config.Timeouts.Assign}
	limit := limits.Of(state, job, true)
	if state == spillway.Routing { // each of its controllers has its deadline
		limit += reviewTTL
		for _, a := range w.policy.Approvers(&job.Requirement) {
			limit += a.Deadline
		}
	}
	return limit
}
