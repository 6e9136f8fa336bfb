package fake

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// retryEvery is how often the group tries again to launch what failed after it
	// was accepted; clouds retry within a minute.
	retryEvery = 30 * time.Second
	// maxFailures is how many failures a status shows, the newest [entries].
	maxFailures = 50
)

// Cause is why an instance ended.
type Cause string

// The causes.
const (
	ByName       Cause = "removed"     // Remove named it
	ByScaleIn    Cause = "scale_in"    // desired was lowered by SetDesired and the group chose
	BySomebody   Cause = "external"    // somebody else ended it or lowered desired
	Interruption Cause = "interrupted" // the cloud took it back
	ByHealth     Cause = "unhealthy"   // the group replaces it: ReportUnhealthy named it
	ByTimeout    Cause = "timeout"     // its launching hook ran out
)

// ChangeKind is what happened to an instance.
type ChangeKind int

// The changes of an instance, in order.
const (
	Launched ChangeKind = iota + 1
	Ready               // it runs; its runner registers now, if it ever does
	Held                // it is being ended, and a hook holds it
	Ended
)

// Change is told to the observer of a Cloud.
type Change struct {
	At        time.Time
	Kind      ChangeKind
	ID        string
	Registers bool  // with Ready: its runner registers
	Cause     Cause // with Held and Ended
}

// Instance is one instance that exists or existed.
type Instance struct {
	ID          string
	LaunchedAt  time.Time
	ReadyAt     time.Time
	Registers   bool
	Protected   bool
	Interrupted time.Time // when the cloud takes it; zero = it does not
	EndedAt     time.Time // zero = it exists
	Unhealthy   bool
	Kept        bool
	Hook        pluginsdk.Hook // what holds it

	ready     bool      // ReadyAt has passed
	holdsTill time.Time // with Hook: when that runs out
	cause     Cause     // with TerminationHook: who ends it
}

// Exists reports whether the instance has not ended.
func (i *Instance) Exists() bool { return i.EndedAt.IsZero() }

// Ending reports whether the instance is being ended: it bills still, and has left
// the group's desired number.
func (i *Instance) Ending() bool { return i.Hook == pluginsdk.TerminationHook }

// Cloud is one group. It belongs to one goroutine. Time is given to every method
// and never goes backwards; each method first lets happen what is due.
type Cloud struct {
	// Busy says whether an instance has jobs. Only Victim BusyFirst asks; nil = none has.
	Busy func(id string) bool
	// Observe is told each change at the time when it happens; nil = nobody is.
	Observe func(Change)

	cfg       Config
	start     time.Time
	rng       *rand.Rand
	desired   int
	all       []*Instance // by launch, for ever
	byID      map[string]*Instance
	alive     []*Instance // those that exist, by launch
	requests  []request
	failures  []pluginsdk.GroupFailure
	failureNo int
	due       moment
}

// moment is when something happens next, as far as it has been worked out.
type moment struct {
	known bool
	some  bool // false: nothing happens
	at    time.Time
}

// request is instances that were asked for and are not there yet.
type request struct {
	count int
	at    time.Time // when they come, or are tried again; zero = never
}

// NewCloud makes a group that exists since start, with cfg.Initial instances in
// service. cfg must be valid. Equal arguments and calls give equal answers. The
// observer misses the first instances: see Instances.
func NewCloud(cfg Config, start time.Time, seed uint64) *Cloud {
	c := &Cloud{
		cfg:     cfg,
		start:   start,
		rng:     rand.New(rand.NewPCG(seed, 0x5b11a)), //nolint:gosec // repeatable, not secret
		desired: cfg.Initial,
		byID:    make(map[string]*Instance),
	}
	for range cfg.Initial {
		in := c.newInstance(start, 0)
		in.Registers = !slices.Contains(cfg.NeverRegister.IDs, in.ID)
		in.ready, in.Hook = true, pluginsdk.NoHook
	}
	return c
}

// Instances returns every instance that exists or existed, by launch.
func (c *Cloud) Instances() []Instance {
	out := make([]Instance, len(c.all))
	for i, in := range c.all {
		out[i] = *in
	}
	return out
}

// Existing returns the instances that exist, by launch. They are the cloud's own:
// nobody may change them, and a later call changes the slice.
func (c *Cloud) Existing() []*Instance { return c.alive }

// Live is the number of instances that exist, booting ones too.
func (c *Cloud) Live() int { return len(c.alive) }

// Desired is the group's own number.
func (c *Cloud) Desired() int { return c.desired }

// PricePerHour is the price of one instance.
func (c *Cloud) PricePerHour() float64 { return c.cfg.PricePerHour }

// Max is the group's own upper bound.
func (c *Cloud) Max() int { return c.cfg.Max }

// Status is the group at now; the caller fills in its name.
func (c *Cloud) Status(now time.Time) pluginsdk.GroupStatus {
	c.Advance(now)
	st := pluginsdk.GroupStatus{
		Desired:      c.desired,
		Min:          c.cfg.Min,
		Max:          c.cfg.Max,
		InTransition: c.outstanding() > 0 || slices.ContainsFunc(c.alive, (*Instance).inTransition),
		Failures:     slices.Clone(c.failures),
	}
	st.LaunchHalt, st.RemovalHalt = c.halted(now)
	return st
}

func (i *Instance) inTransition() bool { return !i.ready || i.Hook != pluginsdk.NoHook }

// List returns the instances that can be seen at now.
func (c *Cloud) List(now time.Time) []pluginsdk.Instance {
	c.Advance(now)
	out := make([]pluginsdk.Instance, 0, len(c.alive))
	for _, in := range c.alive {
		if now.Before(c.visibleAt(in)) {
			continue
		}
		out = append(out, pluginsdk.Instance{
			ID: in.ID, State: in.state(), LaunchedAt: in.LaunchedAt, Protected: in.Protected,
			Unhealthy: in.Unhealthy, Hook: in.Hook, Kept: in.Kept,
		})
	}
	return out
}

func (i *Instance) state() pluginsdk.InstanceState {
	switch {
	case i.Ending():
		return pluginsdk.StateDeleting
	case !i.ready || i.Hook == pluginsdk.LaunchHook:
		return pluginsdk.StateCreating
	default:
		return pluginsdk.StateRunning
	}
}

// SetDesired is Provider.SetDesired.
func (c *Cloud) SetDesired(now time.Time, target, expected int) (int, error) {
	c.Advance(now)
	c.due.known = false
	switch {
	case target == c.desired:
		return c.desired, nil
	case expected != c.desired:
		return c.desired, pluginsdk.Conflict(c.desired)
	case target < c.cfg.Min || target > c.cfg.Max:
		return c.desired, pluginsdk.Errorf(pluginsdk.KindInvalid,
			"desired %d is outside of the group's bounds %d to %d", target, c.cfg.Min, c.cfg.Max)
	}
	if err := c.refusal(now, target > c.desired); err != nil {
		return c.desired, err
	}
	if why, _ := c.halted(now); why != "" && target > c.desired {
		return c.desired, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", why)
	}
	c.desired = target
	c.converge(now, ByScaleIn)
	return c.desired, nil
}

// Remove is Provider.Remove.
func (c *Cloud) Remove(now time.Time, ids []string) ([]pluginsdk.RemoveResult, error) {
	c.Advance(now)
	c.due.known = false
	if err := c.refusal(now, false); err != nil {
		return nil, err
	}
	if _, why := c.halted(now); why != "" {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", why)
	}
	results := make([]pluginsdk.RemoveResult, len(ids))
	for i, id := range ids {
		results[i] = c.removeOne(now, id)
	}
	c.converge(now, ByScaleIn)
	return results, nil
}

func (c *Cloud) removeOne(now time.Time, id string) pluginsdk.RemoveResult {
	in := c.byID[id]
	switch {
	case in == nil || !in.Exists() || in.Ending():
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.AlreadyGone}
	case in.Kept:
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.NotRemoved, Err: pluginsdk.Errorf(
			pluginsdk.KindInvalid, "somebody has marked it as not to be touched")}
	case c.desired-1 < c.cfg.Min:
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.NotRemoved, Err: pluginsdk.Errorf(
			pluginsdk.KindInvalid, "desired would fall below the group's min %d", c.cfg.Min)}
	}
	c.desired--
	c.end(now, in, ByName)
	return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed}
}

// Withdraw is Provider.Withdraw.
func (c *Cloud) Withdraw(now time.Time, expected int) (pluginsdk.WithdrawResult, error) {
	c.Advance(now)
	c.due.known = false
	if expected != c.desired {
		return pluginsdk.WithdrawResult{Desired: c.desired}, pluginsdk.Conflict(c.desired)
	}
	if err := c.refusal(now, false); err != nil {
		return pluginsdk.WithdrawResult{Desired: c.desired}, err
	}
	n := min(c.outstanding(), c.desired-c.cfg.Min)
	c.cancel(n)
	c.desired -= n
	return pluginsdk.WithdrawResult{Desired: c.desired, Withdrawn: n}, nil
}

// Protect switches the protection from the group's own scale-in.
func (c *Cloud) Protect(now time.Time, ids []string, protected bool) error {
	c.Advance(now)
	c.due.known = false
	for _, id := range ids {
		if in := c.byID[id]; in == nil || !in.Exists() {
			return pluginsdk.Errorf(pluginsdk.KindInvalid, "no instance %s", id)
		}
	}
	for _, id := range ids {
		c.byID[id].Protected = protected
	}
	c.converge(now, ByScaleIn)
	return nil
}

// refusal is the error that an open window with delivery by call gives to a write.
func (c *Cloud) refusal(now time.Time, raises bool) error {
	for _, w := range c.cfg.Errors {
		if w.Delivery == ByCall && w.meets(now.Sub(c.start), raises) && c.chance(w.Ratio) {
			err := pluginsdk.Errorf(w.Kind, "the fake cloud refuses this call")
			err.RetryAfter = w.RetryAfter
			return err
		}
	}
	return nil
}

// chance draws only where there is something to draw, so that a certain fault
// does not change the rest of the run.
func (c *Cloud) chance(ratio float64) bool {
	return ratio >= 1 || (ratio > 0 && c.rng.Float64() < ratio)
}

// boot is how long the next instance takes.
func (c *Cloud) boot() time.Duration {
	b := c.cfg.Boot
	if b.P95 <= b.P50 {
		return b.P50
	}
	const z95 = 1.6448536269514722 // the standard normal distribution's 95 % quantile
	sigma := math.Log(float64(b.P95)/float64(b.P50)) / z95
	d := float64(b.P50) * math.Exp(sigma*c.rng.NormFloat64())
	return time.Duration(min(d, float64(MaxDuration))).Round(time.Millisecond)
}

func (c *Cloud) visibleAt(in *Instance) time.Time { return in.LaunchedAt.Add(c.cfg.VisibleAfter) }

// newInstance adds one that is launched now.
func (c *Cloud) newInstance(now time.Time, boot time.Duration) *Instance {
	n := len(c.all) + 1
	never := c.cfg.NeverRegister
	in := &Instance{
		ID:         fmt.Sprintf("i-%04d", n),
		LaunchedAt: now,
		ReadyAt:    now.Add(boot),
		Protected:  c.cfg.Protected,
	}
	if c.cfg.LaunchHook > 0 {
		in.Hook, in.holdsTill = pluginsdk.LaunchHook, now.Add(c.cfg.LaunchHook)
	}
	in.Kept = slices.Contains(c.cfg.Kept, in.ID)
	in.Registers = !never.All && (never.Every == 0 || n%never.Every != 0) && !slices.Contains(never.IDs, in.ID)
	c.all = append(c.all, in)
	c.alive = append(c.alive, in)
	c.byID[in.ID] = in
	return in
}
