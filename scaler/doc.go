// Package scaler makes decisions come true: observe, decide, persist, act.
//
// [Fleet] looks at the waiting jobs and all pools at once and attributes each
// job to one pool. [Pool] is one pool's loop: its state belongs to one goroutine,
// others poke it. What it knows of its instances is a roster.Roster, what it
// decides is policy.Decide's. It never retries and never rate-limits: those are
// decorators of the provider that it is given.
package scaler
