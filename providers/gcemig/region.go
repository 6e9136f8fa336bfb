package gcemig

import (
	"context"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// region is the scope of regional groups.
type region struct {
	*clients
	name string
}

func (r *region) maxSize(*computepb.InstanceGroupManager) int { return maxRegional }

func (r *region) zones(group *computepb.InstanceGroupManager) []string {
	var names []string
	for _, zone := range group.GetDistributionPolicy().GetZones() {
		names = append(names, last(zone.GetZone()))
	}
	return names
}

func (r *region) groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error) {
	ctx, release := r.paced.bind(ctx)
	defer release()
	return all(r.clients, maxGroupsRead, r.regionGroups.List(ctx, &computepb.ListRegionInstanceGroupManagersRequest{
		Project: r.project, Region: r.name,
	}).Next)
}

func (r *region) group(ctx context.Context, name string) (*computepb.InstanceGroupManager, error) {
	group, err := r.regionGroups.Get(ctx, &computepb.GetRegionInstanceGroupManagerRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name,
	})
	return one(r.clients, group, err)
}

func (r *region) managed(ctx context.Context, name string) ([]*computepb.ManagedInstance, error) {
	ctx, release := r.paced.bind(ctx)
	defer release()
	return all(r.clients, maxInstancesRead, r.regionGroups.ListManagedInstances(ctx, &computepb.ListManagedInstancesRegionInstanceGroupManagersRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name,
	}).Next)
}

func (r *region) failures(ctx context.Context, name string) ([]*computepb.InstanceManagedByIgmError, error) {
	ctx, release := r.paced.bind(ctx)
	defer release()
	list, _, err := upTo(r.clients, maxErrorsRead, r.regionGroups.ListErrors(ctx, &computepb.ListErrorsRegionInstanceGroupManagersRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name,
	}).Next)
	return list, err
}

func (r *region) autoscaler(ctx context.Context, name string) (*computepb.Autoscaler, error) {
	autoscaler, err := r.regionAutoscalers.Get(ctx, &computepb.GetRegionAutoscalerRequest{
		Project: r.project, Region: r.name, Autoscaler: name,
	})
	return one(r.clients, autoscaler, err)
}

func (r *region) operation(ctx context.Context, name string) (*computepb.Operation, error) {
	op, err := r.regionOperations.Get(ctx, &computepb.GetRegionOperationRequest{
		Project: r.project, Region: r.name, Operation: name,
	})
	return one(r.clients, op, err)
}

func (r *region) resize(ctx context.Context, name string, size int32, requestID *string) (*computepb.Operation, error) {
	op, err := r.regionGroups.Resize(ctx, &computepb.ResizeRegionInstanceGroupManagerRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name, Size: size, RequestId: requestID,
	})
	return started(r.clients, op, err)
}

func (r *region) remove(ctx context.Context, name string, urls []string, requestID *string) (*computepb.Operation, error) {
	op, err := r.regionGroups.DeleteInstances(ctx, &computepb.DeleteInstancesRegionInstanceGroupManagerRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name, RequestId: requestID,
		RegionInstanceGroupManagersDeleteInstancesRequestResource: &computepb.RegionInstanceGroupManagersDeleteInstancesRequest{
			Instances: urls, SkipInstancesOnValidationError: new(true),
		},
	})
	return started(r.clients, op, err)
}

func (r *region) recreate(ctx context.Context, name string, urls []string) (*computepb.Operation, error) {
	op, err := r.regionGroups.RecreateInstances(ctx, &computepb.RecreateInstancesRegionInstanceGroupManagerRequest{
		Project: r.project, Region: r.name, InstanceGroupManager: name,
		RegionInstanceGroupManagersRecreateRequestResource: &computepb.RegionInstanceGroupManagersRecreateRequest{
			Instances: urls,
		},
	})
	return started(r.clients, op, err)
}
