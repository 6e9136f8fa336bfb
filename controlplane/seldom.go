package controlplane

import (
	"sync"
	"time"
)

// sayEvery is how often trouble is logged that every request of a fleet meets: often
// enough to see that it goes on, and seldom enough to leave room for its cause.
const sayEvery = 10 * time.Second

// seldom holds back what would be said for every request. It is safe for concurrent use.
type seldom struct {
	mu struct {
		sync.Mutex
		said   time.Time
		unsaid int
	}
}

// say calls f with how often it was held back, unless it was called within sayEvery.
func (s *seldom) say(now time.Time, f func(unsaid int)) {
	s.mu.Lock()
	if now.Sub(s.mu.said) < sayEvery {
		s.mu.unsaid++
		s.mu.Unlock()
		return
	}
	unsaid := s.mu.unsaid
	s.mu.said, s.mu.unsaid = now, 0
	s.mu.Unlock()
	f(unsaid)
}
