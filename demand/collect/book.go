package collect

import (
	"cmp"
	"iter"
	"time"

	"github.com/spillway-ci/spillway"
)

// The default limits of a book.
const (
	// DefaultMaxJobs bounds the jobs that one source may have [jobs]. 1 million jobs in
	// a book cost about 250 MB; who has more of them pending has another problem.
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

// view is a source's last snapshot. What it says of each job is with the job.
type view struct {
	began   time.Time // of the last snapshot
	since   time.Time // when the oldest part was true: earlier, where a partial snapshot has left jobs as they were
	whole   time.Time // when the last whole snapshot began; zero = there was none
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
	b.resolve(b.job(s.Job))
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
// ignored.
func (b *Book) Snapshot(s Snapshot) {
	v, known := b.views[s.Source]
	if !known {
		v = new(view)
		b.views[s.Source] = v
	} else if s.Began.Before(v.began) {
		return
	}
	told := &telling{view: v, began: s.Began}
	if !b.take(told, s.Jobs) {
		s.Partial, s.Why = true, tooMany(b.limits.Jobs)
	}
	v.began, v.partial, v.why = s.Began, s.Partial, s.Why
	if !s.Partial {
		v.whole, b.missed = s.Began, 0
	}
	if left := b.reconsider(told, s.Partial); left == 0 || !known {
		v.since = s.Began
	}
}

// take notes what a snapshot says of each job; false where it has more of them than
// are allowed, which are left out.
func (b *Book) take(told *telling, jobs iter.Seq[Sighting]) bool {
	if jobs == nil {
		return true
	}
	n := 0
	for s := range jobs {
		if n++; n > b.limits.Jobs {
			return false
		}
		if countable(&s) {
			j, known := b.jobs[s.Job]
			if !known {
				j = &job{key: s.Job}
				b.jobs[j.key] = j
			}
			j.tell(told, &s)
		}
	}
	return true
}

// job is what the book has of a job: a new one, which is not in the book, where it has
// nothing.
func (b *Book) job(key JobKey) *job {
	if j, known := b.jobs[key]; known {
		return j
	}
	return &job{key: key}
}

// reconsider resolves every job that a snapshot may have changed, and returns how many
// a partial one has left as they were.
func (b *Book) reconsider(told *telling, partial bool) (left int) {
	for _, j := range b.jobs {
		if f := j.factOf(told.view); f != nil && f.told != told {
			if partial {
				left++
			} else {
				j.forget(told.view)
			}
		}
		b.resolve(j)
	}
	overtaken := b.overtaken()
	for key, s := range b.sightings {
		if s.At.Before(overtaken) {
			delete(b.sightings, key)
		}
	}
	return left
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
	j, known := b.jobs[key]
	return known && j.facts != nil
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
func (b *Book) resolve(j *job) {
	var best, need Sighting // of no state and without a requirement while there is none
	for f := j.facts; f != nil; f = f.next {
		s := f.sighting(j.key)
		if best.State == "" || compareFacts(&s, &best) > 0 {
			best = s
		}
		if s.Requirement != nil && (need.Requirement == nil || need.At.Before(s.At)) {
			need = s
		}
	}
	if s := b.sightings[j.key]; s != nil && (best.State != "" || !b.void(s)) {
		if need.Requirement == nil && s.Requirement != nil {
			need = *s
		}
		// A sighting of the same time as a view's fact overlays it.
		if best.State == "" || !s.At.Before(best.At) {
			best = *s
		}
	}
	if b.settle(j, &best, &need) {
		b.version++
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
			b.resolve(b.job(key))
		}
	}
}

// beyond reports whether a job is known to have started, or to be over.
func (b *Book) beyond(key JobKey) bool {
	if s, known := b.sightings[key]; known && s.State.Terminal() {
		return true
	}
	j, known := b.jobs[key]
	return known && j.now.stage == stageRunning
}
