package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// leaseMemory is how long the epoch of a lease that nobody holds is remembered.
// Afterwards the clock alone makes epochs grow.
const leaseMemory = 7 * 24 * time.Hour

// ErrLeaseHeld is wrapped by *HeldError.
var ErrLeaseHeld = errors.New("lease held by another")

// HeldError says who holds a lease.
type HeldError struct {
	Name, Holder string
	Rest         time.Duration // until it ends, unless renewed
}

// Error says it in a sentence.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lease %s is held by %s for another %s", e.Name, e.Holder, e.Rest)
}

// Unwrap makes it an ErrLeaseHeld.
func (e *HeldError) Unwrap() error { return ErrLeaseHeld }

var leaseScript = mustScript("lease")

// Acquire takes a lease that is free, with a new epoch, or renews it if the holder
// has it; so it may be repeated after ErrUnknown. It is a *HeldError if another has it.
func (s *Store) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error) {
	ctx, done := s.begin(ctx)
	defer done()
	start := s.now()
	r := s.run(ctx, []call{s.leaseCall("acquire", Lease{Name: name, Holder: holder}, ttl)})[0]
	lease, err := readLease(r, name, holder, start.Add(ttl))
	var held *HeldError
	if errors.As(err, &held) {
		return Lease{}, fmt.Errorf("store: %w", err)
	}
	return lease, failed("acquire lease", err, writing)
}

// RenewLease extends a lease that is still held, or fails with ErrLeaseLost.
func (s *Store) RenewLease(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) {
	ctx, done := s.begin(ctx)
	defer done()
	start := s.now()
	r := s.run(ctx, []call{s.leaseCall("renew", l, ttl)})[0]
	lease, err := readLease(r, l.Name, l.Holder, start.Add(ttl))
	if errors.Is(err, ErrLeaseHeld) {
		return Lease{}, fmt.Errorf("store: lease %s: %w", l.Name, ErrLeaseLost)
	}
	return lease, failed("renew lease", err, writing)
}

// ReleaseLease ends a lease early. One that is not held any more is left alone.
func (s *Store) ReleaseLease(ctx context.Context, l Lease) error {
	ctx, done := s.begin(ctx)
	defer done()
	_, err := s.runOne(ctx, s.leaseCall("release", l, 0))
	return failed("release lease", err, writing)
}

// HoldLeases acquires or renews many leases at once, and returns those that the
// holder has now. Leases of others are left out. With an error, the leases that were
// answered for are returned; of the others nothing is known.
func (s *Store) HoldLeases(ctx context.Context, names []string, holder string, ttl time.Duration) (map[string]Lease, error) {
	ctx, done := s.begin(ctx)
	defer done()
	calls := make([]call, len(names))
	for i, name := range names {
		calls[i] = s.leaseCall("acquire", Lease{Name: name, Holder: holder}, ttl)
	}
	start := s.now()
	leases := make(map[string]Lease, len(names))
	var failure error
	for i, r := range s.run(ctx, calls) {
		lease, err := readLease(r, names[i], holder, start.Add(ttl))
		switch {
		case err == nil:
			leases[names[i]] = lease
		case !errors.Is(err, ErrLeaseHeld):
			failure = err
		}
	}
	return leases, failed("hold leases", failure, writing)
}

func (s *Store) leaseCall(verb string, l Lease, ttl time.Duration) call {
	return call{leaseScript, []string{s.key("l:"+l.Name, "lease")}, []any{
		verb, l.Holder, ttl.Milliseconds(), strconv.FormatUint(l.Epoch, 10), leaseMemory.Milliseconds(),
	}}
}

// readLease reads a lease, or a *HeldError.
func readLease(r reply, name, holder string, until time.Time) (Lease, error) {
	list, err := r.list()
	if err != nil {
		return Lease{}, err
	}
	if len(list) != 4 {
		return Lease{}, errReply
	}
	epoch, err := strconv.ParseUint(asString(list[1]), 10, 53)
	if err != nil {
		return Lease{}, fmt.Errorf("%w: an epoch", errReply)
	}
	if asInt(list[0]) == 1 {
		return Lease{Name: name, Holder: holder, Epoch: epoch, Until: until}, nil
	}
	rest, err := strconv.ParseInt(asString(list[3]), 10, 64)
	if err != nil {
		return Lease{}, fmt.Errorf("%w: a rest", errReply)
	}
	return Lease{}, &HeldError{Name: name, Holder: asString(list[2]), Rest: time.Duration(rest) * time.Millisecond}
}
