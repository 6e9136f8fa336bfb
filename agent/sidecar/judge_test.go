package sidecar

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// seen is a watch that has just seen a process, whose metrics named jobs.
func seen(jobs int) *Watch {
	return &Watch{
		log: slog.New(slog.DiscardHandler), name: "7@1", sure: true, since: start, sureAt: start, jobs: reading{jobs, 3}, jobsAt: start,
	}
}

var errMute = errors.New("connection refused")

// What was seen holds for a quarter of a minute; then what can't be seen has a job.
func TestC12_WhatCanNotBeSeenIsNotIdle(t *testing.T) {
	w := seen(0)
	w.trouble.scrape = errMute
	s := w.state(start)
	require.Zero(t, s.BusyAt(start.Add(trustedFor)))
	require.Equal(t, 1, s.BusyAt(start.Add(trustedFor+1)))
	s = seen(2).state(start)
	require.Equal(t, 2, s.BusyAt(start.Add(time.Hour)), "or as many as it had")

	require.Equal(t, 1, State{}.BusyAt(start), "nothing was seen yet")

	w = seen(0)
	w.name = ""
	s = w.state(start)
	require.Zero(t, s.BusyAt(start.Add(trustedFor)))
	require.Equal(t, 1, s.BusyAt(start.Add(trustedFor+1)), "somebody may have started it since")
}

// For any state: idle is said only of a look that is young enough, and that saw either
// no process, or a process that nobody told to stop and metrics without a job.
func TestC12_IdleIsProven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{
			Busy:     rapid.IntRange(0, 2).Draw(t, "busy"),
			Stopping: rapid.Bool().Draw(t, "stopping"),
			Gone:     rapid.Bool().Draw(t, "gone"),
		}
		if rapid.Bool().Draw(t, "seen") {
			s.SeenAt = start
		}
		age := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "age"))
		if s.BusyAt(start.Add(age)) == 0 {
			require.False(t, s.SeenAt.IsZero())
			require.LessOrEqual(t, age, trustedFor)
			require.True(t, s.Gone || s.Busy == 0 && !s.Stopping)
		}
	})
}

func TestMetricsThatDoNotAnswerMakeARunnerBroken(t *testing.T) {
	w := seen(0)
	w.trouble.scrape = errMute
	require.Empty(t, w.state(start.Add(MetricsPatience)).Unhealthy)
	require.Equal(t, "no metrics for more than 45s: connection refused", w.state(start.Add(MetricsPatience+1)).Unhealthy)

	w.since = start.Add(time.Minute) // a new process gets its time
	require.Empty(t, w.state(start.Add(MetricsPatience+time.Minute)).Unhealthy)

	w.told, w.toldAt = w.name, start
	require.Empty(t, w.state(start.Add(time.Hour)).Unhealthy, "one that stops may be mute")
}

func TestAProcessThatCanNotBeSeenMakesARunnerBroken(t *testing.T) {
	w := seen(0)
	w.sure, w.trouble.look, w.jobsAt = false, errElsewhere, start.Add(time.Hour)
	require.Empty(t, w.state(start.Add(MetricsPatience)).Unhealthy)
	require.Contains(t, w.state(start.Add(MetricsPatience+1)).Unhealthy, "no process is where it was looked for")
}

// Somebody may be restarting a runner that isn't ours.
func TestARunnerOfSomebodyElseMayBeAwayForAMoment(t *testing.T) {
	w := seen(0)
	w.name = ""
	require.Empty(t, w.state(start.Add(GonePatience-1)).Unhealthy)
	require.Contains(t, w.state(start.Add(GonePatience)).Unhealthy, "not running")
	w.o.Exec = []string{"gitlab-runner"}
	require.Contains(t, w.state(start).Unhealthy, "not running", "nobody restarts ours")
}

// An order to stop is carried out when the runner was told and had a moment to end, or
// has a job, or is gone; never before it was told.
func TestWhenAnOrderIsCarriedOut(t *testing.T) {
	w := seen(0)
	w.order = Order{Number: 5, Stop: true}
	require.Zero(t, w.state(start.Add(time.Hour)).Order, "not told")

	w.told, w.toldAt = w.name, start
	require.Zero(t, w.state(start.Add(settleFor-1)).Order, "it seems idle, and would be gone in a moment")
	require.EqualValues(t, 5, w.state(start.Add(settleFor)).Order)

	w.jobs.jobs = 1
	require.Zero(t, w.state(start).Order, "what was read before says nothing")
	w.jobsAt = start.Add(1)
	require.EqualValues(t, 5, w.state(start.Add(1)).Order)

	w.jobs.jobs, w.name = 0, "8@2"
	w.said = State{}
	require.Zero(t, w.state(start.Add(time.Hour)).Order, "another process, which nobody told")
	w.name = ""
	require.EqualValues(t, 5, w.state(start).Order)
	w.sure = false
	require.Zero(t, w.state(start).Order, "gone, or not to be seen?")
}

func TestAnOrderThatCanNotBeCarriedOut(t *testing.T) {
	w := seen(0)
	w.order = Order{Number: 1, Stop: true}
	w.trouble.quit = errors.New("operation not permitted")
	s := w.state(start)
	require.Equal(t, "the runner can't be told to stop: operation not permitted", s.Unhealthy)
	require.False(t, s.Stopping)
	require.Zero(t, s.Order)
	require.Equal(t, attentively, (&Watch{o: Options{Every: DefaultEvery}, order: w.order, sure: true, trouble: w.trouble}).pace(s), "tried again, not all the time")
}

func TestTextsAreShort(t *testing.T) {
	w := seen(0)
	w.order.Stop = true
	w.trouble.quit = errors.New(strings.Repeat("é", maxTextBytes))
	said := w.state(start).Unhealthy
	require.LessOrEqual(t, len(said), maxTextBytes)
	require.Greater(t, len(said), maxTextBytes-2)
}

func TestPaces(t *testing.T) {
	w := seen(0)
	w.o.Every = DefaultEvery
	pace := func(s State) time.Duration { return w.pace(s) }
	require.Equal(t, DefaultEvery, pace(State{}))
	require.Equal(t, attentively, pace(State{Stopping: true}))
	w.order = Order{Number: 1, Stop: true}
	require.Equal(t, closely, pace(State{}), "until it is carried out")
	require.Equal(t, attentively, pace(State{Order: 1, Stopping: true}), "until it is gone")
	require.Equal(t, DefaultEvery, pace(State{Order: 1, Stopping: true, Gone: true}))
	w.order = Order{Number: 2}
	require.Equal(t, attentively, pace(State{Order: 2, Stopping: true, Gone: true}), "until it serves again")
	require.Equal(t, DefaultEvery, pace(State{Order: 2}))
	w.jobsAt = time.Time{}
	require.Equal(t, attentively, pace(State{Order: 2}), "until a runner that was just started has spoken")
	w.name = ""
	require.Equal(t, DefaultEvery, pace(State{Order: 2}))
	w.sure = false
	require.Equal(t, attentively, pace(State{Order: 2}))
}
