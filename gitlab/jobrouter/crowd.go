package jobrouter

import (
	"time"

	"github.com/spillway-ci/spillway"
)

// backWithin is how long a machine that was told that there is no job counts as waiting
// still: GitLab Runner asks again within its check_interval of 3 s, if it is there.
const backWithin = 5 * time.Second

// crowd is which pools have a machine that waits for a job, and since when. It has no
// clock: time is an argument.
type crowd struct {
	pools map[string]*waiting
}

// waiting is the machines of one pool that wait.
type waiting struct {
	standing int                              // questions that are open
	away     map[spillway.MachineID]time.Time // machines that ask again soon: until when that is believed
	since    time.Time                        // since when there is one or the other, without a break
}

// come notes that a machine asks. first: none of its pool did before.
func (c *crowd) come(pool string, id spillway.MachineID, now time.Time) (first bool) {
	w := c.at(pool, now)
	if w == nil {
		first = true
		w = &waiting{away: map[spillway.MachineID]time.Time{}, since: now}
		if c.pools == nil {
			c.pools = map[string]*waiting{}
		}
		c.pools[pool] = w
	}
	w.standing++
	delete(w.away, id)
	return first
}

// leave notes that a machine asks no longer; back: it was told that there is no job, and
// asks again soon. last: no other one of its pool waits.
func (c *crowd) leave(pool string, id spillway.MachineID, back bool, now time.Time) (last bool) {
	w := c.at(pool, now)
	if w == nil || w.standing == 0 {
		return false
	}
	w.standing--
	if back {
		w.away[id] = now.Add(backWithin)
	}
	return c.at(pool, now) == nil
}

// since returns since when some machine of a pool waits; ok is false if none does.
func (c *crowd) since(pool string, now time.Time) (since time.Time, ok bool) {
	w := c.at(pool, now)
	if w == nil {
		return time.Time{}, false
	}
	return w.since, true
}

// at is the waiting machines of a pool, nil if there are none any more.
func (c *crowd) at(pool string, now time.Time) *waiting {
	w := c.pools[pool]
	if w == nil || w.standing > 0 {
		return w
	}
	w.forget(now)
	if len(w.away) == 0 {
		delete(c.pools, pool)
		return nil
	}
	return w
}

// forget drops machines that were expected back and didn't come.
func (w *waiting) forget(now time.Time) {
	for id, until := range w.away {
		if !now.Before(until) {
			delete(w.away, id)
		}
	}
}

// sweep drops all such machines. It only keeps them from piling up.
func (c *crowd) sweep(now time.Time) {
	for pool, w := range c.pools {
		w.forget(now)
		c.at(pool, now)
	}
}
