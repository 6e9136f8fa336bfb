package ec2asg

import (
	"sync"
	"time"
)

const (
	// firstPause is what is suggested after a call that was throttled: AWS's buckets
	// fill every second.
	// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
	firstPause = time.Second
	// longestPause bounds the suggestion. With a longer one the control plane would take
	// the cloud for out of order.
	longestPause = 30 * time.Second
)

// pressure is how hard AWS pushes back. It never says when to come again, and the
// caller of one group can't know what the others were told: so that is kept here, for
// the whole process.
type pressure struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		pause  time.Duration
		raised time.Time
		last   time.Time
	}
}

// refused counts a call that was throttled, and says when to come again: twice as late
// for each pause in which it goes on, and as at first when it has been over for two.
func (p *pressure) refused() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case p.mu.pause == 0 || now.Sub(p.mu.last) > 2*p.mu.pause:
		p.mu.pause, p.mu.raised = firstPause, now
	case now.Sub(p.mu.raised) >= p.mu.pause:
		p.mu.pause, p.mu.raised = min(2*p.mu.pause, longestPause), now
	}
	p.mu.last = now
	return p.mu.pause
}
