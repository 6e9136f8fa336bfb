// Package collect gathers the waiting jobs from their sources into a demand.View.
//
// [Queue] is the router's own queue. [GitLab] is the jobs that a GitLab hands out:
// the replica that holds a lease lists them by the API at each interval, takes in
// what any replica hears by hooks or holds for machines that are still to come, and
// shows what follows to all replicas as a [Board] in the store. [Sources] is both as
// one: what a scaler reads.
//
// In the middle is the [Book], which unites what the sources say of each job: the
// newest fact wins, each job is counted once. It has no clock and does no I/O.
//
// What isn't known is never taken for zero. A list is whole or it changes nothing; one
// that contradicts the machines is not believed; a board that gets old or is partial
// is a lower bound of its origin's jobs, and one that is missing is an error or, next
// to another source, a lower bound. What a board says is bounded by the classes of
// jobs, not by the jobs.
//
// The package asks and adds up. It gives no job to a pool, which is demand's, and
// decides about no instance.
//
// Runner metrics ([Exporters]) and queries ([Prometheus]) are read here too; they say how
// many jobs there are and not which, so they go to the scaler by ways of their own.
package collect
