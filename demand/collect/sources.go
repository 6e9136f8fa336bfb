package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/demand"
)

// minStaleAfter is the least age at which a board is stale: half a minute without news
// is more than any source's normal delay.
const minStaleAfter = 30 * time.Second

// Demand is a source of waiting jobs. An error means that nothing is known.
type Demand interface {
	Demand(ctx context.Context) (demand.View, error)
}

// SourcesOptions are what Sources are made of. One of Queue and Boards may be nil.
type SourcesOptions struct {
	Queue  Demand      // our own queue
	Boards BoardReader // where the board of GitLab's jobs is read
	Origin string      // of the board's jobs: the URL of the GitLab
	Every  time.Duration
}

// Sources is every source of waiting jobs as one. Its view names the origins of which
// it is a lower bound only, so that a GitLab that is away holds the pools that it
// serves and no others.
type Sources struct {
	o SourcesOptions

	mu struct {
		sync.Mutex
		queue, gitlab SourceStatus
		since         time.Time // when the board was first read
		data          []byte    // of the last board that made sense, as it was written
		board         Board
		classes       []demand.Class // of board
	}
}

// NewSources returns the union of the sources.
func NewSources(o SourcesOptions) *Sources {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	s := &Sources{o: o}
	s.mu.queue.Name, s.mu.gitlab.Name, s.mu.gitlab.Every = "queue", "gitlab", o.Every
	return s
}

// StaleAfter is the age from which a board proves nothing.
func (s *Sources) StaleAfter() time.Duration { return max(3*s.o.Every, minStaleAfter) }

var (
	errNoBoard    = errors.New("no replica shows GitLab's jobs")
	errNoSource   = errors.New("there is no source of jobs")
	errOtherBoard = errors.New("the board is of another GitLab")
)

// Demand reads all sources. Its age is that of the reading: how old each source may be
// is judged here, by its own interval. It is an error only if no source could be read:
// of what one says, a failure of the other doesn't take anything away.
func (s *Sources) Demand(ctx context.Context) (demand.View, error) {
	view := demand.View{At: time.Now()}
	var errs []error
	read := 0
	if s.o.Queue != nil {
		own, err := s.o.Queue.Demand(ctx)
		s.noteQueue(own, err)
		switch {
		case err != nil:
			errs = append(errs, err)
			lowerBound(&view, "", "our own queue could not be read")
		default:
			read++
			view.Classes = own.Classes
			if own.Partial {
				lowerBound(&view, "", "a part of our own queue could not be read")
			}
		}
	}
	if s.o.Boards != nil {
		board, waiting, err := s.readBoard(ctx)
		if err != nil {
			errs = append(errs, err)
			lowerBound(&view, s.o.Origin, sentence(err))
		} else {
			read++
			view.Classes = slices.Concat(view.Classes, waiting)
			view.Listed = map[string]time.Time{s.o.Origin: board.At}
			switch why := s.lacking(board, view.At); {
			case why != "":
				lowerBound(&view, s.o.Origin, why)
			case board.Partial:
				view.Partial, view.LackingPools = true, board.Lacks
			}
		}
	}
	switch {
	case read > 0:
		return view, nil
	case len(errs) > 0:
		return demand.View{}, errors.Join(errs...)
	default:
		return demand.View{}, errNoSource
	}
}

// lowerBound makes the view one of an origin's jobs.
func lowerBound(v *demand.View, origin, why string) {
	v.Partial = true
	if v.Lacking == nil {
		v.Lacking = map[string]string{}
	}
	v.Lacking[origin] = why
}

// lacking says why a board is a lower bound for every pool; empty for one that is fresh
// and whole, or whole but for some pools.
func (s *Sources) lacking(b Board, now time.Time) string {
	age := now.Sub(b.At)
	switch {
	case b.At.IsZero():
		return cmp.Or(b.Why, ErrNothingYet.Error())
	case age > s.StaleAfter():
		return strings.TrimSuffix(fmt.Sprintf("GitLab's jobs are those of %s ago, and may be %s old: %s", age.Round(time.Second), s.StaleAfter(), b.Why), ": ")
	case b.Partial && len(b.Lacks) == 0:
		return cmp.Or(b.Why, "a part of GitLab's jobs could not be read")
	default:
		return ""
	}
}

// Board reads what GitLab has told the replica that asks it; its age is the reader's
// to judge, and nothing in it may be changed. ErrNothingYet: there is none, and GitLab
// could not have been asked since it was first read.
func (s *Sources) Board(ctx context.Context) (Board, error) {
	if s.o.Boards == nil {
		return Board{}, errNoBoard
	}
	b, _, err := s.readBoard(ctx)
	return b, err
}

// readBoard reads the board, and its classes as demand has them.
func (s *Sources) readBoard(ctx context.Context) (Board, []demand.Class, error) {
	data, found, err := s.o.Boards.Board(ctx, BoardName)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.mu.since = firstSet(s.mu.since, now)
	switch {
	case err != nil:
		err = fmt.Errorf("reading the board of GitLab's jobs: %w", err)
	case !found && now.Sub(s.mu.since) <= s.o.Every:
		err = ErrNothingYet
	case !found:
		err = errNoBoard
	}
	if err == nil {
		err = s.learn(data)
	}
	s.mu.gitlab.Calls++
	if err != nil {
		s.mu.gitlab.Err = sentence(err)
		return Board{}, nil, err
	}
	return s.mu.board, s.mu.classes, nil
}

// learn makes the board that is written in data the last one. Most boards are read
// more than once before they change, since a scaler looks every second.
func (s *Sources) learn(data []byte) error {
	if s.mu.data != nil && bytes.Equal(data, s.mu.data) {
		s.mu.gitlab.Err = ""
		return nil
	}
	b, err := decodeBoard(data)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(b.Classes, func(w Waiting) bool { return w.Requirement.Origin != s.o.Origin }) {
		return errOtherBoard // gitlab.url was changed, and the next list is still to come
	}
	notFromTheFuture(&b, time.Now())
	s.mu.data, s.mu.board, s.mu.classes = data, b, classes(b)
	q := &s.mu.gitlab
	q.At, q.Jobs, q.Partial, q.Why, q.Err = b.At, jobsOf(s.mu.classes), b.Partial, b.Why, ""
	return nil
}

// notFromTheFuture has nothing on a board be younger than the board itself: the clock of
// the replica that wrote it may be ahead, and what it says would not get old until then.
func notFromTheFuture(b *Board, now time.Time) {
	if b.At.After(now) {
		b.At = now
	}
	for id, r := range b.Runners {
		if r.At.After(now) {
			r.At = now
			b.Runners[id] = r
		}
	}
}

// classes are the board's classes as demand has them.
func classes(b Board) []demand.Class {
	out := make([]demand.Class, len(b.Classes))
	for i := range b.Classes {
		w := &b.Classes[i]
		out[i] = demand.Class{ID: w.Requirement.Class(), Requirement: w.Requirement, Pending: w.Pending, Oldest: w.Oldest, Waited: w.Waited}
	}
	return out
}

func (s *Sources) noteQueue(v demand.View, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.mu.queue
	q.Calls++
	if err != nil {
		q.Err = sentence(err)
		return
	}
	q.At, q.Jobs, q.Partial, q.Err = v.At, jobsOf(v.Classes), v.Partial, ""
}

// Status is how each source does, by what this replica last read.
func (s *Sources) Status() []SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []SourceStatus
	if s.o.Queue != nil {
		out = append(out, s.mu.queue)
	}
	if s.o.Boards != nil {
		out = append(out, s.mu.gitlab)
	}
	return out
}

var _ Demand = (*Sources)(nil)

// jobsOf adds up the waiting jobs of some classes.
func jobsOf(list []demand.Class) int {
	n := 0
	for i := range list {
		n += list[i].Pending
	}
	return n
}
