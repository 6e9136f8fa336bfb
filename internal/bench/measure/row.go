package measure

import (
	"fmt"
	"math"
)

// Verdict is what a row comes to. The set is closed.
type Verdict string

// The verdicts.
const (
	Reference Verdict = "reference" // what the others are compared with
	Info      Verdict = "info"      // no target
	Met       Verdict = "met"
	Missed    Verdict = "MISSED"
	Noisy     Verdict = "noisy"   // others disturbed it: neither met nor missed
	Skipped   Verdict = "SKIPPED" // what it needs is not installed
	Wrong     Verdict = "WRONG"   // an exact counter is not what it must be
)

// Row is one line of a table.
type Row struct {
	Subject string  `json:"subject"`
	Unit    string  `json:"unit,omitempty"`
	Value   Spread  `json:"value"`
	Ratio   *Spread `json:"ratio,omitempty"` // to the reference row
	Target  string  `json:"target,omitempty"`
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note,omitempty"`
	// Exact: a counter or a size, which the load of the machine can't change.
	Exact bool `json:"exact,omitempty"`
}

// Target is a bound on a row's median, or on its ratio.
type Target struct {
	ratio bool
	least bool
	bound float64
}

// ValueAtMost bounds the median from above, in the row's unit.
func ValueAtMost(bound float64) Target { return Target{bound: bound} }

// ValueAtLeast bounds the median from below, for rates.
func ValueAtLeast(bound float64) Target { return Target{bound: bound, least: true} }

// RatioAtMost bounds the ratio from above, for what takes time.
func RatioAtMost(bound float64) Target { return Target{bound: bound, ratio: true} }

// RatioAtLeast bounds the ratio from below, for rates.
func RatioAtLeast(bound float64) Target { return Target{bound: bound, ratio: true, least: true} }

func (t Target) text(unit string) string {
	sign, what := "≤", " "+unit
	if t.least {
		sign = "≥"
	}
	if t.ratio {
		what = " ×"
	}
	return fmt.Sprintf("%s %s%s", sign, figure(t.bound), what)
}

func (t Target) met(r *Row) bool {
	x := r.Value.Median
	if t.ratio {
		x = r.Ratio.Median // a target for a ratio without one is a mistake in the benchmark
	}
	if t.least {
		return x >= t.bound
	}
	return x <= t.bound
}

// RowOf sums up a series, without a target.
func RowOf(s Series, unit string) Row {
	return Row{Subject: s.Name, Unit: unit, Value: s.Spread(), Verdict: Info}
}

// ReferenceRow sums up the series that the others are compared with.
func ReferenceRow(s Series, unit string) Row {
	r := RowOf(s, unit)
	r.Verdict = Reference
	return r
}

// Against adds the ratio to a reference.
func (r Row) Against(s, reference Series) Row {
	ratio := s.RatioTo(reference)
	r.Ratio = &ratio
	return r
}

// Judged adds a target and whether it is met.
func (r Row) Judged(t Target) Row {
	r.Target = t.text(r.Unit)
	r.Verdict = Missed
	if t.met(&r) {
		r.Verdict = Met
	}
	return r
}

// Exactly is the row of a counter that must be what it must be.
func Exactly(subject, unit string, got, want int) Row {
	r := count(subject, unit, got, want == got)
	r.Target = fmt.Sprintf("= %d", want)
	return r
}

// NoMoreThan is the row of a counter with an exact bound.
func NoMoreThan(subject, unit string, got, most int) Row {
	r := count(subject, unit, got, got <= most)
	r.Target = fmt.Sprintf("≤ %d", most)
	return r
}

func count(subject, unit string, got int, right bool) Row {
	v := float64(got)
	r := Row{Subject: subject, Unit: unit, Value: Spread{v, v, v}, Verdict: Wrong, Exact: true}
	if right {
		r.Verdict = Met
	}
	return r
}

// SkippedRow says loudly what was not measured, and why.
func SkippedRow(subject, why string) Row {
	return Row{Subject: subject, Verdict: Skipped, Note: why}
}

// figure prints three significant digits.
func figure(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}
