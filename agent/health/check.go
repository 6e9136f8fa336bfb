package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-ci/spillway/agent/shell"
)

// The defaults and bounds of a Check.
const (
	// DefaultEvery is the time between two runs. Not shorter: a check costs the jobs
	// something; not longer: until it has failed often enough, jobs fail.
	DefaultEvery = 30 * time.Second
	// DefaultFailures is how often in a row a check fails until it is believed: one
	// failure may be a busy moment.
	DefaultFailures = 3
	// timeout bounds one run, and grace what it gets to end after that.
	timeout = 10 * time.Second
	grace   = 2 * time.Second
	// MaxTextBytes bounds what is said of a failure [bytes], as the router does.
	MaxTextBytes = 256
)

// ErrCheck says that a Check can't be run.
var ErrCheck = errors.New("invalid health check")

// Check is a command that says by its exit code whether this machine is well.
type Check struct {
	Command  string        // for /bin/sh; exit code 0 = well
	Every    time.Duration // 0: DefaultEvery
	Failures int           // in a row until it is believed; 0: DefaultFailures
	WorkDir  string        // existing directory for its private one
	Log      *slog.Logger  // nil: silent
}

// Validate reports every mistake.
func (c *Check) Validate() error {
	var errs []error
	if strings.TrimSpace(c.Command) == "" || strings.ContainsRune(c.Command, 0) {
		errs = append(errs, fmt.Errorf("%w: name a command", ErrCheck))
	}
	if c.Every < 0 || c.Failures < 0 {
		errs = append(errs, fmt.Errorf("%w: every %s, %d failures: use more than 0", ErrCheck, c.Every, c.Failures))
	}
	return errors.Join(errs...)
}

// Run runs the check until ctx ends and delivers each change: why the machine is
// broken, and an empty text when it is well again. It returns when nothing of the
// last run is left.
func (c Check) Run(ctx context.Context, news chan<- string) {
	if c.Every == 0 {
		c.Every = DefaultEvery
	}
	if c.Failures == 0 {
		c.Failures = DefaultFailures
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	failures, said := 0, false
	for {
		why := c.once(ctx)
		if ctx.Err() != nil {
			return // it was cut short, which says nothing
		}
		if failures++; why == "" {
			failures = 0
		}
		if broken := failures >= c.Failures; broken != said && (broken || failures == 0) {
			said = broken
			select {
			case news <- why:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once says why the check failed; empty when it didn't. One that can't be started
// has failed: this machine could start no job either.
func (c *Check) once(ctx context.Context) (why string) {
	out, err := shell.Run(ctx, shell.Spec{Parent: c.WorkDir, Script: c.Command, Timeout: timeout, Grace: grace}, func(*shell.Place) {})
	switch {
	case err != nil:
		why = fmt.Sprintf("health check not started: %v", err)
	case out.Cause == shell.TimedOut:
		why = fmt.Sprintf("health check took more than %s", timeout)
	case out.ExitCode != 0:
		why = fmt.Sprintf("health check: exit code %d", out.ExitCode)
		if last := lastLine(out.Output); last != "" {
			why += ": " + last
		}
	}
	if why != "" {
		c.Log.Debug("health check failed", "why", why)
	}
	return head(why, MaxTextBytes)
}

// lastLine is what a command says last is wrong.
func lastLine(output []byte) string {
	output = bytes.TrimSpace(output)
	return strings.TrimSpace(string(output[bytes.LastIndexByte(output, '\n')+1:]))
}

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
