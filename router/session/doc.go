// Package session is the shell around router.Engine: the streams of the runners,
// the dispatcher that feeds the engine and carries out what it says against the
// queue, and the JobService through which jobs come in and are watched.
//
// One goroutine, the dispatcher's, owns the engine and everything that is known
// of connected machines. Streams talk to it through one bounded inbox and are
// talked to through one bounded outbox each; a stream whose outbox is full is
// ended, so that a slow or hostile runner can never hold the dispatcher up. All
// calls to the store are made beside the dispatcher, in batches, and their answers
// come back to it as values: while the store is away the dispatcher goes on
// listening, holds what it has, and repeats what was not confirmed.
//
// What a machine can take comes from the pool that its token names. Nothing that
// a machine says is believed about a job that is not assigned to it.
//
// The package decides nothing about who gets which job (package router does), and
// nothing about how many machines there are (package scaler does: it reads the
// machine records that are written here, and its drain orders are carried out
// here).
package session
