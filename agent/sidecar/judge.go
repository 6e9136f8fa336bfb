package sidecar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// errElsewhere: the metrics answer, so that there is a runner.
var errElsewhere = fmt.Errorf("%w: its metrics answer, but no process is where it was looked for", ErrUnknown)

// state is what follows from what was seen.
func (w *Watch) state(now time.Time) State {
	s := State{Busy: w.jobs.jobs, Capacity: w.jobs.capacity, SeenAt: w.jobsAt, Order: w.said.Order}
	stopped := w.told != "" && (w.name == w.told || w.name == "") // by us, and nothing serves since
	s.Stopping = stopped || w.order.Stop && w.sure && w.name == ""
	if w.sure && w.name == "" {
		s.Gone, s.Busy, s.SeenAt = true, 0, now
	}
	if w.carriedOut(s, now) {
		s.Order = w.order.Number
	}
	s.Unhealthy = head(w.complaint(s, now), maxTextBytes)
	return s
}

// carriedOut reports whether the newest order is. One to stop is when SIGQUIT was
// delivered; an idle runner gets a moment to end, for a look in between would find a
// process that may have a job. One to serve is at once: what the state says then is
// the truth, and a runner that is stopping can't be called back.
func (w *Watch) carriedOut(s State, now time.Time) bool {
	if !w.order.Stop || s.Gone {
		return true
	}
	told := w.sure && w.name != "" && w.name == w.told
	return told && (w.jobs.jobs > 0 && w.jobsAt.After(w.toldAt) || now.Sub(w.toldAt) >= settleFor)
}

// complaint is why the runner serves nobody, though it should. That it stops because
// it was told to is nothing to complain of.
func (w *Watch) complaint(s State, now time.Time) string {
	switch unseen := now.Sub(later(w.jobsAt, w.since)); {
	case w.trouble.quit != nil:
		return fmt.Sprintf("the runner can't be told to stop: %v", w.trouble.quit)
	case s.Stopping && s.Gone && !w.order.Stop && w.trouble.start != nil && !errors.Is(w.trouble.start, ErrNoStart):
		return fmt.Sprintf("the runner was not started again: %v", w.trouble.start)
	case s.Stopping:
		return ""
	case s.Gone && w.trouble.start != nil:
		return fmt.Sprintf("the runner was not started: %v", w.trouble.start)
	case s.Gone && (w.Ours() || now.Sub(w.since) >= GonePatience):
		return "the runner is not running, and nobody told it to stop"
	case s.Gone:
		return ""
	case unseen > MetricsPatience && w.trouble.scrape != nil:
		return fmt.Sprintf("no metrics for more than %s: %v", MetricsPatience, w.trouble.scrape)
	case now.Sub(w.sureAt) > MetricsPatience && w.trouble.look != nil:
		return w.trouble.look.Error()
	default:
		return ""
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// maxTextBytes bounds what is said of a broken runner, as the router does [bytes].
const maxTextBytes = 256

// head returns at most limit bytes of s, valid UTF-8.
func head(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
