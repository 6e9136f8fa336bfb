package admission

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Bounds of the engine.
const (
	// MaxReviews bounds the reviews that one instance has not answered [reviews]: with
	// two it thinks while the next is on its way; more only hide that it is slow.
	MaxReviews = 2
	// MaxReviewBytes bounds what is shown in one review [bytes], unless one job alone is
	// larger: well below the 4 MiB that gRPC's clients take by default.
	MaxReviewBytes = 1 << 20
	// maxLine bounds the jobs that wait at one replica to be shown to one controller
	// [jobs]. What does not fit waits in the queue, where another replica finds it.
	maxLine = 1024
	// maxObserved is the same for a dry_run controller: what does not fit is not shown.
	maxObserved = 1024
	// maxRetired bounds the reviews of an instance that are remembered though their
	// deadline has passed, so that a late verdict is not taken for a lie [reviews].
	maxRetired = 64
	// MaxMoves is how often a job may leave a replica because its controller has gone
	// [attempts]. After that it waits for its deadline there: one that takes each
	// controller down must end.
	MaxMoves = 20
	// MaxInstances bounds the connected instances of all controllers [instances].
	MaxInstances = 1024
)

// InstanceID names one connection of an instance of a controller.
type InstanceID uint64

// Subject is a job as controllers are shown it.
type Subject struct {
	ID       string // unique among all jobs that a controller is shown at a time
	Job      spillway.Job
	Services []string // images beside the job's own
	Ref      string   // branch or tag; of GitLab's jobs
	Path     string   // of the project; of GitLab's jobs
	Stage    string   // of GitLab's jobs
}

// shown is about how many bytes of s a controller is sent.
func (s *Subject) shown(send *Send) int {
	const rest = 1 << 10
	n := rest + len(s.ID) + len(s.Job.Name) + len(s.Job.Image)
	for _, tag := range s.Job.Requirement.Tags {
		n += len(tag)
	}
	if send.Script {
		n += len(s.Job.Script)
	}
	for _, name := range send.Env {
		n += len(name) + len(s.Job.Env[name])
	}
	return n
}

// Item is a job that this replica has claimed for review.
type Item struct {
	Ref      router.JobRef
	Subject  Subject
	Approved []string // the controllers that have approved it already
	// AskedBy is the controller that was shown it and has not answered, AskedFor how long
	// ago the first time was: its deadline goes on. Empty: none was.
	AskedBy  string
	AskedFor time.Duration
}

// Outcome is what became of a job, or of a question.
type Outcome int

// The outcomes.
const (
	Approved  Outcome = iota + 1 // by everybody, or by the one that was asked
	Rejected                     // by Decision.Controller
	TimedOut                     // at Decision.Controller
	HandedOn                     // its next controller is not here: back to the queue, with Approved
	Cancelled                    // nobody waits for it any more
)

// Decision is an outcome. Kind says of what.
type Decision struct {
	Kind       Kind
	Ref        router.JobRef // of a Review
	Question   uint64        // of a Question
	Subject    string        // Subject.ID
	Outcome    Outcome
	Controller string   // whose verdict or silence decided; empty with Approved of a Review
	Reason     string   // a sentence; with Rejected and TimedOut
	Approved   []string // who has approved so far; of a Review
	AskedBy    string   // with HandedOn: as of an Item
	AskedFor   time.Duration
	Took       time.Duration // since it was taken
}

// Kind is why a controller is shown a job.
type Kind int

// The kinds.
const (
	Review      Kind = iota + 1 // a claimed job, which passes its chain
	Question                    // one controller is asked for somebody
	Observation                 // a dry_run controller is shown it
)

// VerdictInfo tells of one verdict that counted.
type VerdictInfo struct {
	Controller string
	Instance   string
	Subject    string
	Allow      bool
	DryRun     bool
	Reason     string
	Took       time.Duration // since the review was sent
}

// Batch is a review for an instance.
type Batch struct {
	Instance InstanceID
	ID       uint64
	Subjects []*Subject
	Due      time.Time
}

// Engine is one replica's book. It has one owner. It holds no clock: every method is
// told the time, and a time before one already seen counts as that one.
//
// A job's way: Take → Plan (a review is sent) → Answer → a decision; or Expire. What
// is decided comes back from the method that decided it, once.
type Engine struct {
	policy    Policy
	now       time.Time
	since     time.Time // when it was made
	jobs      map[spillway.JobID]*entry
	lines     map[string]*line
	instances map[InstanceID]*instance
}

// line is what waits to be shown to one controller, and who could be shown it.
type line struct {
	controller Controller
	waiting    []*entry
	asked      []*entry          // shown and not answered, the earliest due first
	subjects   map[string]*entry // of both, by Subject.ID
	instances  []*instance       // by id
	goodAt     time.Time         // when one of them was last known to do its work
}

// entry is one job before one controller.
type entry struct {
	kind     Kind
	item     *Item
	question uint64
	line     *line
	taken    time.Time
	asked    time.Time // when this controller was first shown it, anywhere; zero: it was not
	due      time.Time // zero: it was not shown yet, and whoever waits for it has time
	shown    bool      // it was shown to some instance
	in       *review   // nil: it waits in line
}

// instance is one connection.
type instance struct {
	id          InstanceID
	name        string
	line        *line
	maxBatch    int
	last        uint64 // batch
	open        []*review
	retired     []*review
	silentSince time.Time // of the first review since its last answer; zero = it owes none
}

// review is a batch that was sent.
type review struct {
	id       uint64
	of       *instance
	sentAt   time.Time
	entries  map[string]*entry // nil: nobody waits for that verdict any more
	answered map[string]bool
	left     int // verdicts that are waited for
}

// NewEngine returns an engine to which nobody is connected.
func NewEngine(now time.Time, p Policy) *Engine {
	e := &Engine{
		now: now, since: now,
		jobs: make(map[spillway.JobID]*entry), lines: make(map[string]*line), instances: make(map[InstanceID]*instance),
	}
	e.SetPolicy(now, p)
	return e
}

// Policy returns the policy in force.
func (e *Engine) Policy() Policy { return e.policy }

// SetPolicy replaces the policy. Jobs under review are handed on, to be looked at
// anew; instances of controllers that are gone are returned, to be ended.
func (e *Engine) SetPolicy(now time.Time, p Policy) (decided []Decision, gone []InstanceID) {
	e.advance(now)
	for _, name := range e.names() {
		decided = append(decided, e.clear(e.lines[name])...)
	}
	e.policy = p
	lines := make(map[string]*line, len(p.controllers))
	for _, c := range p.controllers {
		l := e.lines[c.Name]
		if l == nil {
			l = &line{subjects: make(map[string]*entry)}
		}
		l.controller = c
		lines[c.Name] = l
	}
	e.lines = lines
	for id, i := range e.instances {
		if lines[i.line.controller.Name] != i.line {
			gone = append(gone, id)
			delete(e.instances, id)
			continue
		}
		i.maxBatch = min(i.maxBatch, i.line.controller.Batch)
	}
	slices.Sort(gone)
	return decided, gone
}

// clear ends everything that waits in a line: reviews are handed on, questions and
// observations are called off.
func (e *Engine) clear(l *line) []Decision {
	var decided []Decision
	for _, w := range append(slices.Clone(l.asked), l.waiting...) {
		outcome := Cancelled
		if w.kind == Review {
			outcome = HandedOn
		}
		decided = append(decided, e.settle(w, outcome, "the configuration has changed"))
	}
	return decided
}

func (e *Engine) advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
	}
}

// names lists the controllers, in a fixed order.
func (e *Engine) names() []string { return slices.Sorted(maps.Keys(e.lines)) }

// Held lists the attempts under review here, by job id.
func (e *Engine) Held() []router.JobRef {
	refs := make([]router.JobRef, 0, len(e.jobs))
	for _, w := range e.jobs {
		refs = append(refs, w.item.Ref)
	}
	slices.SortFunc(refs, func(a, b router.JobRef) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}
