package collect

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
)

const origin = "https://gitlab.example"

var epoch = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a time n seconds after the beginning of a test.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

func key(id int) JobKey {
	return JobKey{Origin: origin, ID: spillway.JobID(strconv.Itoa(id))}
}

func tagged(tags ...string) *spillway.Requirement {
	return &spillway.Requirement{Origin: origin, Tags: tags}
}

// pending, running and over are sightings of job id at a time.
func pending(id, t int, tags ...string) Sighting {
	s := Sighting{Job: key(id), State: spillway.Pending, Project: 7, Since: at(0), At: at(t)}
	if len(tags) > 0 {
		s.Requirement = tagged(tags...)
	}
	return s
}

func running(id, t int, runner int64, system string) Sighting {
	return Sighting{Job: key(id), State: spillway.Running, Runner: runner, System: system, At: at(t)}
}

func over(id, t int) Sighting { return Sighting{Job: key(id), State: spillway.Canceled, At: at(t)} }

func snapshot(t int, jobs ...Sighting) Snapshot {
	return Snapshot{Source: "api", Began: at(t), Ended: at(t + 1), Jobs: slices.Values(jobs)}
}

func (b *Book) counts(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, w := range b.Board(at(0)).Classes {
		out[fmt.Sprint(w.Requirement.Tags)] = w.Pending
	}
	return out
}

func TestAJobThatEverySourceTellsOfIsCountedOnce(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10, pending(1, 10, "a"), pending(2, 10, "a")))
	b.Saw(pending(1, 11, "a")) // we hold it
	b.Saw(pending(1, 11))      // and a hook tells of it
	b.Saw(pending(3, 12, "b"))
	require.Equal(t, map[string]int{"[a]": 2, "[b]": 1}, b.counts(t))
	require.Equal(t, 3, b.Pending())
}

func TestASightingOverlaysEveryListThatBeganBeforeIt(t *testing.T) {
	b := NewBook(Limits{})
	b.Saw(running(1, 10, 5, "m"))
	b.Snapshot(snapshot(10, pending(1, 10, "a"))) // began at the same time
	require.Empty(t, b.counts(t))
	b.Snapshot(snapshot(11, pending(1, 11, "a")))
	require.Equal(t, map[string]int{"[a]": 1}, b.counts(t))
}

func TestWhatIsOverIsNotBroughtBackByAnOlderList(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(5, pending(1, 5, "a")))
	b.Saw(over(1, 12))
	b.Snapshot(snapshot(10, pending(1, 10, "a"))) // was under way when the job ended
	require.Empty(t, b.counts(t))
	b.Saw(pending(1, 11, "a")) // delivered late
	require.Empty(t, b.counts(t))
	b.Snapshot(snapshot(20))
	b.Saw(pending(1, 11, "a")) // delivered later still
	require.Empty(t, b.counts(t))
}

func TestC10_CanceledWithoutAnEventTheNextListRemovesIt(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10, pending(1, 10, "a")))
	b.Saw(pending(2, 11, "a"))
	require.Equal(t, map[string]int{"[a]": 2}, b.counts(t))
	b.Snapshot(snapshot(20))
	require.Empty(t, b.counts(t))
	require.Zero(t, b.Pending())
}

func TestAPartialListRemovesNothing(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10, pending(1, 10, "a"), pending(2, 10, "a")))
	part := snapshot(20, pending(3, 20, "a"))
	part.Partial, part.Why = true, "a page is missing"
	b.Snapshot(part)
	require.Equal(t, map[string]int{"[a]": 3}, b.counts(t))
	board := b.Board(at(20))
	require.True(t, board.Partial)
	require.Equal(t, "a page is missing", board.Why)
	b.Snapshot(snapshot(30, pending(3, 30, "a")))
	require.False(t, b.Board(at(30)).Partial)
	require.Equal(t, map[string]int{"[a]": 1}, b.counts(t))
}

// What has begun since a list is still among the jobs that a partial one leaves as they
// were: the board is as old as they are.
func TestAPartialListMakesNothingYounger(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10, pending(1, 10, "a")))
	part := snapshot(20, pending(2, 20, "a"))
	part.Partial = true
	b.Snapshot(part)
	require.Equal(t, at(10), b.Board(at(20)).At, "job 1 was seen then")
	part = snapshot(30, pending(1, 30, "a"), pending(2, 30, "a"))
	part.Partial = true
	b.Snapshot(part)
	require.Equal(t, at(30), b.Board(at(30)).At)
	b.Snapshot(snapshot(40))
	require.Equal(t, at(40), b.Board(at(40)).At)
}

func TestAJobOfUnknownNeedsIsNotCountedAndMakesThePartialBoard(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10))
	require.False(t, b.Board(at(10)).Partial)
	b.Saw(pending(1, 11))
	board := b.Board(at(11))
	require.Empty(t, board.Classes)
	require.True(t, board.Partial)
	require.Contains(t, board.Why, "what 1 pending jobs need is not known yet")
	b.Saw(pending(1, 12, "a"))
	b.Saw(pending(1, 13)) // says less, and takes nothing away
	board = b.Board(at(13))
	require.False(t, board.Partial)
	require.Equal(t, 1, board.Classes[0].Pending)
	b.Snapshot(snapshot(20, Sighting{Job: key(1), State: spillway.Pending})) // the list could not find out this time
	require.Equal(t, map[string]int{"[a]": 1}, b.counts(t))
}

func TestAListKnowsBestWhatAJobNeeds(t *testing.T) {
	b := NewBook(Limits{})
	b.Saw(pending(1, 9, "as", "the", "pool"))
	b.Snapshot(snapshot(10, pending(1, 10, "a")))
	b.Saw(pending(1, 11, "as", "the", "pool")) // held
	require.Equal(t, map[string]int{"[a]": 1}, b.counts(t))
}

func TestRunningJobsByRunnerAndMachine(t *testing.T) {
	b := NewBook(Limits{})
	b.Snapshot(snapshot(10, running(1, 10, 5, "m1"), running(2, 10, 5, "m2"), running(3, 10, 5, ""), running(4, 10, 6, "m1"), pending(9, 10, "a")))
	b.Saw(running(2, 11, 5, "")) // a hook says no machine
	b.Saw(over(1, 11))
	n, systems := b.Running(5)
	require.Equal(t, 2, n)
	require.Equal(t, map[string]int{"m2": 1}, systems)
	n, systems = b.Running(7)
	require.Zero(t, n)
	require.Empty(t, systems)
	require.Equal(t, 3, b.RunningJobs())
}

func TestTheBookIsBoundedAndSaysWhatItLeftOut(t *testing.T) {
	b := NewBook(Limits{Jobs: 2, Sightings: 2, Classes: 2})
	b.Snapshot(snapshot(10, pending(1, 10, "a"), pending(2, 10, "a")))
	require.False(t, b.Board(at(10)).Partial, "the limit itself is allowed")
	b.Snapshot(snapshot(11, pending(1, 11, "a"), pending(2, 11, "a"), pending(3, 11, "a")))
	require.Contains(t, b.Board(at(11)).Why, "more than 2 jobs")
	b.Snapshot(snapshot(12, pending(1, 12, "a")))
	b.Saw(pending(4, 13, "b"))
	b.Saw(pending(5, 13, "a"))
	require.False(t, b.Board(at(13)).Partial)
	b.Saw(pending(6, 13, "a"))
	require.Contains(t, b.Board(at(13)).Why, "1 messages about jobs found no room")
	require.Equal(t, map[string]int{"[a]": 2, "[b]": 1}, b.counts(t))
	b.Snapshot(snapshot(20, pending(1, 20, "a"), pending(2, 20, "b")))
	require.False(t, b.Board(at(20)).Partial, "a whole list makes up for it")
	b.Saw(pending(7, 21, "c"))
	board := b.Board(at(21))
	require.Len(t, board.Classes, 2)
	require.Contains(t, board.Why, "1 classes of jobs are left out")
}

func TestASightingThatNobodyConfirmsRunsOut(t *testing.T) {
	b := NewBook(Limits{Unconfirmed: time.Minute, Remember: time.Hour})
	b.Saw(pending(1, 0, "a"))
	b.Saw(over(2, 0))
	require.Len(t, b.Board(at(60)).Classes, 1)
	require.Empty(t, b.Board(at(61)).Classes)
	require.Len(t, b.sightings, 1)
	b.Board(at(3601))
	require.Empty(t, b.sightings)
}

func TestSamplesAreTheOldestAndBounded(t *testing.T) {
	b := NewBook(Limits{})
	var jobs []Sighting
	for id := 100; id > 0; id-- {
		s := pending(id, 10, "a")
		s.Since = at(-id % 50)
		jobs = append(jobs, s)
	}
	b.Snapshot(snapshot(10, jobs...))
	w := b.Board(at(10)).Classes[0]
	require.Len(t, w.Sample, MaxSample)
	require.Equal(t, []spillway.JobID{"49", "99", "48"}, w.Sample[:3])
	require.Equal(t, at(-49), w.Oldest)
	require.Equal(t, 100, w.Pending)
	b.Saw(over(49, 11))
	require.Equal(t, spillway.JobID("99"), b.Board(at(11)).Classes[0].Sample[0])
}

// history is the oracle: all that was ever said, from which it works out anew what is
// so. It forgets nothing and indexes nothing.
type history struct {
	sightings []Sighting
	snapshots []Snapshot // those that were not older than their source's last
}

func (h *history) take(s Snapshot) {
	for _, old := range h.snapshots {
		if old.Source == s.Source && s.Began.Before(old.Began) {
			return
		}
	}
	h.snapshots = append(h.snapshots, s)
}

// now is the newest fact about a job, by the words of the documentation of Book; nil
// if it is over or unknown.
func (h *history) now(job JobKey) *Sighting {
	newer := func(a, b *Sighting) bool {
		return b == nil || a.At.After(b.At) || (a.At.Equal(b.At) && stageOf(a.State) >= stageOf(b.State))
	}
	views := map[string]*Sighting{}
	whole := time.Time{}
	for _, s := range h.snapshots {
		if !s.Partial {
			views[s.Source] = nil
			if s.Began.After(whole) {
				whole = s.Began
			}
		}
		if s.Jobs == nil {
			continue
		}
		for fact := range s.Jobs {
			if fact.Job == job {
				fact.At = s.Began
				views[s.Source] = &fact
			}
		}
	}
	var listed, seen *Sighting
	for _, fact := range views {
		if fact != nil && newer(fact, listed) {
			listed = fact
		}
	}
	for i := range h.sightings {
		if s := &h.sightings[i]; s.Job == job && newer(s, seen) {
			seen = s
		}
	}
	best := listed
	switch {
	case seen == nil:
	case listed == nil && !seen.At.Before(whole), listed != nil && !seen.At.Before(listed.At):
		best = seen
	}
	if best == nil || best.State.Terminal() {
		return nil
	}
	return best
}

const oracleJobs = 4

func drawSighting(t *rapid.T) Sighting {
	id := rapid.IntRange(1, oracleJobs).Draw(t, "job")
	when := rapid.IntRange(0, 20).Draw(t, "at")
	switch rapid.IntRange(0, 2).Draw(t, "state") {
	case 0:
		s := pending(id, when)
		if rapid.Bool().Draw(t, "told") {
			s.Requirement = tagged(strconv.Itoa(id))
		}
		return s
	case 1:
		return running(id, when, int64(id), "m"+strconv.Itoa(id))
	default:
		return over(id, when)
	}
}

func drawSnapshot(t *rapid.T, sources []string) Snapshot {
	s := Snapshot{
		Source: rapid.SampledFrom(sources).Draw(t, "source"),
		Began:  at(rapid.IntRange(0, 20).Draw(t, "began")), Partial: rapid.IntRange(0, 3).Draw(t, "partial") == 0,
	}
	var jobs []Sighting
	for id := 1; id <= oracleJobs; id++ {
		switch rapid.IntRange(0, 2).Draw(t, "listed") {
		case 0:
			jobs = append(jobs, pending(id, 0, strconv.Itoa(id)))
		case 1:
			jobs = append(jobs, running(id, 0, int64(id), "m"+strconv.Itoa(id)))
		}
	}
	s.Jobs = slices.Values(jobs)
	return s
}

// Whatever the sources say and in whatever order it comes: the newest fact wins, and
// each job is counted once.
func TestTheNewestFactWins(t *testing.T) {
	stood := 0
	rapid.Check(t, func(t *rapid.T) {
		book, h := NewBook(Limits{}), &history{}
		sources := []string{"api"}
		if rapid.Bool().Draw(t, "two sources") { // known from the beginning: what all have overtaken is forgotten
			sources = append(sources, "other")
			for _, name := range sources {
				h.take(Snapshot{Source: name, Began: at(-1)})
				book.Snapshot(Snapshot{Source: name, Began: at(-1)})
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "snapshot") {
				s := drawSnapshot(t, sources)
				h.take(s)
				book.Snapshot(s)
			} else {
				s := drawSighting(t)
				h.sightings = append(h.sightings, s)
				book.Saw(s)
			}
			stood += requireSame(t, book, h)
		}
	})
	require.Positive(t, stood, "no job ever waited or ran: the property was not tested")
}

func requireSame(t *rapid.T, book *Book, h *history) (standing int) {
	waiting, untold := 0, 0
	for id := 1; id <= oracleJobs; id++ {
		want := h.now(key(id))
		got, told, known := book.State(key(id))
		require.Equal(t, want != nil, known, "job %d: %v", id, want)
		jobs, systems := book.Running(int64(id))
		if want == nil {
			require.Zero(t, jobs)
			continue
		}
		standing++
		require.Equal(t, want.State, got.State, "job %d", id)
		if want.State == spillway.Running {
			require.Equal(t, 1, jobs)
			require.Equal(t, map[string]int{"m" + strconv.Itoa(id): 1}, systems)
			continue
		}
		require.Zero(t, jobs)
		waiting++
		if !told {
			untold++
		}
	}
	require.Equal(t, waiting, book.Pending())
	board := book.Board(at(20))
	for _, w := range board.Classes {
		require.Equal(t, 1, w.Pending, "each job has a class of its own here")
		require.Equal(t, []spillway.JobID{spillway.JobID(w.Requirement.Tags[0])}, w.Sample)
	}
	require.Len(t, board.Classes, waiting-untold)
	return standing
}

// Nothing piles up: after a whole snapshot of each source, only what is named or newer
// is remembered.
func TestOvertakenSightingsAreForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(Limits{})
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			b.Saw(drawSighting(t))
		}
		b.Snapshot(Snapshot{Source: "api", Began: at(15)})
		for _, s := range b.sightings {
			require.False(t, s.At.Before(at(15)))
		}
		b.Snapshot(Snapshot{Source: "api", Began: at(21)})
		require.Empty(t, b.sightings)
		require.Empty(t, b.jobs)
		require.Empty(t, b.classes)
		require.Empty(t, b.running)
	})
}
