package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
)

// fakeCoordinator knows a pool of the configuration and two registered ones.
type fakeCoordinator struct {
	coordinatorpb.UnimplementedPoolCoordinatorServer
}

func (fakeCoordinator) ListPools(context.Context, *coordinatorpb.ListPoolsRequest) (*coordinatorpb.ListPoolsResponse, error) {
	return &coordinatorpb.ListPoolsResponse{Pools: []*coordinatorpb.Pool{
		{Name: "free", Idle: 1, Wanted: 0, MaxQueued: 1000},
		{Name: "gpu", Tags: []string{"cuda", "linux\x1b[2J"}, MinIdle: 1, Max: 5, Idle: 2, Busy: 2, Queued: 4, MaxQueued: 1000, Wanted: 5},
		{Name: "linux", Tags: []string{"linux"}, MinIdle: 1, Max: 10, Configured: true, Busy: 3, MaxQueued: 1000},
	}}, nil
}

func (fakeCoordinator) RegisterPool(_ context.Context, r *coordinatorpb.RegisterPoolRequest) (*coordinatorpb.RegisterPoolResponse, error) {
	if r.GetName() == "gpu" {
		return nil, status.Error(codes.AlreadyExists, "pool gpu is registered already")
	}
	return &coordinatorpb.RegisterPoolResponse{Pool: &coordinatorpb.Pool{
		Name: r.GetName(), Tags: r.GetTags(), MinIdle: r.GetMinIdle(), Max: r.GetMax(), MaxQueued: 1000, Wanted: r.GetMinIdle(),
	}}, nil
}

func (fakeCoordinator) UnregisterPool(_ context.Context, r *coordinatorpb.UnregisterPoolRequest) (*coordinatorpb.UnregisterPoolResponse, error) {
	switch r.GetName() {
	case "free":
		return &coordinatorpb.UnregisterPoolResponse{}, nil
	case "gpu":
		return nil, status.Error(codes.FailedPrecondition, "pool gpu has 4 workers: stop them first, and wait until they have been silent for 45s")
	default:
		return nil, status.Errorf(codes.NotFound, "pool not found: %.80s; there are free, gpu, linux", r.GetName())
	}
}
