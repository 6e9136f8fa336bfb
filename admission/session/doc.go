// Package session is the shell around admission.Engine: the streams of controllers, and
// the reviewer that claims jobs for review, has them looked at, and writes down what
// became of them.
//
// One goroutine, the reviewer's, owns the engine. Streams hand it what they are told
// through one bounded inbox and are talked to through one bounded outbox each. Calls to
// the store are made beside it.
//
// A job under review holds no place on a machine. It is claimed by a replica at which
// its next controller is connected, and goes back to the queue, with the approvals that
// it has, when the one after that is not. Which replica that is does not matter: replicas
// say in the store what is connected to them, and a job whose controller is connected to
// none fails once that has been so for the controller's deadline.
//
// Jobs of GitLab are in no queue of ours. Whoever holds one asks ([Reviewer.Ask]); a
// controller that is connected elsewhere is asked there, through the store's facts.
package session
