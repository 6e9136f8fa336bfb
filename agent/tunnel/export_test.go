package tunnel

import "time"

// WithStuckFor returns r with another time than ten minutes.
func (r Router) WithStuckFor(d time.Duration) Router {
	r.stuckFor = d
	return r
}
