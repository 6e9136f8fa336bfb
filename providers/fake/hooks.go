package fake

import (
	"cmp"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// CompleteHook is Provider.CompleteHook.
func (c *Cloud) CompleteHook(now time.Time, ids []string) error {
	c.Advance(now)
	c.due.known = false
	if err := c.refusal(now, false); err != nil {
		return err
	}
	for _, id := range ids {
		in := c.byID[id]
		switch {
		case in == nil || !in.Exists():
		case in.Hook == pluginsdk.LaunchHook:
			in.Hook = pluginsdk.NoHook
		case in.Ending():
			c.end(now, in, in.cause)
		}
	}
	return nil
}

// ReportUnhealthy is Provider.ReportUnhealthy: the group ends the instances and
// launches others for them.
func (c *Cloud) ReportUnhealthy(now time.Time, ids []string) error {
	c.Advance(now)
	c.due.known = false
	if err := c.refusal(now, false); err != nil {
		return err
	}
	if _, why := c.halted(now); why != "" {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", why)
	}
	for _, id := range ids {
		if in := c.byID[id]; in != nil && in.Exists() && !in.Ending() {
			c.end(now, in, ByHealth)
		}
	}
	c.converge(now, ByHealth)
	return nil
}

// runOut ends the hook that held an instance for too long: what was launched is
// given up, what was being ended ends.
func (c *Cloud) runOut(at time.Time, in *Instance) {
	if in.holdsTill.After(at) {
		return
	}
	switch in.Hook {
	case pluginsdk.LaunchHook:
		c.lose(at, in, ByTimeout)
	case pluginsdk.TerminationHook:
		c.end(at, in, in.cause)
	case pluginsdk.NoHook:
	}
}

// serving is the instances that the group's number stands for.
func (c *Cloud) serving() int {
	n := 0
	for _, in := range c.alive {
		if !in.Ending() {
			n++
		}
	}
	return n
}

// halted is why the group launches or removes nothing at now; empty = it does.
func (c *Cloud) halted(now time.Time) (launch, removal string) {
	age := now.Sub(c.start)
	for _, h := range c.cfg.Halts {
		if age >= h.From && age < h.To {
			launch, removal = cmp.Or(launch, h.Launch), cmp.Or(removal, h.Removal)
		}
	}
	return launch, removal
}

// Break makes the nth instance ever launched unhealthy, as the cloud's own checks
// find it. It reports which; ok is false if there is none.
func (c *Cloud) Break(now time.Time, nth int) (id string, ok bool) {
	c.Advance(now)
	in := c.nth(nth)
	if in == nil {
		return "", false
	}
	in.Unhealthy = true
	return in.ID, true
}

// Keep is somebody marking the nth instance ever launched as not to be touched.
func (c *Cloud) Keep(now time.Time, nth int) (id string, ok bool) {
	c.Advance(now)
	in := c.nth(nth)
	if in == nil {
		return "", false
	}
	in.Kept = true
	return in.ID, true
}
