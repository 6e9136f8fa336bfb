// Package store holds what replicas of the control plane share, on Redis.
//
// It is soft state: everything in it can be rebuilt from pushed jobs, heartbeats
// and providers, and a result of a timed-out write is unknown, never failed
// ([ErrUnknown]). Every operation has a deadline. Scripts are used only where
// atomicity needs them, and each touches one hash tag, so that the same code runs
// on a single server, on Sentinel and on a Cluster. The clock is the server's.
//
// [Open] uses a Redis server, [OpenEmbedded] an in-process one: one
// implementation, held to one contract by storetest.
//
// # What is where
//
//	{c:<class>}  the queue of one job class (scripts/queue.lua has its form)
//	{i:<n>}      which class a job id belongs to, and the order of first pushes
//	{q}          the classes with their requirements, and the pools
//	{m:<pool>}   machines, the orders to drain them, the books of their routed jobs
//	             (scripts/book.lua has their form), and who has a seat there
//	{w:<machine>} what a worker was given that polls
//	{x}          what replicas have learned of places for jobs
//	{a}          the admission controllers connected to each replica
//	{r:<id>}     in which pools' books a routed job may be
//	{b:<name>}   a board
//	{s:<kind>}   what people have set at run time
//	{l:<name>}   a lease
//	{p:<pool>}   what a pool's loop remembers: state and ledger
//	{v}          the views of pools for other replicas
//	w:<source>   views of polling sources, one set of sets for each epoch
//
// A push writes the index and the list of classes before the job, so that what a
// crash leaves between them is an entry without a job: the same push again repairs
// it, and Reap tidies it away. Claims, ends and releases are one script for each
// class; the attempt number in each of them refuses what comes too late.
//
// A routed job is one that GitLab gave out through us. Whether its machine is under an
// order to drain and whether it is booked is one script in the slot of the pool, and
// so is the order: a job is in the book before the order, or not at all.
//
// The store is to be the server's only tenant that fills its memory, with the
// policy noeviction: an evicted key would be a lost job.
//
// It will not decide anything: which machine gets a job is router's question, what
// an expired claim means for a machine is the scaler's.
package store
