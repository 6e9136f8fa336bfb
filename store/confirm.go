package store

import (
	"context"
	"fmt"

	"github.com/spillway-ci/spillway"
)

var confirmScript = mustScript("confirm", "book")

// Confirmation is what became of a machine's word that it has a job.
type Confirmation int

// The confirmations.
const (
	// Unbooked: the job is in no book. It was not handed out through us, or the book was
	// lost, or the job has ended.
	Unbooked Confirmation = iota
	// Confirmed: the job is open until its Until.
	Confirmed
	// TooLate: it was not confirmed in time. Somebody may have taken the machine for idle
	// since, so that it must not begin the job.
	TooLate
)

// ConfirmRouted notes that the machine which has a job has said so: the job is open
// until its Until from then on, whoever had it confirmed within what time. It is to be
// called before the machine may take its word for accepted. Like OrderDrain and
// BeginRouted it is atomic for the book: whoever reads a book without the job reads it
// before the confirmation, which is TooLate from then on. Repeating it is harmless.
func (s *Store) ConfirmRouted(ctx context.Context, id spillway.JobID) (Confirmation, error) {
	if !printable(string(id), spillway.MaxJobIDBytes) {
		return Unbooked, fmt.Errorf("store: confirm routed job: %w: job %.40q", spillway.ErrInvalid, id)
	}
	ctx, done := s.begin(ctx)
	defer done()
	pools, err := s.rdb.SMembers(ctx, s.routedKey(id)).Result()
	if err != nil {
		return Unbooked, failed("confirm routed job", err, reading)
	}
	found := Unbooked
	for _, pool := range pools {
		answer, err := s.runOne(ctx, call{confirmScript, s.machineKeys(pool), []any{string(id)}})
		if err != nil {
			return Unbooked, failed("confirm routed job", err, writing)
		}
		switch asInt(answer) {
		case 1:
			return Confirmed, nil
		case -1:
			found = TooLate
		}
	}
	return found, nil
}
