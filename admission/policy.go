package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Limits of a policy.
const (
	// MaxControllers bounds the controllers of a policy [controllers]: each may have to
	// be waited for.
	MaxControllers = 32
	// MaxNameBytes bounds a controller's name [bytes].
	MaxNameBytes = 63
	// MaxScopeIDs bounds the groups or projects of one controller [ids].
	MaxScopeIDs = 10_000
	// MaxEnvNames bounds the variables that one controller is shown [names].
	MaxEnvNames = 64
	// MinDeadline and MaxDeadline bound what a controller may take for a verdict. Below
	// the first a healthy one on a slow network would fail jobs; above the second a job
	// waits longer than anybody looks.
	MinDeadline = 100 * time.Millisecond
	MaxDeadline = time.Hour
	// MaxBatch bounds the jobs of one review [jobs].
	MaxBatch = 256
)

// The defaults of a controller.
const (
	// DefaultDeadline: shorter fails jobs while a controller restarts; longer lets a job
	// wait for one that is gone longer than a person waits for a page.
	DefaultDeadline = 30 * time.Second
	// DefaultBatch is the jobs of one review [jobs]: enough that a round trip is not what
	// bounds a storm, few enough that one slow job delays few others.
	DefaultBatch = 32
)

// Scope says whose jobs a controller is for. The order of scopes is the order in which
// they are asked.
type Scope string

// The scopes.
const (
	Instance Scope = "instance" // every job
	Group    Scope = "group"    // jobs of projects in its groups, or in subgroups of them
	Project  Scope = "project"  // jobs of its projects
)

// scopes is their order.
var scopes = []Scope{Instance, Group, Project}

// Controller is one configured controller. Any number of instances of it may connect.
type Controller struct {
	Name     string // a-z, 0-9, - and _
	Scope    Scope
	Groups   []int64 // of scope group
	Projects []int64 // of scope project
	Deadline time.Duration
	DryRun   bool // asked and recorded, and not obeyed
	Batch    int  // jobs in one review
	Send     Send
}

// Send is what a controller is shown of a job besides what describes it.
type Send struct {
	Script bool
	Env    []string // names of variables
}

// validate reports what is wrong with c by itself.
func (c *Controller) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{spillway.ErrInvalid}, args...)...))
		}
	}
	check(ValidName(c.Name), "%.80q can't name a controller: use 1 to %d of a-z, 0-9, - and _", c.Name, MaxNameBytes)
	check(slices.Contains(scopes, c.Scope), "scope %.40q: use instance, group or project", c.Scope)
	check((len(c.Groups) > 0) == (c.Scope == Group), "name groups if, and only if, the scope is group")
	check((len(c.Projects) > 0) == (c.Scope == Project), "name projects if, and only if, the scope is project")
	check(len(c.Groups) <= MaxScopeIDs && len(c.Projects) <= MaxScopeIDs, "at most %d groups or projects are allowed", MaxScopeIDs)
	check(MinDeadline <= c.Deadline && c.Deadline <= MaxDeadline, "a deadline of %s: use %s to %s", c.Deadline, MinDeadline, MaxDeadline)
	check(1 <= c.Batch && c.Batch <= MaxBatch, "a batch of %d jobs: use 1 to %d", c.Batch, MaxBatch)
	check(len(c.Send.Env) <= MaxEnvNames, "%d variables, at most %d are allowed", len(c.Send.Env), MaxEnvNames)
	return errors.Join(errs...)
}

// ValidName reports whether a controller may be called s.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func (c *Controller) applies(r *spillway.Requirement) bool {
	switch c.Scope {
	case Group:
		return slices.ContainsFunc(c.Groups, func(id int64) bool { return slices.Contains(r.Groups, id) })
	case Project:
		return r.Project != 0 && slices.Contains(c.Projects, r.Project)
	default:
		return true
	}
}

// Policy is which controllers there are. It is a value; the zero value asks nobody.
type Policy struct {
	controllers []Controller // in the order in which they are asked
}

// NewPolicy returns the policy of the controllers, or every mistake in them, joined.
func NewPolicy(controllers []Controller) (Policy, error) {
	var errs []error
	if len(controllers) > MaxControllers {
		errs = append(errs, fmt.Errorf("%w: %d controllers, at most %d are allowed", spillway.ErrInvalid, len(controllers), MaxControllers))
	}
	p := Policy{controllers: slices.Clone(controllers)}
	seen := make(map[string]bool, len(controllers))
	for i := range p.controllers {
		c := &p.controllers[i]
		c.Deadline, c.Batch = cmp.Or(c.Deadline, DefaultDeadline), cmp.Or(c.Batch, DefaultBatch)
		if err := c.validate(); err != nil {
			errs = append(errs, fmt.Errorf("controller %.80q: %w", c.Name, err))
		}
		if seen[c.Name] {
			errs = append(errs, fmt.Errorf("%w: two controllers are named %.80q", spillway.ErrInvalid, c.Name))
		}
		seen[c.Name] = true
	}
	slices.SortStableFunc(p.controllers, func(a, b Controller) int {
		return cmp.Compare(slices.Index(scopes, a.Scope), slices.Index(scopes, b.Scope))
	})
	return p, errors.Join(errs...)
}

// Controllers lists the controllers in the order in which they are asked. Do not change
// them.
func (p Policy) Controllers() []Controller { return p.controllers }

// Controller returns the controller of a name.
func (p Policy) Controller(name string) (Controller, bool) {
	for i := range p.controllers {
		if p.controllers[i].Name == name {
			return p.controllers[i], true
		}
	}
	return Controller{}, false
}

// Stage is the controllers of one scope that a job needs.
type Stage struct {
	Scope       Scope
	Controllers []Controller // in the order in which they are asked, dry_run ones too
}

// Chain lists the stages that a job with this requirement passes, in their order; none
// for a job that nobody is asked about.
func (p Policy) Chain(r *spillway.Requirement) []Stage {
	var chain []Stage
	for i := range p.controllers {
		c := p.controllers[i]
		if !c.applies(r) {
			continue
		}
		if len(chain) == 0 || chain[len(chain)-1].Scope != c.Scope {
			chain = append(chain, Stage{Scope: c.Scope})
		}
		last := &chain[len(chain)-1]
		last.Controllers = append(last.Controllers, c)
	}
	return chain
}

// Needs reports whether a job with this requirement needs anybody's approval.
func (p Policy) Needs(r *spillway.Requirement) bool {
	for i := range p.controllers {
		if c := &p.controllers[i]; !c.DryRun && c.applies(r) {
			return true
		}
	}
	return false
}

// Approvers lists whose approval a job with this requirement needs, in order.
func (p Policy) Approvers(r *spillway.Requirement) []Controller { return p.pick(r, false) }

// Observers lists the dry_run controllers that are shown such a job, in order.
func (p Policy) Observers(r *spillway.Requirement) []Controller { return p.pick(r, true) }

func (p Policy) pick(r *spillway.Requirement, dryRun bool) []Controller {
	var list []Controller
	for i := range p.controllers {
		if c := &p.controllers[i]; c.DryRun == dryRun && c.applies(r) {
			list = append(list, *c)
		}
	}
	return list
}

// Next returns the first controller that a job needs and that has not approved it; ok
// is false when there is none.
func (p Policy) Next(r *spillway.Requirement, approved []string) (next Controller, ok bool) {
	for _, c := range p.Approvers(r) {
		if !slices.Contains(approved, c.Name) {
			return c, true
		}
	}
	return Controller{}, false
}

// Sort splits what the queue says of a class into the jobs that may be given to a
// machine (Pending) and those that first need approval (Unadmitted). Sorting twice is
// sorting once.
func (p Policy) Sort(c router.ClassCount) router.ClassCount {
	if p.Needs(&c.Requirement) {
		c.Unadmitted += c.Pending - c.Admitted
		c.Pending, c.Waited = c.Admitted, nil
	}
	return c
}

// Absence is a controller that has been out for its deadline: jobs of a class that
// wait for it, and have for as long, fail.
type Absence struct {
	Controller Controller
	Approvers  []string      // of the class, in order
	Out        time.Duration // how long it has been out at least
}

// Absent lists the controllers of a class that are out at now. goodAt says when each
// was last known to answer, or to be connected without being asked anything, at any
// replica; since when this replica has looked, at the earliest.
func (p Policy) Absent(now, since time.Time, r *spillway.Requirement, goodAt map[string]time.Time) []Absence {
	var list []Absence
	approvers := p.Approvers(r)
	names := make([]string, len(approvers))
	for i := range approvers {
		names[i] = approvers[i].Name
	}
	for _, c := range approvers {
		last := since
		if at := goodAt[c.Name]; at.After(last) {
			last = at
		}
		if out := now.Sub(last); out >= c.Deadline {
			list = append(list, Absence{Controller: c, Approvers: names, Out: out})
		}
	}
	return list
}
