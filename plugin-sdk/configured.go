package pluginsdk

import "sync/atomic"

// Configured holds what [Provider.Configure] made, once, for all other methods to
// read: clients, the groups. The zero value is not configured. It may be used
// concurrently; so must what it holds.
type Configured[T any] struct {
	value atomic.Pointer[T]
}

// Set keeps v, which is not nil. It is ErrInvalid the second time.
func (c *Configured[T]) Set(v *T) error {
	if !c.value.CompareAndSwap(nil, v) {
		return Errorf(KindInvalid, "configured already")
	}
	return nil
}

// Get returns what was set. It is ErrInvalid before.
func (c *Configured[T]) Get() (*T, error) {
	v := c.value.Load()
	if v == nil {
		return nil, Errorf(KindInvalid, "not configured")
	}
	return v, nil
}
