// Package agent is the runner side of Spillway: it keeps one stream to a router,
// takes the jobs that come over it, runs them with package shell and reports how
// they ended.
//
// [Run] is the whole life of one machine: register, heartbeat, take or refuse
// jobs, drain, leave. When the stream breaks it connects again, with backoff and
// with the same machine id, and says which jobs it still has; a result is kept
// until the router has acknowledged it.
//
// One goroutine, Run's, owns all state. The stream's reader and writer and the
// goroutine of each job talk to it through channels; it never waits for any of
// them.
//
// What its cloud says of its instance (package agent/notices) and what its own check
// says of itself (package agent/health) it hands on to the router, and takes no new
// job that could be lost.
//
// Beside another runner (package agent/sidecar) it takes no jobs: it says what that one
// has, and hands orders to drain on to it.
//
// The package decides nothing: not which job to take (it takes what it is given
// while it has places), not when to leave (the router or a signal says so). A job
// that is cut short because the machine has to go is not reported as ended: the
// router sees the machine leave with it, and gives it to another one.
package agent
