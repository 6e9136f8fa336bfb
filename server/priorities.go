package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// Priorities knows in which order the pools of a fingerprint take jobs, and changes it
// at every replica.
type Priorities interface {
	Priorities(ctx context.Context) ([]PoolPriority, error)
	SetPriority(ctx context.Context, pool string, priority int, by string) error
	// ClearPriority goes back to the configured priority.
	ClearPriority(ctx context.Context, pool string) error
}

// PoolPriority is one pool's.
type PoolPriority struct {
	Pool       spillway.Pool // with the priority in force
	Configured int
	SetBy      string // who has set another one; empty = nobody
	SetAt      time.Time
}

// ListPriorities lists every pool, those of one fingerprint together.
func (a *Admin) ListPriorities(ctx context.Context, _ *adminv1.ListPrioritiesRequest) (*adminv1.ListPrioritiesResponse, error) {
	pools, err := a.sources.Priorities.Priorities(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	resp := &adminv1.ListPrioritiesResponse{}
	for i := range pools {
		resp.Pools = append(resp.Pools, priorityToProto(&pools[i]))
	}
	slices.SortFunc(resp.Pools, func(a, b *adminv1.PoolPriority) int {
		return cmp.Or(cmp.Compare(a.GetFingerprint(), b.GetFingerprint()), cmp.Compare(a.GetPriority(), b.GetPriority()), cmp.Compare(a.GetPool(), b.GetPool()))
	})
	return resp, nil
}

// SetPriority changes the priority of one pool.
func (a *Admin) SetPriority(ctx context.Context, req *adminv1.SetPriorityRequest) (*adminv1.SetPriorityResponse, error) {
	priority := int(req.GetPriority())
	switch {
	case req.GetPool() == "":
		return nil, status.Error(codes.InvalidArgument, "name the pool whose priority to set")
	case priority < 0 || priority > spillway.MaxPoolPriority:
		return nil, status.Errorf(codes.InvalidArgument, "priority %d: use 0 (first) to %d", priority, spillway.MaxPoolPriority)
	case req.GetClear() && priority != 0:
		return nil, status.Error(codes.InvalidArgument, "clear goes back to the configured priority: leave priority out")
	}
	if _, err := a.priorityOf(ctx, req.GetPool()); err != nil {
		return nil, err
	}
	var err error
	if req.GetClear() {
		err = a.sources.Priorities.ClearPriority(ctx, req.GetPool())
	} else {
		who, _ := access.From(ctx)
		err = a.sources.Priorities.SetPriority(ctx, req.GetPool(), priority, cmp.Or(who.Name, "anyone"))
	}
	if err != nil {
		return nil, asStatus(err)
	}
	is, err := a.priorityOf(ctx, req.GetPool())
	if err != nil {
		return nil, err
	}
	return &adminv1.SetPriorityResponse{Pool: priorityToProto(is)}, nil
}

func (a *Admin) priorityOf(ctx context.Context, pool string) (*PoolPriority, error) {
	pools, err := a.sources.Priorities.Priorities(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	names := make([]string, 0, len(pools))
	for i := range pools {
		if pools[i].Pool.Name == pool {
			return &pools[i], nil
		}
		names = append(names, pools[i].Pool.Name)
	}
	return nil, status.Errorf(codes.NotFound, "there is no pool %.80q; %s", pool, listed(names))
}

func priorityToProto(p *PoolPriority) *adminv1.PoolPriority {
	return &adminv1.PoolPriority{
		Pool: p.Pool.Name, Fingerprint: p.Pool.Capability.Fingerprint().String(),
		Priority: int32(p.Pool.Priority), Configured: int32(p.Configured), SetBy: p.SetBy, SetAt: timestamp(p.SetAt),
	}
}
