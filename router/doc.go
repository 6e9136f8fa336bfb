// Package router decides which machine takes which job.
//
// It is a core: [Match] says whether a runner can take a job and which predicate
// failed if not, [Next] is the one table of job states, and [Engine] keeps the
// machines of one replica and turns free places into claims and assignments.
// Inputs go in, values come out; streams, timers and the store are
// router/session's.
package router
