// Package cells decides how several Spillways share their free places. A cell is one of
// them: a region, or an instance of the whole, with a store of its own. A job that its own
// cell (the origin) can't place in time is handed to another one (the peer) that offers a
// place. It runs there in the peer's own queue and under the peer's own rules, as an
// attempt of the origin's job.
//
// The hard part is that no job runs in two cells, whatever breaks between them. Neither
// cell can ask the other when the link is cut, and their clocks have nothing to do with
// each other. So a handed-over job is leased:
//
//   - The peer counts its beats and keeps, on its own clock, when it sent each. A job is
//     covered for Timing.Lease from the sending of the newest beat that the origin has
//     answered with the job's name. An answer that was long under way covers little, and
//     one that comes too late covers nothing.
//   - The origin answers a beat only after it has extended its own claim on the job, in its
//     own store, by Timing.GiveBack, and began to do so after the beat had come. So the
//     claim ends later than the lease by Timing.EndWithin and more, however long either
//     message took, whoever of the two stood still meanwhile.
//   - When a lease is over, the peer ends the job on its machine; within Timing.EndWithin it
//     runs nowhere. The origin runs the job again when the peer has said that it has ended,
//     or when its own claim is over.
//
// Only durations are compared, each measured by one clock; Timing says how wrong the rates
// of clocks may be.
//
// Outbound is the origin's book on one peer, Inbound the peer's book on one origin. Neither
// knows a connection or a store: package cells/session does.
package cells
