// Package evidence says what is known of machines that have no stream to us: it
// turns what others say of an instance (its runner's metrics, GitLab, the jobs that
// were handed out through us) into a router.Machine, so that the rules for machines
// are the same everywhere. What can't be proven shows in HeartbeatAt: idle is what a
// fresh heartbeat says, and here a heartbeat is all the proof that the table of
// docs/scale-in-evidence.md asks for, as old as its oldest part.
//
// It is a core: no clock, no I/O.
package evidence
