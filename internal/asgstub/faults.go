package asgstub

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Limits of a Faults.
const (
	// MaxDuration bounds every duration.
	MaxDuration = 366 * 24 * time.Hour
	// MaxFaults bounds each list of planned faults [entries].
	MaxFaults = 1_000
)

// Faults is how a group, and the calls about it, misbehave. The zero value does
// everything at once and keeps every promise.
type Faults struct {
	// Boot is how long it takes from the launch until the instance's runner registers.
	Boot Boot `json:"boot"`
	// Pending is how long it takes from the launch until EC2 says that the instance
	// runs: it is in service then, or waits for a launching hook. At most Boot.
	Pending time.Duration `json:"pending"`
	// NeverRegister picks instances that run and bill, and whose runner never registers.
	NeverRegister NeverRegister `json:"never_register"`
	Launch        []LaunchFault `json:"launch"`
	Calls         []CallFault   `json:"calls"`
	ThrottlePct   float64       `json:"throttle_pct"` // of all calls, 0 to 100
	// RetryEvery is when the group tries again to launch what failed; 0 = [DefaultRetry].
	RetryEvery time.Duration `json:"retry_every"`
	// Partial is the share of a request that is filled at once, above 0 to 1; 0 = all.
	Partial float64 `json:"partial"`
	// LateFill is when the rest comes; 0 = never.
	LateFill time.Duration `json:"late_fill"`
	// VisibleAfter is when a launched instance appears in the group and in EC2.
	VisibleAfter time.Duration `json:"visible_after"`
	// DesiredStale is how long the group still shows the desired capacity of before.
	DesiredStale time.Duration `json:"desired_stale"`
	// Victim is whom the group takes; protected instances it never takes.
	Victim Victim `json:"victim"`
	// AutoReplace: an instance that is lost without a decrement is replaced. That is
	// what the service does, and what nil means; with false desired falls with it.
	AutoReplace *bool `json:"auto_replace"`
	// ReplaceRace: while an instance is terminated with a decrement the group already
	// starts a replacement; then there is one too many, and it takes an unprotected one.
	ReplaceRace bool `json:"replace_race"`
	// AZRebalance: zones that differ by more than one instance are balanced, by
	// launching first and then taking an unprotected instance.
	AZRebalance bool `json:"az_rebalance"`
	// Terminating is how long an instance still shows after it has been shut down.
	Terminating time.Duration `json:"terminating"`
	// HealthCheck is when the group notices that EC2 ended an instance.
	HealthCheck time.Duration `json:"health_check"`
	// PageSize bounds the items of every page; 0 = what the request says.
	PageSize int `json:"page_size"`
}

// DefaultRetry is how long a group waits until it launches again what failed.
const DefaultRetry = 30 * time.Second

// Boot is a duration: always P50 where P95 is not larger, else log-normal with
// these quantiles.
type Boot struct {
	P50 time.Duration `json:"p50"`
	P95 time.Duration `json:"p95"`
}

// NeverRegister picks instances by their launch in the group.
type NeverRegister struct {
	Every int      `json:"every"` // each Every-th launch; 0 = none
	IDs   []string `json:"ids"`
	All   bool     `json:"all"`
}

// Window is a span of time, from From to before To since the first call.
type Window struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"` // 0 = without end
}

func (w Window) open(age time.Duration) bool { return age >= w.From && (w.To == 0 || age < w.To) }

// LaunchFault makes launches fail after they were accepted: seen as a failed
// activity, tried again every RetryEvery.
type LaunchFault struct {
	Window
	// Code is a key of launchTexts, or anything with a Message.
	Code    string   `json:"code" config:"required"`
	Message string   `json:"message"`
	Ratio   float64  `json:"ratio"` // of the instances; 0 = all
	Zones   []string `json:"zones"` // empty = all
	Spot    bool     `json:"spot"`  // only spot instances
}

// CallFault makes calls fail.
type CallFault struct {
	Window
	Operations []string `json:"operations"` // empty = all
	Code       string   `json:"code"`       // see callTexts; any code is allowed
	Message    string   `json:"message"`
	Status     int      `json:"status"` // HTTP; 0 = what goes with the code
	Ratio      float64  `json:"ratio"`  // of the calls; 0 = all
	Times      int      `json:"times"`  // so often and then no more; 0 = always
	// Applied: the call does its work all the same, and only its answer is lost.
	Applied bool `json:"applied"`
	// Hang: there is no answer until the caller gives up.
	Hang bool `json:"hang"`
}

// Victim is whom a group takes when it has one instance too many.
type Victim string

// The victims. The service itself balances zones and then prefers the oldest
// launch template; an empty Victim takes the oldest of the fullest zone.
const (
	BusyFirst    Victim = "busy_first"
	Oldest       Victim = "oldest"
	RandomVictim Victim = "random"
)

// Validate reports everything that is wrong with f, joined; nil for nothing.
func (f Faults) Validate() error { return errors.Join(f.mistakes()...) }

func (f Faults) mistakes() (errs []error) {
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, d := range []struct {
		key string
		is  time.Duration
	}{
		{"boot.p50", f.Boot.P50},
		{"boot.p95", f.Boot.P95},
		{"pending", f.Pending},
		{"retry_every", f.RetryEvery},
		{"late_fill", f.LateFill},
		{"visible_after", f.VisibleAfter},
		{"desired_stale", f.DesiredStale},
		{"terminating", f.Terminating},
		{"health_check", f.HealthCheck},
	} {
		check(d.is < 0 || d.is > MaxDuration, "%s: use 0s to %s", d.key, MaxDuration)
	}
	check(f.Boot.P95 != 0 && f.Boot.P95 < f.Boot.P50, "boot: p95 %s is below p50 %s", f.Boot.P95, f.Boot.P50)
	check(f.Boot.P95 > f.Boot.P50 && f.Boot.P50 == 0, "boot: p50 must be above 0s where p95 is")
	check(f.NeverRegister.Every < 0, "never_register: every %d is negative", f.NeverRegister.Every)
	check(f.ThrottlePct < 0 || f.ThrottlePct > 100, "throttle_pct %g: use 0 to 100", f.ThrottlePct)
	check(f.Partial < 0 || f.Partial > 1, "partial %g: use 0 to 1", f.Partial)
	check(f.PageSize < 0, "page_size %d is negative", f.PageSize)
	check(len(f.Launch) > MaxFaults, "launch: %d entries, at most %d are allowed", len(f.Launch), MaxFaults)
	check(len(f.Calls) > MaxFaults, "calls: %d entries, at most %d are allowed", len(f.Calls), MaxFaults)
	check(!slices.Contains([]Victim{"", BusyFirst, Oldest, RandomVictim}, f.Victim),
		"victim %q: use busy_first, oldest or random", f.Victim)
	for i, l := range f.Launch {
		check(badWindow(l.Window), "launch[%d]: from %s to %s is not a span of time", i, l.From, l.To)
		check(l.Ratio < 0 || l.Ratio > 1, "launch[%d]: ratio %g: use 0 to 1", i, l.Ratio)
		_, known := launchTexts[l.Code]
		check(!known && l.Message == "", "launch[%d]: code %q is not known and there is no message", i, l.Code)
	}
	for i, l := range f.Calls {
		check(badWindow(l.Window), "calls[%d]: from %s to %s is not a span of time", i, l.From, l.To)
		check(l.Ratio < 0 || l.Ratio > 1, "calls[%d]: ratio %g: use 0 to 1", i, l.Ratio)
		check(l.Times < 0, "calls[%d]: times %d is negative", i, l.Times)
		check((l.Code == "") != l.Hang, "calls[%d]: give a code, or hang: true, and not both", i)
		check(l.Status != 0 && (l.Status < 400 || l.Status > 599), "calls[%d]: status %d: use 400 to 599", i, l.Status)
		for _, op := range l.Operations {
			check(!knownOperation(op), "calls[%d]: no operation %q", i, op)
		}
	}
	return errs
}

func badWindow(w Window) bool {
	return w.From < 0 || w.To < 0 || w.From > MaxDuration || w.To > MaxDuration || w.To != 0 && w.To <= w.From
}

// faultState is a Faults in use.
type faultState struct {
	Faults
	since time.Time
	met   []int // how often each of Calls was met
}

func newFaultState(f Faults, since time.Time) *faultState {
	return &faultState{Faults: f, since: since, met: make([]int, len(f.Calls))}
}

func (f *faultState) replaces() bool { return f.AutoReplace == nil || *f.AutoReplace }

func (f *faultState) retry() time.Duration {
	if f.RetryEvery == 0 {
		return DefaultRetry
	}
	return f.RetryEvery
}

// call is the planned fault that a call of op meets at now; nil for none.
func (f *faultState) call(op string, now time.Time, rng *rand.Rand) *CallFault {
	if chance(rng, f.ThrottlePct/100) {
		return &CallFault{Code: codeThrottling}
	}
	for i := range f.Calls {
		l := &f.Calls[i]
		switch {
		case !l.open(now.Sub(f.since)), l.Times > 0 && f.met[i] >= l.Times:
		case len(l.Operations) > 0 && !slices.Contains(l.Operations, op):
		case !chance(rng, orOne(l.Ratio)):
		default:
			f.met[i]++
			return l
		}
	}
	return nil
}

// launch is the planned fault that one launch meets; nil for none.
func (f *faultState) launch(now time.Time, zone string, spot bool, rng *rand.Rand) *LaunchFault {
	for i := range f.Launch {
		l := &f.Launch[i]
		switch {
		case !l.open(now.Sub(f.since)), l.Spot && !spot:
		case len(l.Zones) > 0 && !slices.Contains(l.Zones, zone):
		case chance(rng, orOne(l.Ratio)):
			return l
		}
	}
	return nil
}

func orOne(ratio float64) float64 {
	if ratio == 0 {
		return 1
	}
	return ratio
}

// chance draws only where there is something to draw, so that a certain fault
// does not change the rest of the run.
func chance(rng *rand.Rand, ratio float64) bool {
	return ratio >= 1 || (ratio > 0 && rng.Float64() < ratio)
}

// draw is how long one boot takes.
func (b Boot) draw(rng *rand.Rand) time.Duration {
	if b.P95 <= b.P50 {
		return b.P50
	}
	const z95 = 1.6448536269514722 // the standard normal distribution's 95 % quantile
	sigma := math.Log(float64(b.P95)/float64(b.P50)) / z95
	d := float64(b.P50) * math.Exp(sigma*rng.NormFloat64())
	return time.Duration(min(d, float64(MaxDuration))).Round(time.Millisecond)
}
