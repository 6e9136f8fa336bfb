package collect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/demand"
)

// MaxBoardBytes is the most that a board may take in the store [bytes].
const MaxBoardBytes = 4 << 20

// Board is the pending jobs by class, as the book has them at now, and how many have
// waited for each of the ages, which ascend. Runners and Stale are its reader's to add.
func (b *Book) Board(now time.Time, ages ...time.Duration) Board {
	b.sweep(now)
	board := Board{At: b.began()}
	why := b.lacking()
	var waiting []*class
	for _, c := range b.classes {
		if len(c.pending) > 0 {
			c.refresh()
			waiting = append(waiting, c)
		}
	}
	slices.SortFunc(waiting, compareClasses)
	if extra := len(waiting) - b.limits.Classes; extra > 0 {
		why = append(why, fmt.Sprintf("%d classes of jobs are left out: a board holds %d", extra, b.limits.Classes))
		waiting = waiting[:b.limits.Classes]
	}
	for _, c := range waiting {
		board.Classes = append(board.Classes, c.waiting(now, ages))
	}
	board.Partial, board.Why = len(why) > 0, strings.Join(why, "; ")
	return board
}

// compareClasses puts the largest first: it is kept where there is no room for all.
func compareClasses(a, b *class) int {
	return cmp.Or(
		cmp.Compare(len(b.pending), len(a.pending)),
		cmp.Compare(a.oldest[0].now.since, b.oldest[0].now.since),
		cmp.Compare(a.id, b.id),
	)
}

// began is when the oldest part of the views was true, zero without any.
func (b *Book) began() time.Time {
	var oldest time.Time
	for _, v := range b.views {
		if oldest.IsZero() || v.since.Before(oldest) {
			oldest = v.since
		}
	}
	return oldest
}

// lacking says what keeps the book from knowing all the pending jobs.
func (b *Book) lacking() []string {
	var why []string
	for _, name := range slices.Sorted(maps.Keys(b.views)) {
		if v := b.views[name]; v.partial {
			why = append(why, cmp.Or(v.why, name+" could not be read whole"))
		}
	}
	if b.untold > 0 {
		why = append(why, fmt.Sprintf("what %d pending jobs need is not known yet", b.untold))
	}
	if b.missed > 0 {
		why = append(why, fmt.Sprintf("%d messages about jobs found no room", b.missed))
	}
	return why
}

// Pending is the jobs that wait, those of unknown needs too.
func (b *Book) Pending() int {
	n := b.untold
	for _, c := range b.classes {
		n += len(c.pending)
	}
	return n
}

// State is what the book says of one job; told is false where nobody has said what
// it needs, known is false for a job that neither waits nor runs.
func (b *Book) State(key JobKey) (j Sighting, told, known bool) {
	had, found := b.jobs[key]
	if !found || had.now.stage == stageNone {
		return Sighting{}, false, false
	}
	now := &had.now
	j = Sighting{Job: key, State: now.stage.state(), Since: now.since.time()}
	if now.place != nil {
		j.Runner, j.System = now.place.runner, now.place.system
	}
	return j, now.class != nil, true
}

// Running is the jobs that run on a runner, and on which of its machines, where that
// is known. Runner 0 has those of which nobody has said where they run.
func (b *Book) Running(runner int64) (jobs int, bySystem map[string]int) {
	bySystem = map[string]int{}
	for j := range b.running[runner] {
		if system := j.now.place.system; system != "" {
			bySystem[system]++
		}
	}
	return len(b.running[runner]), bySystem
}

// RunningJobs is the jobs that run on any runner.
func (b *Book) RunningJobs() int {
	n := 0
	for _, jobs := range b.running {
		n += len(jobs)
	}
	return n
}

var errBoardTooLarge = errors.New("the board is too large for the store")

// encodeBoard writes a board in at most limit bytes. What explains goes first, then
// the smallest classes: what is left is a lower bound, and says so.
func encodeBoard(b Board, limit int) ([]byte, error) {
	data, err := json.Marshal(b)
	if err != nil || len(data) <= limit {
		return data, err
	}
	b.Classes = slices.Clone(b.Classes)
	for i := range b.Classes {
		b.Classes[i].Sample = nil
	}
	b.Runners = maps.Clone(b.Runners)
	for id, r := range b.Runners {
		r.Systems = nil
		b.Runners[id] = r
	}
	all, why := len(b.Classes), b.Why
	for {
		data, err = json.Marshal(b)
		if err != nil || len(data) <= limit {
			return data, err
		}
		if len(b.Classes) == 0 {
			return nil, errBoardTooLarge
		}
		b.Classes = b.Classes[:len(b.Classes)/2]
		b.Partial, b.Lacks = true, nil
		b.Why = strings.TrimPrefix(why+fmt.Sprintf("; %d classes of jobs are left out: the board has no room for them", all-len(b.Classes)), "; ")
	}
}

// decodeBoard reads a board as if anybody could have written it. What makes no sense
// in it is left out, and makes it partial.
func decodeBoard(data []byte) (Board, error) {
	if len(data) > MaxBoardBytes {
		return Board{}, errBoardTooLarge
	}
	var b Board
	if err := json.Unmarshal(data, &b); err != nil {
		return Board{}, fmt.Errorf("reading the board: %w", err)
	}
	given := len(b.Classes)
	b.Classes = slices.DeleteFunc(b.Classes, func(w Waiting) bool {
		return w.Pending <= 0 || w.Pending > maxPending || w.Requirement.Validate() != nil
	})
	for i := range b.Classes {
		if w := &b.Classes[i]; len(w.Waited) > MaxAges || !slices.IsSortedFunc(w.Waited, func(a, b demand.Waited) int { return cmp.Compare(a.For, b.For) }) {
			w.Waited = nil
		}
	}
	if left := given - len(b.Classes); left > 0 {
		b.Partial, b.Lacks = true, nil
		b.Why = strings.TrimPrefix(fmt.Sprintf("%s; %d classes of the board make no sense", b.Why, left), "; ")
	}
	return b, nil
}

// maxPending bounds what a board is believed to say of one class [jobs].
const maxPending = 1 << 30

func tooMany(limit int) string {
	return fmt.Sprintf("there are more than %d jobs: the rest is not counted", limit)
}
