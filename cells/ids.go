package cells

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/spillway-ci/spillway"
)

// Limits on names.
const (
	// MaxNameBytes bounds the name of a cell [bytes]: it is part of the names of pools and
	// of the ids of jobs.
	MaxNameBytes = 32
	// MaxRegionBytes bounds the name of a region [bytes].
	MaxRegionBytes = 64
)

// ValidName reports whether s can name a cell.
func ValidName(s string) bool { return len(s) <= MaxNameBytes && spillway.PoolName(s) }

// Ref names an attempt at a job of the origin.
type Ref struct {
	ID      spillway.JobID
	Attempt int
}

// String is "id/attempt": it names the attempt in the books of both cells.
func (r Ref) String() string { return string(r.ID) + "/" + strconv.Itoa(r.Attempt) }

// LocalID is the id of an origin's attempt in the peer's queue. It differs for each
// attempt, so that a peer never takes two of them for one job. An id that would be too long
// is replaced by its hash.
func LocalID(origin string, ref Ref) spillway.JobID {
	const hashBytes = 16
	id := fmt.Sprintf("cell/%s/%s", origin, ref)
	if len(id) <= spillway.MaxJobIDBytes {
		return spillway.JobID(id)
	}
	sum := sha256.Sum256([]byte(ref.ID))
	return spillway.JobID(fmt.Sprintf("cell/%s/~%s/%d", origin, hex.EncodeToString(sum[:hashBytes]), ref.Attempt))
}
