package jobrouter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// keptForHigh has a job given out for the better token, of which no machine is there.
func keptForHigh(t *testing.T, s *stand, id int64) {
	t.Helper()
	s.gitlab.enqueue(id)
	a, err := s.gitlab.RequestJob(t.Context(), requestBody("h", "", runnerFeatures()), nil)
	require.NoError(t, err)
	require.True(t, s.desk.Offer(t.Context(), a.Body, s.caller(highToken, "h")))
	pass(10 * time.Millisecond)
	require.Len(t, s.desk.Held(), 1)
}

// A13: a job goes to a machine that takes such jobs, with whichever token it was asked for;
// but first to one of the token, if it comes back.
func TestA13_AJobThatNoMachineOfItsTokenTakesGoesToAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTwo(t).b
		low := s.askWith(lowToken, "l")
		pass(time.Second)
		keptForHigh(t, s, 1)
		pass(backWithin - time.Second)
		low.mustWait(t)
		pass(2 * time.Second)
		low.mustGet(t, 1).settle(arrived)
		machine, booked := s.book.has(1)
		require.True(t, booked)
		require.EqualValues(t, "l", machine)
		require.Equal(t, "low", s.book.mu.begins[0].Pool, "it counts for the pool that runs it")
		require.Empty(t, s.desk.Held())
		require.Equal(t, 1, s.log.count("kept 1"))
	})
	bubble(t, func(t *testing.T) {
		s := newTwo(t).b
		low := s.askWith(lowToken, "l")
		pass(time.Second)
		keptForHigh(t, s, 1)
		pass(backWithin - 2*time.Second)
		s.askWith(highToken, "h").mustGetSoon(t, 1)
		pass(backWithin)
		low.mustWait(t)
	})
}

// mustGetSoon is mustGet within a sweep or two.
func (p *pending) mustGetSoon(t *testing.T, id int64) {
	t.Helper()
	pass(2 * sweepEvery)
	p.mustGet(t, id).settle(arrived)
}

// A machine that comes later gets it as well; and one that turns it down, being to
// drain, leaves it to the next.
func TestA13_AMachineThatComesLaterGetsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTwo(t).b
		keptForHigh(t, s, 1)
		pass(3 * backWithin)
		require.Equal(t, 1, s.log.count("kept 1"), "it is not taken up while there is nobody: %v", s.log.all())
		s.book.order("drains", true)
		drains := s.askWith(lowToken, "drains")
		pass(time.Second)
		drains.mustWait(t)
		s.askWith(lowToken, "l").mustGetSoon(t, 1)
	})
}

// The order of priorities holds for such a job too, and a job that GitLab takes as running
// stays with its token.
func TestA13_TheOrderHoldsForSuchAJobToo(t *testing.T) {
	const lastToken = "glrt-secret-of-the-last"
	bubble(t, func(t *testing.T) {
		s := newTwo(t, func(o *Options, _ *stand) {
			o.Tokens = route.NewTokens(map[string][]spillway.Pool{highToken: {testPool("high", 0)}, lowToken: {testPool("low", 1)}, lastToken: {testPool("last", 2)}})
		}).b
		last := s.askWith(lastToken, "z")
		low := s.askWith(lowToken, "l")
		pass(time.Second)
		keptForHigh(t, s, 1)
		pass(backWithin + time.Second)
		low.mustGet(t, 1).settle(arrived)
		last.mustWait(t)
	})
	j := &job{wish: wish{twoPhase: true}, foundAt: turnTime}
	require.False(t, j.forAnybody(turnTime.Add(backWithin-1)))
	require.True(t, j.forAnybody(turnTime.Add(backWithin)))
	j.wish.twoPhase = false
	require.False(t, j.forAnybody(turnTime.Add(time.Hour)))
}
