// Package sidecar watches the gitlab-runner beside which an agent runs: how many jobs
// it has, how many it could have, and whether its process is there. It has it stop (by
// SIGQUIT: no new jobs, and the end of the process when those that run have ended) and,
// where it can, start again.
//
// [Watch] is the whole: one goroutine, Run's, owns what is known, and hands each change
// on as a [State]. Package agent says it to the router.
//
// What can't be seen is not idle. Three things make a runner idle: metrics that answered
// a moment ago and name no job, while nobody has told it to stop; no process; nothing
// else. Once it was told to stop, only the end of its process proves that it has no job:
// it may have been handed one that its metrics don't show yet.
//
// It never ends a job. Only a runner that the sidecar itself has started ends with the
// sidecar, and by SIGTERM only when the sidecar is told to leave at once.
package sidecar
