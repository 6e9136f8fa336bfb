package migstub

import (
	"slices"
	"time"
)

// maxCalls is how many calls are remembered, the newest [calls].
const maxCalls = 100_000

// Call is a call that came in.
type Call struct {
	At     time.Time
	Op     string // such as instanceGroupManagers.resize; "" = no such thing
	Group  string // that it is about, if it is about one
	Path   string
	Query  string
	Body   string
	Status int    // HTTP status of the answer; 0 = there was none
	Reason string // of an error
}

type callLog struct {
	list  []Call
	count map[string]int
}

func newCallLog() callLog { return callLog{count: make(map[string]int)} }

func (l *callLog) add(call Call) {
	if len(l.list) == maxCalls {
		l.list = slices.Delete(l.list, 0, maxCalls/10)
	}
	l.list = append(l.list, call)
	l.count[call.Op]++
}

// Calls is the calls that came in since the start or the last ResetCalls, the
// refused ones too, by arrival; the newest 100000.
func (c *Cloud) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls.list)
}

// CountOf is how often the operation was called, such as
// instanceGroupManagers.resize, or resize for every kind of group.
func (c *Cloud) CountOf(op string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, count := range c.calls.count {
		if name != "" && sameOp(op, name) {
			n += count
		}
	}
	return n
}

// ResetCalls forgets the calls.
func (c *Cloud) ResetCalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = newCallLog()
}

// RateLimit is a quota of calls. Google's is per minute, and is full again when
// the next minute of the clock begins (compute/docs/api-rate-limits).
type RateLimit struct {
	Calls  int           `json:"calls"`  // in each period; 0 = no limit
	Per    time.Duration `json:"per"`    // 0 = a minute
	Status int           `json:"status"` // 403 (= 0) or 429
}

type rateWindow struct {
	begin time.Time
	calls int
}

// overRate counts a call and reports whether it is one too many.
func (c *Cloud) overRate(now time.Time) bool {
	if c.rate.Calls == 0 {
		return false
	}
	per := c.rate.Per
	if per == 0 {
		per = time.Minute
	}
	if begin := now.Truncate(per); !begin.Equal(c.window.begin) {
		c.window = rateWindow{begin: begin}
	}
	c.window.calls++
	return c.window.calls > c.rate.Calls
}
