package fake

import (
	"fmt"
	"math"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Advance lets everything happen that is due at now, in the order of time.
func (c *Cloud) Advance(now time.Time) {
	for {
		at, ok := c.next()
		if !ok || at.After(now) {
			return
		}
		c.happen(at)
	}
}

// NextChange is when something will happen next without a call; ok is false if
// nothing will.
func (c *Cloud) NextChange(now time.Time) (at time.Time, ok bool) {
	c.Advance(now)
	return c.next()
}

// next is the earliest thing that has not happened yet. It is asked for all the
// time and changes rarely, so it is remembered until something is done.
func (c *Cloud) next() (at time.Time, ok bool) {
	if !c.due.known {
		at, ok := c.earliest()
		c.due = moment{known: true, some: ok, at: at}
	}
	return c.due.at, c.due.some
}

func (c *Cloud) earliest() (at time.Time, ok bool) {
	consider := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, in := range c.alive {
		if !in.ready {
			consider(in.ReadyAt)
		}
		consider(in.Interrupted)
		if in.Hook != pluginsdk.NoHook {
			consider(in.holdsTill)
		}
	}
	for _, r := range c.requests {
		consider(r.at)
	}
	return at, ok
}

// happen does everything that is due exactly at: ends first, then launches, then
// instances that are ready, so that an instance that is taken at the moment when
// it would be ready never is.
func (c *Cloud) happen(at time.Time) {
	c.due.known = false
	for _, in := range slices.Clone(c.alive) {
		if !in.Interrupted.IsZero() && !in.Interrupted.After(at) {
			c.lose(at, in, Interruption)
		}
		c.runOut(at, in)
	}
	waiting := c.requests
	c.requests = nil
	for _, r := range waiting {
		if r.at.IsZero() || r.at.After(at) {
			c.requests = append(c.requests, r)
			continue
		}
		c.launch(at, r.count-c.fail(at, r.count))
	}
	for _, in := range slices.Clone(c.alive) {
		if !in.ready && !in.ReadyAt.After(at) {
			in.ready = true
			c.tell(Change{At: at, Kind: Ready, ID: in.ID, Registers: in.Registers})
		}
	}
}

// converge makes the group want what desired says: it asks for what is missing,
// or takes back and ends what is too much.
func (c *Cloud) converge(now time.Time, cause Cause) {
	gap := c.desired - c.serving() - c.outstanding()
	switch {
	case gap > 0:
		c.request(now, gap)
	case gap < 0:
		c.shrink(now, -gap, cause)
	}
}

// request asks the cloud for n instances. Some fail, some come late, some never.
func (c *Cloud) request(now time.Time, n int) {
	n -= c.fail(now, n)
	filled := int(math.Round(float64(n) * c.cfg.Partial))
	if rest := n - filled; rest > 0 {
		r := request{count: rest}
		if c.cfg.LateFill > 0 {
			r.at = now.Add(c.cfg.LateFill)
		}
		c.requests = append(c.requests, r)
	}
	c.launch(now, filled)
}

// fail draws how many of n launches fail at now after they were accepted. They
// are tried again later.
func (c *Cloud) fail(now time.Time, n int) (failed int) {
	for _, w := range c.cfg.Errors {
		if w.Delivery != ByActivity || !w.meets(now.Sub(c.start), true) {
			continue
		}
		hit := 0
		for range n - failed {
			if c.chance(w.Ratio) {
				hit++
			}
		}
		if hit == 0 {
			continue
		}
		failed += hit
		c.failureNo++
		c.failures = append(c.failures, pluginsdk.GroupFailure{
			ID: fmt.Sprintf("activity-%d", c.failureNo), Kind: w.Kind, At: now,
			Message: fmt.Sprintf("%d of %d launches failed", hit, n),
		})
		c.failures = c.failures[max(0, len(c.failures)-maxFailures):]
	}
	if failed > 0 {
		c.requests = append(c.requests, request{count: failed, at: now.Add(retryEvery)})
	}
	return failed
}

func (c *Cloud) launch(now time.Time, n int) {
	for range n {
		in := c.newInstance(now, c.boot())
		c.tell(Change{At: now, Kind: Launched, ID: in.ID})
		if !in.ReadyAt.After(now) {
			in.ready = true
			c.tell(Change{At: now, Kind: Ready, ID: in.ID, Registers: in.Registers})
		}
	}
}

// shrink takes back what is not there yet, then ends unprotected instances. What
// is protected stays, however low desired is.
func (c *Cloud) shrink(now time.Time, n int, cause Cause) {
	open := min(n, c.outstanding())
	c.cancel(open)
	for _, in := range c.victims(n - open) {
		c.end(now, in, cause)
	}
}

func (c *Cloud) victims(n int) []*Instance {
	var list []*Instance
	for _, in := range c.alive {
		if !in.Protected && !in.Ending() {
			list = append(list, in)
		}
	}
	switch c.cfg.Victim {
	case BusyFirst:
		slices.SortStableFunc(list, func(a, b *Instance) int { return c.busy(b.ID) - c.busy(a.ID) })
	case RandomVictim:
		c.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case Oldest:
	}
	return list[:min(n, len(list))]
}

func (c *Cloud) busy(id string) int {
	if c.Busy != nil && c.Busy(id) {
		return 1
	}
	return 0
}

// outstanding is the instances that were asked for and are not there yet.
func (c *Cloud) outstanding() int {
	n := 0
	for _, r := range c.requests {
		n += r.count
	}
	return n
}

// cancel drops n of the outstanding instances, the last asked for first.
func (c *Cloud) cancel(n int) {
	for n > 0 && len(c.requests) > 0 {
		last := &c.requests[len(c.requests)-1]
		take := min(n, last.count)
		last.count -= take
		n -= take
		if last.count == 0 {
			c.requests = c.requests[:len(c.requests)-1]
		}
	}
}

// end ends an instance. A terminating hook holds it first, but for what the cloud
// takes: that it takes at its own time.
func (c *Cloud) end(now time.Time, in *Instance, cause Cause) {
	if c.cfg.TerminationHook > 0 && cause != Interruption && !in.Ending() {
		in.Hook, in.holdsTill, in.cause = pluginsdk.TerminationHook, now.Add(c.cfg.TerminationHook), cause
		c.tell(Change{At: now, Kind: Held, ID: in.ID, Cause: cause})
		return
	}
	in.EndedAt = now
	in.Interrupted, in.Hook = time.Time{}, pluginsdk.NoHook
	c.alive = slices.DeleteFunc(c.alive, func(o *Instance) bool { return o == in })
	c.tell(Change{At: now, Kind: Ended, ID: in.ID, Cause: cause})
}

// lose ends an instance without a decrement. The group replaces it, or desired
// falls with it; it never falls below min, and not because of an instance that
// was more than desired.
func (c *Cloud) lose(now time.Time, in *Instance, cause Cause) {
	counted := !in.Ending()
	c.end(now, in, cause)
	if !counted {
		return
	}
	if !c.cfg.AutoReplace && c.desired > c.serving()+c.outstanding() {
		c.desired = max(c.desired-1, c.cfg.Min)
	}
	c.converge(now, cause)
}

func (c *Cloud) tell(ch Change) {
	if c.Observe != nil {
		c.Observe(ch)
	}
}

// nth is the nth instance ever launched, if it still exists.
func (c *Cloud) nth(n int) *Instance {
	if n < 0 || n >= len(c.all) || !c.all[n].Exists() {
		return nil
	}
	return c.all[n]
}

// Kill is somebody else ending the nth instance ever launched, 0 = the first. It
// reports which; ok is false if there is none.
func (c *Cloud) Kill(now time.Time, nth int) (id string, ok bool) {
	c.Advance(now)
	c.due.known = false
	in := c.nth(nth)
	if in == nil {
		return "", false
	}
	c.lose(now, in, BySomebody)
	return in.ID, true
}

// Interrupt is the cloud's notice that it takes the nth instance at now + notice.
func (c *Cloud) Interrupt(now time.Time, nth int, notice time.Duration) (pluginsdk.Interruption, bool) {
	c.Advance(now)
	c.due.known = false
	in := c.nth(nth)
	if in == nil {
		return pluginsdk.Interruption{}, false
	}
	in.Interrupted = now.Add(notice)
	told := pluginsdk.Interruption{InstanceID: in.ID, Kind: pluginsdk.SpotInterruption, Deadline: in.Interrupted}
	c.Advance(now) // no notice: it goes at once
	return told, true
}

// SetDesiredExternally is somebody else setting the group's number, within the
// group's bounds. It returns the number before.
func (c *Cloud) SetDesiredExternally(now time.Time, to int) (before int) {
	c.Advance(now)
	c.due.known = false
	before = c.desired
	c.desired = min(max(to, c.cfg.Min), c.cfg.Max)
	c.converge(now, BySomebody)
	return before
}
