package scaler

import "github.com/spillway-ci/spillway"

// Definition is the pool as it is defined now.
func (p *Pool) Definition() spillway.Pool { return *p.def.Load() }

// Reconfigure gives a pool other rules, from its next tick on; of several that come
// before that tick the last counts. It reports whether the loop has the pool.
func (l *Loop) Reconfigure(cfg PoolConfig) bool {
	for _, d := range l.drivers {
		if d.pool.Name() != cfg.Pool.Name {
			continue
		}
		select {
		case <-d.reconfig: // it has not been taken up: it is out of date
		default:
		}
		select {
		case d.reconfig <- cfg:
		default: // another caller was quicker
		}
		return true
	}
	return false
}
