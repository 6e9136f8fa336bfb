package session

import (
	"fmt"

	"github.com/spillway-ci/spillway/cells"
)

// Events narrates what happens; logs, metrics and tests subscribe. Any of the functions
// may be nil. They must be quick and safe for concurrent use.
type Events struct {
	// Of the origin.
	PeerLinked  func(PeerLinked)
	HandedOver  func(HandedOver)
	CameBack    func(CameBack)
	PeerOffered func(PeerOffered)
	// Of the peer.
	OriginLinked func(OriginLinked)
	JobTaken     func(JobTaken)
	JobEnded     func(JobEnded)
	Trouble      func(Trouble)
}

// PeerLinked tells: there is a link to a peer, or not any more.
type PeerLinked struct {
	Peer, Region string
	Linked       bool
	Err          error // why not
}

// String prints the event for people.
func (e PeerLinked) String() string {
	if e.Linked {
		return fmt.Sprintf("linked to cell %s, region %q", e.Peer, e.Region)
	}
	return fmt.Sprintf("no link to cell %s: %v", e.Peer, e.Err)
}

// PeerOffered tells what a peer offers, and how many jobs it has of ours.
type PeerOffered struct {
	Peer               string
	Free, Growth, Jobs int
}

// HandedOver tells: a job was sent to a peer.
type HandedOver struct {
	Peer string
	Ref  cells.Ref
	Pool string
}

// String prints the event for people.
func (e HandedOver) String() string {
	return fmt.Sprintf("job %s handed over to cell %s", e.Ref, e.Peer)
}

// CameBack tells: a job that was handed over has ended there, or was given back.
type CameBack struct {
	Peer   string
	Ref    cells.Ref
	Word   cells.Word // WordEnded, WordLost, WordRefused, WordDenied
	Detail string
}

// Outcome is the word as metrics have it.
func (e CameBack) Outcome() string { return Outcome(e.Word) }

// String prints the event for people.
func (e CameBack) String() string {
	return fmt.Sprintf("job %s came back from cell %s: %s %s", e.Ref, e.Peer, e.Outcome(), e.Detail)
}

// Outcome names how an attempt has ended, as metrics have it.
func Outcome(word cells.Word) string {
	switch word {
	case cells.WordEnded:
		return "ended"
	case cells.WordLost:
		return "lost"
	case cells.WordRefused:
		return "refused"
	case cells.WordDenied:
		return "denied"
	default:
		return "other"
	}
}

// OriginLinked tells: another cell can hand jobs over to us, or not any more.
type OriginLinked struct {
	Origin, Region string
	Linked         bool
	Err            error
	Origins        int // that are linked to this replica now
}

// String prints the event for people.
func (e OriginLinked) String() string {
	if e.Linked {
		return fmt.Sprintf("cell %s, region %q, is linked to us", e.Origin, e.Region)
	}
	return fmt.Sprintf("cell %s is not linked to us any more: %v", e.Origin, e.Err)
}

// JobTaken tells: a job of another cell is in our queue, or was not taken.
type JobTaken struct {
	Origin string
	Ref    cells.Ref
	Why    string // empty: it was taken
}

// JobEnded tells: a job of another cell is to end, or has ended.
type JobEnded struct {
	Origin string
	Ref    cells.Ref
	Word   cells.Word // 0: it is to end
	Why    string
}

// String prints the event for people.
func (e JobEnded) String() string {
	if e.Word == 0 {
		return fmt.Sprintf("job %s of cell %s has to end: %s", e.Ref, e.Origin, e.Why)
	}
	return fmt.Sprintf("job %s of cell %s: %s %s", e.Ref, e.Origin, Outcome(e.Word), e.Why)
}

// Trouble tells: something failed that is tried again.
type Trouble struct {
	Op  string
	Err error
}

// String prints the event for people.
func (e Trouble) String() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

func tell[E any](f func(E), e E) {
	if f != nil {
		f(e)
	}
}
