package ec2asg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// turnMargin is how long before its deadline a write that has not had its turn gives
// up: there must be time to send it, and to tell that it was not sent. Later, and
// the control plane could not know.
const turnMargin = time.Second

// longestYield bounds how long looks do without what can wait.
const longestYield = 30 * time.Second

// line is where writes wait for their turn, in order of arrival. The first in line
// alone waits for the call budget. So a read, which others wait for, is never behind
// more than one write; and it is known who comes next, so that one read serves them
// all.
type line struct {
	front chan struct{} // holds one: who is at the front
	mu    struct {
		sync.Mutex
		waiting []string  // groups, in order
		away    []string  // groups that were sent away and will be back
		back    time.Time // when the last that was sent away will have come back
		free    time.Time // when a look last found nobody waiting
	}
}

func newLine() *line { return &line{front: make(chan struct{}, 1)} }

// names are the next groups in line and those that will be back, as many as a call
// can take.
func (l *line) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.Concat(l.mu.waiting, l.mu.away)
	return next[:min(namesPerCall, len(next))]
}

// crowded reports whether writes wait, or will be back soon, so that what can wait
// gives way to them; but for longestYield at most.
func (l *line) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.mu.waiting) == 0 && !now.Before(l.mu.back.Add(turnMargin)) {
		l.mu.free, l.mu.away = now, nil
		return false
	}
	return now.Sub(l.mu.free) < longestYield
}

// sentAway gives a write that has to go a time to come back: each its own, so that
// those who go together do not come back together.
func (l *line) sentAway(least, apart time.Duration) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	back := l.mu.back.Add(apart)
	if soonest := now.Add(max(least, apart)); back.Before(soonest) {
		back = soonest
	}
	back = now.Add(min(back.Sub(now), longestPause)) // with a longer one the pool would cool off
	l.mu.back = back
	return back.Sub(now)
}

func (l *line) enter(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = append(l.mu.waiting, name)
	l.mu.away = slices.DeleteFunc(l.mu.away, func(other string) bool { return other == name })
}

// leave takes a group out of the line. One that was sent away will be back.
func (l *line) leave(name string, sentAway bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sentAway && !slices.Contains(l.mu.away, name) {
		l.mu.away = append(l.mu.away, name)
	}
	if i := slices.Index(l.mu.waiting, name); i >= 0 { // of the same name it doesn't matter which
		l.mu.waiting = slices.Delete(l.mu.waiting, i, i+1)
	}
}

// turn waits until a write to a group may be sent, and calls look then, while nobody
// else can get ahead. Whatever error it returns, nothing was sent.
func (s *session) turn(ctx context.Context, name string, look func(ctx context.Context) error) (err error) {
	s.line.enter(name)
	defer func() { s.line.leave(name, errors.Is(err, pluginsdk.ErrThrottled)) }()
	return s.before(ctx, func(early context.Context) error {
		select {
		case s.line.front <- struct{}{}:
			defer func() { <-s.line.front }()
		case <-early.Done():
			return outOfTime(early)
		}
		if err := s.budget.Take(early); err != nil {
			return err
		}
		if err := look(early); err != nil {
			return err
		}
		return outOfTime(early) // or a write could get lost
	})
}

// before does what comes before a write. That it fails for now, or runs out of time,
// is no failure with an unknown outcome: nothing was sent. The answer says so, and
// when to come back.
func (s *session) before(ctx context.Context, do func(early context.Context) error) error {
	early, cancel := inTime(ctx)
	defer cancel()
	err := do(early)
	var e *pluginsdk.Error
	if !errors.As(err, &e) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	switch {
	case e.Kind == pluginsdk.KindTransient && early.Err() != nil:
		return s.later(e, 0)
	case e.Kind == pluginsdk.KindTransient:
		return s.later(e, firstPause) // something failed: not again at once
	case e.Kind == pluginsdk.KindThrottled && e.RetryAfter <= longestPause:
		return s.later(e, e.RetryAfter)
	}
	return err
}

// later is the answer to a write that was not sent. Without a budget there is no
// pace at which writes could come back: AWS's own is not known.
func (s *session) later(e *pluginsdk.Error, least time.Duration) error {
	wait := max(least, firstPause)
	if s.config.APIRate != nil {
		perSecond, _ := s.config.APIRate.kept()
		wait = s.line.sentAway(least, time.Duration(float64(time.Second)/perSecond))
	}
	return &pluginsdk.Error{Kind: pluginsdk.KindThrottled, RetryAfter: wait, Message: "not sent: " + e.Message, Cause: e}
}

// yields reports whether calls that can wait for another look are to be left out.
func (s *session) yields() bool { return s.budget != nil && s.line.crowded() }

// inTime ends before ctx does, by turnMargin or half of what is left.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	margin := min(turnMargin, time.Until(deadline)/2)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// outOfTime is an error once ctx has ended.
func outOfTime(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: "its turn did not come in time: " + err.Error(), Cause: err}
	}
	return nil
}

// locks has one lock for each group, that can be waited for with a context. Two
// writes to one group at once could each be right and be wrong together.
type locks struct {
	mu    sync.Mutex
	chans map[string]chan struct{}
}

func newLocks() *locks { return &locks{chans: map[string]chan struct{}{}} }

// lock returns what unlocks it.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	c := l.chans[name]
	if c == nil {
		c = make(chan struct{}, 1)
		l.chans[name] = c
	}
	l.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, outOfTime(ctx)
	}
}

// lock waits for the lock of a group that is to be written to.
func (s *session) lock(ctx context.Context, name string) (unlock func(), err error) {
	err = s.before(ctx, func(early context.Context) error {
		unlock, err = s.groupLocks.lock(early, name)
		return err
	})
	return unlock, err
}
