// Package scenario reads stories: which jobs come when, what the cloud is like,
// what goes wrong, and what must be true afterwards.
//
// [Load] is strict. Unknown keys, times that can't be and names of pools or jobs
// that do not exist are all reported at once, each with file and line. The package
// only reads; internal/sim plays what was read and answers the expectations.
//
// What real clouds do, beyond a number and a list of instances:
//
//	cloud:
//	  linux:
//	    launch_hook: 10m         # holds each new instance until complete_hook, at most so long; then it is given up
//	    termination_hook: 1h     # holds each one that is ended: it bills, has left desired, and its jobs go on
//	    halts:                   # nothing is launched or removed, and the group's status says why
//	      - {from: 0s, to: 5m, launch: the process Launch is suspended, removal: the group is somebody else's}
//	    kept: [i-0001]           # marked as not to be touched from its launch
//	    errors:
//	      - {to: 20s, kind: throttled, retry_after: 7s}    # says when to ask again
//	events:
//	  - {at: 60s, interrupt: {pool: linux, nth: 0, notice: 2m, kind: spot, via: machine}}
//	  - {at: 60s, unhealthy: {pool: linux, nth: 0, via: machine}}
//	  - {at: 60s, keep: {pool: linux, nth: 0}}
//
// In the modes observe and route there is a GitLab, in which each instance has a runner
// of its own, and somebody may delete, pause or resume that:
//
//	mode: observe
//	events:
//	  - {at: 60s, runner: {pool: linux, nth: 0, fault: paused}}
//
// Where the scenario has no mode, its pools' own is meant, which must be one.
//
// An interruption is of kind spot (the default), maintenance or rebalance; the cloud
// takes the instance when notice is over, but for rebalance, after which nothing
// happens by itself. Via says whose word it is: provider (the default) or machine.
// Calls of complete_hook and report_unhealthy are counted under calls, and are no
// scale_calls.
package scenario
