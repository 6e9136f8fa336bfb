package session

import "time"

const (
	// stillFor is how late a turn has to be for the dispatcher to have stood still. A turn
	// of a busy one takes milliseconds.
	stillFor = 2 * time.Second
	// hearFor is how long it only listens then: what waits in connections takes that long
	// at most, also where everything starts to move again at once.
	hearFor = time.Second
)

// standstill is when the dispatcher itself stood still, as with a process that is stopped,
// or with a machine that sleeps or is moved. What was said to it meanwhile waits in the
// connections. Until that is heard nobody may be judged by his silence: every machine
// would be gone, and with it jobs that run would be given to another one.
type standstill struct {
	due    time.Time // when the next turn is to begin; zero: there was none yet
	until  time.Time // nobody is judged before
	judged bool      // since then: who stands still again and again still has to judge
}

// rest is how long nobody is to be judged from now on.
func (s *standstill) rest(now time.Time) time.Duration {
	if s.judged && now.Sub(s.due) > stillFor {
		s.until, s.judged = now.Add(hearFor), false
	}
	if rest := s.until.Sub(now); rest > 0 {
		return rest
	}
	s.judged = true
	return 0
}
