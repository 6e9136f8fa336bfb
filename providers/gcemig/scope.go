package gcemig

import (
	"context"
	"errors"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of what one call reads; more means an endpoint that makes things up.
const (
	maxGroupsRead    = 20_000
	maxInstancesRead = 20_000
)

// What Google allows in one group by default [instances].
const (
	maxZonal    = 1_000
	maxRegional = 2_000
)

// scope is where the groups are: a zone or a region. Both calls read all pages.
type scope interface {
	groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error)
	instances(ctx context.Context, group string) ([]*computepb.ManagedInstance, error)
	maxSize() int // of one group [instances]
	Close() error
}

// newScope makes the client. It makes no call but, where the credentials are a
// file's or a metadata server's, finds out which they are.
func newScope(ctx context.Context, c config) (scope, error) {
	var options []option.ClientOption
	if c.Endpoint != "" {
		options = append(options, option.WithEndpoint(c.Endpoint))
		if onLoopback(c.Endpoint) {
			options = append(options, option.WithoutAuthentication())
		}
	}
	// The client keeps the context, and outlives the call that made it. The control
	// plane decides when to ask again: no call is repeated here.
	ctx = context.WithoutCancel(ctx)
	if c.Zone != "" {
		client, err := compute.NewInstanceGroupManagersRESTClient(ctx, options...)
		if err != nil {
			return nil, noClient(err)
		}
		client.CallOptions = &compute.InstanceGroupManagersCallOptions{}
		return &zone{client, c.Project, c.Zone}, nil
	}
	client, err := compute.NewRegionInstanceGroupManagersRESTClient(ctx, options...)
	if err != nil {
		return nil, noClient(err)
	}
	client.CallOptions = &compute.RegionInstanceGroupManagersCallOptions{}
	return &region{client, c.Project, c.Region}, nil
}

func noClient(err error) error {
	return pluginsdk.Errorf(pluginsdk.KindAuth, "no Google Cloud credentials: %w", err)
}

type zone struct {
	*compute.InstanceGroupManagersClient
	project, name string
}

func (z *zone) maxSize() int { return maxZonal }

func (z *zone) groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error) {
	return collect(maxGroupsRead, z.List(ctx, &computepb.ListInstanceGroupManagersRequest{
		Project: z.project, Zone: z.name,
	}).Next)
}

func (z *zone) instances(ctx context.Context, group string) ([]*computepb.ManagedInstance, error) {
	return collect(maxInstancesRead, z.ListManagedInstances(ctx, &computepb.ListManagedInstancesInstanceGroupManagersRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: group,
	}).Next)
}

type region struct {
	*compute.RegionInstanceGroupManagersClient
	project, name string
}

func (r *region) maxSize() int { return maxRegional }

func (r *region) groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error) {
	return collect(maxGroupsRead, r.List(ctx, &computepb.ListRegionInstanceGroupManagersRequest{
		Project: r.project, Region: r.name,
	}).Next)
}

func (r *region) instances(ctx context.Context, group string) ([]*computepb.ManagedInstance, error) {
	return collect(maxInstancesRead, r.ListManagedInstances(ctx, &computepb.ListManagedInstancesRegionInstanceGroupManagersRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: group,
	}).Next)
}

// collect reads an iterator to its end: all of it, or an error.
func collect[T any](limit int, next func() (T, error)) ([]T, error) {
	var all []T
	for {
		item, err := next()
		switch {
		case errors.Is(err, iterator.Done):
			return all, nil
		case err != nil:
			return nil, classify(err)
		case len(all) == limit:
			return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "the list has more than %d entries", limit)
		}
		all = append(all, item)
	}
}
