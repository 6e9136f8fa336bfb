package collect

import (
	"cmp"
	"time"

	"github.com/spillway-ci/spillway"
)

// The default limits of a book.
const (
	// DefaultMaxJobs bounds the jobs that one source may have [jobs]. 1 million jobs in
	// a book cost about 400 MB; who has more of them pending has another problem.
	DefaultMaxJobs = 1_000_000
	// DefaultMaxSightings bounds the sightings that no snapshot has overtaken [sightings].
	DefaultMaxSightings = 100_000
	// DefaultMaxClasses bounds the classes of a board [classes].
	DefaultMaxClasses = 10_000
	// DefaultRemember is how long a sighting that a job is over is remembered where no
	// snapshot overtakes it. It must be longer than the slowest fetch, so that a fetch
	// that began before the end of a job can't bring it back.
	DefaultRemember = time.Hour
)

// Limits bound a book. A zero field is its default.
type Limits struct {
	Jobs      int // of one snapshot
	Sightings int
	Classes   int
	Remember  time.Duration
	// Unconfirmed is how long a sighting of a job that no snapshot names counts. 0: until
	// a whole snapshot that began after it overrules it. It is for books that get no
	// snapshots, where nothing else would end a job whose teller has died.
	Unconfirmed time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Jobs = cmp.Or(l.Jobs, DefaultMaxJobs)
	l.Sightings = cmp.Or(l.Sightings, DefaultMaxSightings)
	l.Classes = cmp.Or(l.Classes, DefaultMaxClasses)
	l.Remember = cmp.Or(l.Remember, DefaultRemember)
	return l
}

// Book unites what the sources say of each job. What it says of one depends on two
// things only, whatever the order in which they came: the last view of each source
// and the newest sighting of the job.
//
//   - The newest fact wins. The facts of a snapshot are as old as the beginning of its
//     fetch, so that a sighting of that time or later overlays them.
//   - A job that no source's last view names is as the newest sighting says, unless
//     a whole snapshot began after that: then it is over.
//   - What a job needs doesn't change. A snapshot knows it best; otherwise who told it
//     first.
//
// Sightings that every source known so far has overtaken are forgotten.
//
// A Book has no clock and does no I/O; its owner calls it from one goroutine.
type Book struct {
	limits    Limits
	views     map[string]*view
	sightings map[JobKey]*Sighting
	missed    int // sightings that found no room since the last whole snapshot

	standing
	version uint64 // grows with each change of what the book says
}

// view is all that a source says.
type view struct {
	began   time.Time // of the last snapshot
	since   time.Time // when the oldest part was true: earlier, where a partial snapshot has left jobs as they were
	whole   time.Time // when the last whole snapshot began; zero = there was none
	jobs    map[JobKey]*Sighting
	partial bool
	why     string
}

// NewBook returns an empty book.
func NewBook(l Limits) *Book {
	return &Book{
		limits:    l.withDefaults(),
		views:     map[string]*view{},
		sightings: map[JobKey]*Sighting{},
		standing:  newStanding(),
	}
}

// Version grows with each change of what the book says of any job.
func (b *Book) Version() uint64 { return b.version }

// Saw takes one sighting in.
func (b *Book) Saw(s Sighting) {
	if !countable(&s) {
		return
	}
	last, known := b.sightings[s.Job]
	switch {
	case known && compareFacts(&s, last) < 0:
		learn(last, &s)
	case known:
		if last.Requirement != nil {
			s.Requirement = last.Requirement
		}
		learn(&s, last)
		b.sightings[s.Job] = &s
	case s.At.Before(b.overtaken()):
		return
	case len(b.sightings) >= b.limits.Sightings:
		b.missed++
		b.version++
		return
	default:
		b.sightings[s.Job] = &s
	}
	b.resolve(s.Job)
}

// countable reports whether a sighting is about a job in a state that means
// something here.
func countable(s *Sighting) bool {
	id := len(s.Job.ID)
	return id > 0 && id <= spillway.MaxJobIDBytes && (s.State == spillway.Pending || s.State == spillway.Running || s.State.Terminal())
}

// learn adds to the sighting that stays what only the other one knows. What a job
// needs was told first by whichever of them the book had first.
func learn(to, from *Sighting) {
	if to.Requirement == nil {
		to.Requirement = from.Requirement
	}
	if to.Since.IsZero() {
		to.Since = from.Since
	}
	to.Project = cmp.Or(to.Project, from.Project)
	to.Runner = cmp.Or(to.Runner, from.Runner)
	to.System = cmp.Or(to.System, from.System)
}

// Snapshot takes all that a source says. One that began before the source's last is
// ignored. The book keeps the jobs given; the caller doesn't touch them any more.
func (b *Book) Snapshot(s Snapshot) {
	v, known := b.views[s.Source]
	if !known {
		v = &view{jobs: map[JobKey]*Sighting{}}
		b.views[s.Source] = v
	} else if s.Began.Before(v.began) {
		return
	}
	if len(s.Jobs) > b.limits.Jobs {
		s.Jobs, s.Partial, s.Why = s.Jobs[:b.limits.Jobs], true, tooMany(b.limits.Jobs)
	}
	before := v.jobs
	v.jobs = make(map[JobKey]*Sighting, len(s.Jobs))
	for i := range s.Jobs {
		if job := &s.Jobs[i]; countable(job) {
			job.At = s.Began
			v.jobs[job.Job] = job
		}
	}
	v.began, v.partial, v.why = s.Began, s.Partial, s.Why
	listed := len(v.jobs)
	if s.Partial {
		for key, job := range before {
			if _, again := v.jobs[key]; !again {
				v.jobs[key] = job
			}
		}
	} else {
		v.whole, b.missed = s.Began, 0
	}
	if len(v.jobs) == listed || !known {
		v.since = s.Began
	}
	b.reconsider(before, v.jobs)
}

// reconsider resolves every job that a new view may have changed.
func (b *Book) reconsider(before, now map[JobKey]*Sighting) {
	for key := range before {
		if _, again := now[key]; !again {
			b.resolve(key)
		}
	}
	for key := range now {
		b.resolve(key)
	}
	overtaken := b.overtaken()
	for key, s := range b.sightings {
		if _, named := now[key]; !named {
			b.resolve(key)
		}
		if s.At.Before(overtaken) {
			delete(b.sightings, key)
		}
	}
}

// overtaken is the time before which no sighting can matter any more: each source
// has told everything since. Zero = there is none.
func (b *Book) overtaken() time.Time {
	var oldest time.Time
	for _, v := range b.views {
		if v.whole.IsZero() {
			return time.Time{}
		}
		if oldest.IsZero() || v.whole.Before(oldest) {
			oldest = v.whole
		}
	}
	return oldest
}

func (b *Book) named(key JobKey) bool {
	for _, v := range b.views {
		if _, named := v.jobs[key]; named {
			return true
		}
	}
	return false
}

// void reports whether a whole snapshot began after the sighting, so that a job
// which is named nowhere is over.
func (b *Book) void(s *Sighting) bool {
	for _, v := range b.views {
		if s.At.Before(v.whole) {
			return true
		}
	}
	return false
}

// resolve works out what the book says of a job now.
func (b *Book) resolve(key JobKey) {
	var best, need *Sighting
	for _, v := range b.views {
		fact, named := v.jobs[key]
		if !named {
			continue
		}
		if best == nil || compareFacts(fact, best) > 0 {
			best = fact
		}
		if fact.Requirement != nil && (need == nil || need.At.Before(fact.At)) {
			need = fact
		}
	}
	if s := b.sightings[key]; s != nil && (best != nil || !b.void(s)) {
		if need == nil && s.Requirement != nil {
			need = s
		}
		// A sighting of the same time as a view's fact overlays it.
		if best == nil || !s.At.Before(best.At) {
			best = s
		}
	}
	if b.settle(key, best, need) {
		b.version++
	}
}

// compareFacts orders facts of one kind: by time; of two of the same time the one
// that is further on its way is the newer one, since no job goes back.
func compareFacts(a, b *Sighting) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a.State), rank(b.State)))
}

func rank(s spillway.JobState) int {
	switch s {
	case spillway.Pending:
		return 0
	case spillway.Running:
		return 1
	default:
		return 2
	}
}

// sweep forgets the sightings that are too old to mean anything at now.
func (b *Book) sweep(now time.Time) {
	for key, s := range b.sightings {
		age := now.Sub(s.At)
		over := s.State.Terminal() && age > b.limits.Remember
		lone := b.limits.Unconfirmed > 0 && !s.State.Terminal() && age > b.limits.Unconfirmed && !b.named(key)
		if over || lone {
			delete(b.sightings, key)
			b.resolve(key)
		}
	}
}

// beyond reports whether a job is known to have started, or to be over.
func (b *Book) beyond(key JobKey) bool {
	if s, known := b.sightings[key]; known && s.State.Terminal() {
		return true
	}
	j, known := b.jobs[key]
	return known && j.state != spillway.Pending
}
