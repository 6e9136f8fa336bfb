package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/store"
)

// RegisterPool adds a pool.
func (s *Server) RegisterPool(ctx context.Context, req *pb.RegisterPoolRequest) (*pb.RegisterPoolResponse, error) {
	r := registered{Tags: req.GetTags(), MinIdle: int(req.GetMinIdle()), Max: int(req.GetMax()), By: identity(ctx), At: time.Now().UTC()}
	if err := checkPool(req.GetName(), &r); err != nil {
		return nil, err
	}
	if err := s.pools.add(ctx, req.GetName(), &r); err != nil {
		return nil, err
	}
	tell(s.opt.Events.PoolChanged, PoolChanged{Pool: req.GetName(), By: r.By, Added: true})
	return &pb.RegisterPoolResponse{Pool: &pb.Pool{
		Name: req.GetName(), Tags: r.Tags, MinIdle: req.GetMinIdle(), Max: req.GetMax(), MaxQueued: int32(s.opt.MaxQueued),
		Wanted: int32((&Configured{MinIdle: r.MinIdle, Max: r.Max}).Wanted(0)),
	}}, nil
}

// add registers a pool. Nobody else has the router know any meanwhile, who could not know
// of this one.
func (d *directory) add(ctx context.Context, name string, r *registered) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	if err := d.readLocked(ctx); err != nil {
		return storeStatus(err)
	}
	if err := d.free(name); err != nil {
		return err
	}
	// The router knows more names: those of other cells. What is only tried is forgotten.
	if d.opt.Replace(append(d.registeredPools(), r.pool(name))) != nil {
		return errPoolExists(name, true)
	}
	err := d.create(ctx, name, r)
	if again := d.readLocked(ctx); err == nil && again != nil {
		err = storeStatus(again)
	}
	return err
}

// free reports why there can't be another pool of that name.
func (d *directory) free(name string) error {
	all := d.entries()
	switch {
	case slices.ContainsFunc(d.opt.Configured(), func(c Configured) bool { return c.Pool.Name == name }):
		return errPoolExists(name, true)
	case slices.ContainsFunc(all, func(e entry) bool { return e.Pool.Name == name }):
		return errPoolExists(name, false)
	case len(all) >= spillway.MaxPools:
		return status.Errorf(codes.ResourceExhausted, "there are %d pools, at most %d are allowed", len(all), spillway.MaxPools)
	}
	return nil
}

// create keeps a pool under a name that is free.
func (d *directory) create(ctx context.Context, name string, r *registered) error {
	data, err := json.Marshal(r)
	if err != nil {
		return status.Error(codes.InvalidArgument, "tags can't be written")
	}
	created, err := d.store.CreateSetting(ctx, poolSetting, name, data)
	switch {
	case errors.Is(err, store.ErrTooMany):
		return status.Errorf(codes.ResourceExhausted, "as many pools are registered as can be: %v", err)
	case errors.Is(err, spillway.ErrInvalid):
		return status.Errorf(codes.InvalidArgument, "the pool's tags are too long: at most %d bytes in all", store.MaxSettingBytes)
	case err != nil:
		return storeStatus(err)
	case !created:
		return errPoolExists(name, false)
	}
	return nil
}

func errPoolExists(name string, configured bool) error {
	if configured {
		return status.Errorf(codes.AlreadyExists, "pool %s is one of the configuration, which registers it: workers may poll for it as it is", name)
	}
	return status.Errorf(codes.AlreadyExists, "pool %s is registered already", name)
}

// checkPool reports what is wrong with a pool.
func checkPool(name string, r *registered) error {
	p := r.pool(name)
	switch {
	case len(r.Tags) > MaxTags:
		return status.Errorf(codes.InvalidArgument, "%d tags, at most %d are allowed", len(r.Tags), MaxTags)
	case r.MinIdle < 0 || r.MinIdle > MaxWorkers || r.Max < 0 || r.Max > MaxWorkers:
		return status.Errorf(codes.InvalidArgument, "min_idle %d and max %d: use 0 to %d", r.MinIdle, r.Max, MaxWorkers)
	case r.Max > 0 && r.MinIdle > r.Max:
		return status.Errorf(codes.InvalidArgument, "min_idle %d is more than max %d", r.MinIdle, r.Max)
	}
	for _, tag := range r.Tags {
		if strings.HasPrefix(tag, PoolTag("")) {
			return status.Errorf(codes.InvalidArgument, "tag %.80q: tags that begin with %s are given by the control plane", tag, PoolTag(""))
		}
	}
	if err := p.Validate(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// UnregisterPool takes a pool away that nobody uses.
func (s *Server) UnregisterPool(ctx context.Context, req *pb.UnregisterPoolRequest) (*pb.UnregisterPoolResponse, error) {
	e, err := s.pools.lookUp(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	if e.configured {
		return nil, status.Errorf(codes.FailedPrecondition, "pool %s is one of the configuration: remove it there", req.GetName())
	}
	if err := s.inUse(ctx, &e); err != nil {
		return nil, err
	}
	if _, err := s.store.DropSetting(ctx, poolSetting, req.GetName()); err != nil {
		return nil, storeStatus(err)
	}
	tell(s.opt.Events.PoolChanged, PoolChanged{Pool: req.GetName(), By: identity(ctx)})
	if err := s.pools.read(ctx); err != nil {
		return nil, storeStatus(err)
	}
	return &pb.UnregisterPoolResponse{}, nil
}

// inUse reports who uses a pool.
func (s *Server) inUse(ctx context.Context, e *entry) error {
	use, err := s.usage(ctx)
	if err != nil {
		return storeStatus(err)
	}
	name := e.Pool.Name
	idle, busy := use.workers(name)
	if n := idle + busy; n > 0 {
		return status.Errorf(codes.FailedPrecondition, "pool %s has %d workers: stop them first, and wait until they have been silent for %s", name, n, s.opt.SilentAfter)
	}
	if waiting, running := use.jobs(e); waiting+running > 0 {
		return status.Errorf(codes.FailedPrecondition, "pool %s has %d jobs: let them end, or cancel them", name, waiting+running)
	}
	return nil
}
