package notices

import (
	"fmt"
	"slices"
	"time"
)

// Kind says what will happen to the instance.
type Kind string

// The kinds of notice.
const (
	None        Kind = ""            // nothing was heard
	Rebalance   Kind = "rebalance"   // it may be taken back soon
	Maintenance Kind = "maintenance" // it is stopped for maintenance of its host
	Terminating Kind = "terminating" // its group is ending it, and may wait for it
	Spot        Kind = "spot"        // it is taken back at the deadline
)

var byGravity = []Kind{None, Rebalance, Maintenance, Terminating, Spot}

// Graver reports whether k is more than other.
func (k Kind) Graver(other Kind) bool {
	return slices.Index(byGravity, k) > slices.Index(byGravity, other)
}

// Ends reports whether a job that began now could be lost with the instance.
func (k Kind) Ends() bool { return k.Graver(Rebalance) }

// Notice is what was heard.
type Notice struct {
	Kind     Kind
	Deadline time.Time // when the instance goes; zero = not known
}

// Supersedes reports whether n says more than what was heard before.
func (n Notice) Supersedes(before Notice) bool {
	return n.Kind.Graver(before.Kind) || n.Kind == before.Kind && n.Kind != None && before.Deadline.IsZero() && !n.Deadline.IsZero()
}

// String prints the notice for people.
func (n Notice) String() string {
	if n.Deadline.IsZero() {
		return fmt.Sprintf("%s, deadline not known", n.Kind)
	}
	return fmt.Sprintf("%s at %s", n.Kind, n.Deadline.UTC().Format(time.RFC3339))
}

// Cloud says whose metadata service is asked.
type Cloud string

// The clouds.
const (
	AWS     Cloud = "aws"
	GCE     Cloud = "gce"
	NoCloud Cloud = "none" // nobody is asked
	Auto    Cloud = "auto" // who answers at the link-local address
)

// ParseCloud reads a cloud's name.
func ParseCloud(name string) (Cloud, error) {
	switch c := Cloud(name); c {
	case AWS, GCE, NoCloud, Auto:
		return c, nil
	default:
		return "", fmt.Errorf("%w: cloud %.20q: use aws, gce, auto or none", ErrOptions, name)
	}
}
