package ec2asg

import (
	"context"
	"slices"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// turnMargin is how long before its deadline a write that has not had its turn gives
// up: there must be time to send it, and to tell that it was not sent. Later, and
// the control plane could not know.
const turnMargin = time.Second

// line is where writes wait for their turn, in order of arrival. The first in line
// alone waits for the call budget. So a read, which others wait for, is never behind
// more than one write; and it is known who comes next, so that one read serves them
// all.
type line struct {
	front chan struct{} // holds one: who is at the front
	mu    struct {
		sync.Mutex
		waiting []string // groups, in order
	}
}

func newLine() *line { return &line{front: make(chan struct{}, 1)} }

// names are the next groups in line.
func (l *line) names(most int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.waiting[:min(most, len(l.mu.waiting))])
}

func (l *line) enter(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = append(l.mu.waiting, name)
}

// place is how many are before a group, itself included.
func (l *line) place(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Index(l.mu.waiting, name) + 1
}

func (l *line) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.mu.waiting, name); i >= 0 { // of the same name it doesn't matter which
		l.mu.waiting = slices.Delete(l.mu.waiting, i, i+1)
	}
}

// turn waits until a write to a group may be sent, and calls look then, while nobody
// else can get ahead. Whatever error it returns, nothing was sent.
func (s *session) turn(ctx context.Context, name string, look func(ctx context.Context) error) error {
	s.line.enter(name)
	defer s.line.leave(name)
	early, cancel := inTime(ctx)
	defer cancel()
	select {
	case s.line.front <- struct{}{}:
		defer func() { <-s.line.front }()
	case <-early.Done():
		return s.tooLate(ctx, name)
	}
	if err := s.budget.Take(early); err != nil {
		return err
	}
	return look(ctx)
}

// inTime ends before ctx does, by turnMargin or half of what is left.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	margin := min(turnMargin, time.Until(deadline)/2)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// tooLate is the answer to a write whose turn has not come. It says when to come
// back: those that give up together do not come back together.
func (s *session) tooLate(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	wait := turnMargin
	if s.config.APIRate != nil {
		wait = time.Duration(float64(s.line.place(name)) / s.config.APIRate.PerSecond * float64(time.Second))
	}
	return &pluginsdk.Error{
		Kind: pluginsdk.KindThrottled, RetryAfter: wait,
		Message: "the plugin's own call budget is used up: not sent, others were first",
	}
}

func notSent(cause error) *pluginsdk.Error {
	return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: "not sent: " + cause.Error(), Cause: cause}
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
		return nil, notSent(ctx.Err())
	}
}
