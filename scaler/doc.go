// Package scaler makes decisions come true: observe, decide, persist, act.
//
// [Fleet] looks at the waiting jobs and all pools at once and attributes each
// job to one pool. [Pool] is one pool's loop: its state belongs to one goroutine,
// others poke it. What it knows of its instances is a roster.Roster, what it
// decides is policy.Decide's. It never retries and never rate-limits: those are
// decorators of the provider that it is given. A provider that throttles and says
// when to ask again within half a minute is asked again exactly then, and by nobody
// before; after any other refusal the pool cools off.
//
// A loop that ends, as at SIGTERM, leaves everything as it is. Instances go on with
// their jobs, drains stay ordered, hooks go on holding; the lease is given back, and
// the next owner goes on from the pool's memory, or without one from the lists and
// the heartbeats. Nothing is ever ended because a control plane ends: whoever wants
// a fleet gone sets max to 0 first and waits.
package scaler
