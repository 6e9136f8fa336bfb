package fake

import (
	"errors"
	"fmt"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of one group's configuration.
const (
	// MaxInstances bounds the group's max [instances].
	MaxInstances = 20_000
	// MaxErrorWindows bounds Config.Errors and Config.Halts [entries].
	MaxErrorWindows = 1_000
	// MaxDuration bounds every duration of a Config.
	MaxDuration = 366 * 24 * time.Hour
)

// DefaultBoot is how long an instance takes from its launch until its runner
// registers: about what a cloud image with a preinstalled runner needs.
const DefaultBoot = time.Minute

// DefaultMax is the group's upper bound where nobody gives one [instances].
const DefaultMax = 100

// Config is one group: its bounds and how it misbehaves. [Defaults] is a cloud
// without a fault.
type Config struct {
	Boot    Boot `json:"boot"`
	Min     int  `json:"min"` // the group's own bounds [instances]
	Max     int  `json:"max"`
	Initial int  `json:"initial"` // instances in service at the start; they have registered
	// NeverRegister picks the instances that run and bill but never register.
	NeverRegister NeverRegister `json:"never_register"`
	Errors        []ErrorWindow `json:"errors"`
	Partial       float64       `json:"partial"`       // share of a request that is fulfilled, 0 to 1
	LateFill      time.Duration `json:"late_fill"`     // the rest is fulfilled so much later; 0 = never
	VisibleAfter  time.Duration `json:"visible_after"` // a launched instance is listed so much later
	Victim        Victim        `json:"victim"`
	Protected     bool          `json:"protected"` // new instances are protected from the group's own scale-in
	// AutoReplace: an instance that ends without a decrement of desired is replaced.
	// Otherwise desired falls with it.
	AutoReplace  bool    `json:"auto_replace"`
	PricePerHour float64 `json:"price"` // per instance
	// LaunchHook and TerminationHook hold each instance that is launched or ended until
	// CompleteHook, and at most for so long; 0 = there is no such hook. What a
	// terminating hook holds has left desired already; what a launching hook holds for
	// too long is ended.
	LaunchHook      time.Duration `json:"launch_hook"`
	TerminationHook time.Duration `json:"termination_hook"`
	Halts           []Halt        `json:"halts"`
	Kept            []string      `json:"kept"` // ids that somebody has marked as not to be touched
}

// Halt is a time in which the group launches or removes nothing, counted from the
// start. Calls that want it are refused as invalid.
type Halt struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
	// Launch and Removal say why, for a person; empty = not halted.
	Launch  string `json:"launch"`
	Removal string `json:"removal"`
}

// Boot is how long it takes from launch until the instance runs and registers:
// always P50 where P95 is not larger, else log-normal with these quantiles.
type Boot struct {
	P50 time.Duration `json:"p50" config:"required"`
	P95 time.Duration `json:"p95"`
}

// NeverRegister picks instances. Those in service at the start have registered
// already: only IDs can pick them.
type NeverRegister struct {
	Every int      `json:"every"` // each Every-th launch; 0 = none
	IDs   []string `json:"ids"`
	All   bool     `json:"all"`
}

// Delivery is how a typed error reaches the caller.
type Delivery string

// The deliveries.
const (
	ByCall     Delivery = "call"     // refused, desired unchanged
	ByActivity Delivery = "activity" // accepted, fails later, seen in the next status
)

// ErrorWindow makes calls fail from From to before To, counted from the start.
// Capacity, quota and invalid errors meet only calls that raise desired; the
// other kinds meet every write.
type ErrorWindow struct {
	From     time.Duration  `json:"from"`
	To       time.Duration  `json:"to"`
	Kind     pluginsdk.Kind `json:"kind"`
	Ratio    float64        `json:"ratio"` // of the calls (ByCall) or the instances (ByActivity)
	Delivery Delivery       `json:"delivery"`
	// RetryAfter is when the cloud says that it may be asked again; 0 = it doesn't say.
	RetryAfter time.Duration `json:"retry_after"`
}

// Victim is whom the group takes when desired is lowered without a name.
type Victim string

// The victims.
const (
	BusyFirst    Victim = "busy_first"
	Oldest       Victim = "oldest"
	RandomVictim Victim = "random"
)

// Defaults is a group that boots in a minute and keeps every promise.
func Defaults() Config {
	return Config{
		Boot:      Boot{P50: DefaultBoot},
		Max:       DefaultMax,
		Partial:   1,
		Victim:    RandomVictim,
		Protected: true,
	}
}

// Validate reports everything that is wrong with c, joined; nil for nothing.
func (c Config) Validate() error { return errors.Join(c.mistakes()...) }

func (c Config) mistakes() (errs []error) {
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	outside := func(d time.Duration) bool { return d < 0 || d > MaxDuration }
	check(outside(c.Boot.P50) || outside(c.Boot.P95), "boot: use 0s to %s", MaxDuration)
	check(c.Boot.P95 != 0 && c.Boot.P95 < c.Boot.P50, "boot: p95 %s is below p50 %s", c.Boot.P95, c.Boot.P50)
	check(c.Boot.P95 > c.Boot.P50 && c.Boot.P50 == 0, "boot: p50 must be above 0s where p95 is")
	check(c.Min < 0, "min %d is negative", c.Min)
	check(c.Max < c.Min || c.Max > MaxInstances, "max %d: use min (%d) to %d", c.Max, c.Min, MaxInstances)
	check(c.Initial < c.Min || c.Initial > c.Max, "initial %d is outside of min %d to max %d", c.Initial, c.Min, c.Max)
	check(c.NeverRegister.Every < 0, "never_register: every %d is negative", c.NeverRegister.Every)
	check(c.Partial < 0 || c.Partial > 1, "partial %g: use 0 to 1", c.Partial)
	check(outside(c.LateFill), "late_fill: use 0s to %s", MaxDuration)
	check(outside(c.VisibleAfter), "visible_after: use 0s to %s", MaxDuration)
	check(c.PricePerHour < 0, "price %g is negative", c.PricePerHour)
	check(outside(c.LaunchHook), "launch_hook: use 0s to %s", MaxDuration)
	check(outside(c.TerminationHook), "termination_hook: use 0s to %s", MaxDuration)
	check(len(c.Halts) > MaxErrorWindows, "%d halts, at most %d are allowed", len(c.Halts), MaxErrorWindows)
	for i, h := range c.Halts {
		check(h.From < 0 || h.To <= h.From, "halts[%d]: from %s to %s is not a span of time", i, h.From, h.To)
		check(h.Launch == "" && h.Removal == "", "halts[%d]: say why, with launch or removal", i)
	}
	check(len(c.Errors) > MaxErrorWindows, "%d errors, at most %d are allowed", len(c.Errors), MaxErrorWindows)
	switch c.Victim {
	case BusyFirst, Oldest, RandomVictim:
	default:
		check(true, "victim %q: use busy_first, oldest or random", c.Victim)
	}
	for i, w := range c.Errors {
		if err := w.validate(); err != nil {
			errs = append(errs, fmt.Errorf("errors[%d]: %w", i, err))
		}
	}
	return errs
}

func (w ErrorWindow) validate() error {
	switch {
	case !knownKind(w.Kind):
		return fmt.Errorf("kind %q: use capacity, quota, throttled, auth, invalid or transient", w.Kind)
	case w.From < 0 || w.To <= w.From:
		return fmt.Errorf("from %s to %s is not a span of time", w.From, w.To)
	case w.Ratio < 0 || w.Ratio > 1:
		return fmt.Errorf("ratio %g: use 0 to 1", w.Ratio)
	case w.RetryAfter < 0 || w.RetryAfter > MaxDuration:
		return fmt.Errorf("retry_after: use 0s to %s", MaxDuration)
	case w.Delivery != ByCall && w.Delivery != ByActivity:
		return fmt.Errorf("delivery %q: use call or activity", w.Delivery)
	}
	return nil
}

// knownKind reports whether k is a kind of error that a cloud gives by itself.
func knownKind(k pluginsdk.Kind) bool {
	switch k {
	case pluginsdk.KindCapacity, pluginsdk.KindQuota, pluginsdk.KindThrottled,
		pluginsdk.KindAuth, pluginsdk.KindInvalid, pluginsdk.KindTransient:
		return true
	default:
		return false
	}
}

// meets reports whether the window is open for a write at age since the start.
func (w ErrorWindow) meets(age time.Duration, raises bool) bool {
	if age < w.From || age >= w.To {
		return false
	}
	switch w.Kind {
	case pluginsdk.KindThrottled, pluginsdk.KindAuth, pluginsdk.KindTransient:
		return true
	default:
		return raises
	}
}
