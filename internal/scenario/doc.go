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
// Admission controllers are configured as for serve. Which of them are there, and what
// they say, is the story's; one that it does not name never connects. Each instance
// answers for one job after the other, and refuses those that any of the lists names; one
// of another cell is called there cell/ORIGIN/JOB/ATTEMPT.
//
//	config:
//	  admission: {controllers: [{name: images, deadline: 30s}, {name: budget, scope: project, projects: [7]}]}
//	controllers:
//	  images: {instances: 2, takes: 200ms, batch: 8, refuses: {jobs: [bad], tags: [gpu], projects: [9]}}
//	  budget: {replica: 1, from: 20s}    # connects to that replica only; else to any, as machines do
//	events:
//	  - {at: 60s, controller: {name: images, nth: 0, fault: gone, for: 30s}}       # without nth: all instances
//	  - {at: 90s, controller: {name: images, fault: slow, takes: 45s, for: 5m}}    # gone | silent | slow | lies
//
// Several cells are stories beside each other, which share the time. Each has what a story
// has but for seed, mode, duration and expect; its events are its own. Every peer that a
// configuration names is a cell of the story, and needs no address.
//
//	config:
//	  cells: {name: east, spill_after: 1m, peers: [{name: west}]}
//	cells:
//	  west:
//	    replicas: 2
//	    config:
//	      cells: {name: west}
//	      pools: [{name: west-linux, capability: {tags: [docker]}, policy: {min: 2, max: 2}}]
//	    events:
//	      - {at: 60s, offers: {fault: lie, free: 50, for: 5m}}    # lie | stale: what it says that it has
//	events:
//	  - {at: 60s, link: {to: west, fault: cut, for: 5m}}          # cut | stalled: nothing comes through, then all of it, late
//
// Expectations may speak of one job (job.ID.{wait,starts,reviews,completed,failed,rejected,
// canceled}), of the reasons of failures (failures.admission_timeout), of a controller
// (controller.NAME.{asked,allowed,refused}), of what was handed over to a peer
// (handed.CELL.{over,ended,back}), and of another cell as of this one (cell.NAME.jobs.completed).
//
// Beside the invariants of the design, these are looked at in every story: I13, no job
// begins that not every controller has approved which it needs, in their order; I14, no job
// runs in two cells; I15, who has approved a job is not asked of it again. I11 holds for
// other cells, too: nothing is handed over before it has waited for spill_after, nor while
// a machine of its own cell is free for it.
//
// An interruption is of kind spot (the default), maintenance or rebalance; the cloud
// takes the instance when notice is over, but for rebalance, after which nothing
// happens by itself. Via says whose word it is: provider (the default) or machine.
// Calls of complete_hook and report_unhealthy are counted under calls, and are no
// scale_calls.
package scenario
