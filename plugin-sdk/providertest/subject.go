package providertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Subject is the provider to check, and what it needs to be checked.
type Subject struct {
	Provider pluginsdk.Provider // fresh: nothing has been called yet
	Config   []byte             // a JSON object; empty: {}
	Group    string             // that exists, is empty and belongs to nobody else
	// MaxInstances is how many may exist at a time, at least 2, which is the default.
	MaxInstances int
	// Metric is the name of a metric in Config that has a value, for a provider that
	// can count; empty: only what an unknown name answers is looked at.
	Metric string
	// Exempt names checks that the cloud of this run can't show, with the reason: an
	// emulator that knows less than the real one. They are skipped.
	Exempt map[string]string
	// Settle is how long the cloud may take until what it said yes to is seen: an
	// instance running, another one gone. Default 5 minutes.
	Settle time.Duration
}

// Outcome of a check. The set is closed.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // a capability that the provider doesn't declare, or an earlier check failed
	// Deviates is a check that fails as the plugin declares (Description.Deviations).
	Deviates Outcome = "deviates"
)

// Result is what one check found.
type Result struct {
	Check   string // its name
	Promise string // the sentence of the contract
	Outcome Outcome
	Detail  string // why it failed or was skipped
	Took    time.Duration
}

// String is one line for people.
func (r Result) String() string {
	line := fmt.Sprintf("%-8s %s", r.Outcome, r.Check)
	if r.Detail != "" {
		line += ": " + r.Detail
	}
	if r.Outcome == Failed {
		line += " (the contract: " + r.Promise + ")"
	}
	return line
}

// Run checks what open returns, one subtest for each check.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	Check(t.Context(), open(t), func(r Result) {
		t.Run(r.Check, func(t *testing.T) {
			switch r.Outcome {
			case Failed:
				t.Error(r)
			case Skipped, Deviates:
				t.Skip(r)
			case Passed:
			}
		})
	})
}

// Check runs all checks in order, reports each, and says whether none failed;
// declared deviations are no failures.
// When ctx ends the rest is skipped. What it launched it removes in any case.
func Check(ctx context.Context, s Subject, report func(Result)) (ok bool) {
	s = s.withDefaults()
	t := &trial{Subject: s, checks: checks()}
	ok = true
	stopped := ""
	for _, c := range t.checks {
		r := Result{Check: c.name, Promise: c.promise}
		if ctx.Err() != nil && stopped == "" {
			stopped, ok = "the checks were interrupted", false
		}
		if stopped != "" && !c.always {
			r.Outcome, r.Detail = Skipped, stopped
			report(r)
			continue
		}
		if c.always {
			ctx = context.WithoutCancel(ctx) // instances cost money
		}
		r.run(ctx, t, c)
		r.excuse(t)
		report(r)
		if r.Outcome == Failed {
			ok = false
			if c.vital && stopped == "" {
				stopped = "after " + c.name + " failed"
			}
		}
	}
	return ok
}

func (s Subject) withDefaults() Subject {
	s.MaxInstances = max(s.MaxInstances, 2)
	s.Settle = cmp.Or(s.Settle, 5*time.Minute)
	if len(s.Config) == 0 {
		s.Config = []byte("{}")
	}
	return s
}

// check is one promise and how to look at it. They run in order, on one
// provider, and each may rely on what those before it have left.
type check struct {
	name    string
	promise string
	run     func(ctx context.Context, t *trial) error
	vital   bool // without it the rest means nothing
	always  bool // runs also when a vital check failed
}

// prompt is how soon a call returns when its context has ended.
const prompt = 10 * time.Second

// perCall is how long a check's calls may take, apart from settling.
const perCall = time.Minute

func (r *Result) run(ctx context.Context, t *trial, c check) {
	if why, ok := t.Exempt[c.name]; ok {
		r.Outcome, r.Detail = Skipped, why
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, t.Settle+perCall)
	defer cancel()
	err := c.run(ctx, t)
	r.Took = time.Since(began)
	var skip skipped
	switch {
	case err == nil:
		r.Outcome = Passed
	case errors.As(err, &skip):
		r.Outcome, r.Detail = Skipped, string(skip)
	default:
		r.Outcome, r.Detail = Failed, err.Error()
	}
}

// excuse makes a failure that the plugin declares a deviation. One that is declared
// and not there is a failure: the declaration is wrong.
func (r *Result) excuse(t *trial) {
	for _, d := range t.description.Deviations {
		switch {
		case d.Check != r.Check:
		case r.Outcome == Failed:
			r.Outcome, r.Detail = Deviates, d.Reason+" ("+r.Detail+")"
		case r.Outcome == Passed:
			r.Outcome, r.Detail = Failed, "the plugin declares that it deviates here, and it doesn't"
		}
	}
}

// skipped is the error of a check that has nothing to look at.
type skipped string

func (s skipped) Error() string { return string(s) }

// withUnknownKey is the subject's config with one key more.
func (s *Subject) withUnknownKey() ([]byte, error) {
	var config map[string]any
	if err := json.Unmarshal(s.Config, &config); err != nil || config == nil {
		return nil, fmt.Errorf("the subject's config is not a JSON object: %w", err)
	}
	config["spillway_no_such_key"] = true
	return json.Marshal(config)
}
