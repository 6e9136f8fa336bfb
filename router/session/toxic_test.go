package session_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// toxic is a store that can be away: nothing is done and every call fails; or
// deaf: everything is done and every write seems to fail.
type toxic struct {
	*store.Store

	away, deaf atomic.Bool
	failures   atomic.Int64
}

func (x *toxic) refuse() error {
	if x.away.Load() {
		x.failures.Add(1)
		return fmt.Errorf("test: %w", store.ErrUnavailable)
	}
	return nil
}

func (x *toxic) forget(err error) error {
	if err == nil && x.deaf.Load() {
		x.failures.Add(1)
		return fmt.Errorf("test: %w", store.ErrUnknown)
	}
	return err
}

func (x *toxic) Counts(ctx context.Context) ([]router.ClassCount, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	return x.Store.Counts(ctx)
}

func (x *toxic) Claim(ctx context.Context, owner string, wants []router.ClaimWant, ttl time.Duration) ([]router.Claimed, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	return x.Store.Claim(ctx, owner, wants, ttl)
}

func (x *toxic) Renew(ctx context.Context, refs []router.JobRef, ttl time.Duration) ([]router.JobRef, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	return x.Store.Renew(ctx, refs, ttl)
}

func (x *toxic) Apply(ctx context.Context, transitions []store.Transition) ([]error, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	errs, err := x.Store.Apply(ctx, transitions)
	if err = x.forget(err); err != nil {
		return nil, err
	}
	return errs, nil
}

func (x *toxic) Release(ctx context.Context, releases []store.Release) ([]error, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	return x.Store.Release(ctx, releases)
}

func (x *toxic) GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error) {
	if err := x.refuse(); err != nil {
		return nil, err
	}
	return x.Store.GetMany(ctx, ids)
}

func (x *toxic) PutMachines(ctx context.Context, machines []router.Machine) error {
	if err := x.refuse(); err != nil {
		return err
	}
	return x.Store.PutMachines(ctx, machines)
}

func (x *toxic) Push(ctx context.Context, jobs []spillway.Job) ([]store.PushOutcome, error) {
	if err := x.refuse(); err != nil {
		return make([]store.PushOutcome, len(jobs)), err
	}
	return x.Store.Push(ctx, jobs)
}
