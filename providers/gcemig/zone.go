package gcemig

import (
	"context"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// zone is the scope of zonal groups.
type zone struct {
	*clients
	name string
}

func (z *zone) maxSize(group *computepb.InstanceGroupManager) int {
	if group.GetListManagedInstancesResults() == "PAGINATED" {
		return maxZonalPaginated
	}
	return maxZonal
}

func (z *zone) zones(*computepb.InstanceGroupManager) []string { return []string{z.name} }

func (z *zone) groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error) {
	ctx, release := z.paced.bind(ctx)
	defer release()
	return all(z.clients, maxGroupsRead, z.zoneGroups.List(ctx, &computepb.ListInstanceGroupManagersRequest{
		Project: z.project, Zone: z.name,
	}).Next)
}

func (z *zone) group(ctx context.Context, name string) (*computepb.InstanceGroupManager, error) {
	group, err := z.zoneGroups.Get(ctx, &computepb.GetInstanceGroupManagerRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name,
	})
	return one(z.clients, group, err)
}

func (z *zone) managed(ctx context.Context, name string) ([]*computepb.ManagedInstance, error) {
	ctx, release := z.paced.bind(ctx)
	defer release()
	return all(z.clients, maxInstancesRead, z.zoneGroups.ListManagedInstances(ctx, &computepb.ListManagedInstancesInstanceGroupManagersRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name,
	}).Next)
}

func (z *zone) failures(ctx context.Context, name string) ([]*computepb.InstanceManagedByIgmError, error) {
	ctx, release := z.paced.bind(ctx)
	defer release()
	list, _, err := upTo(z.clients, maxErrorsRead, z.zoneGroups.ListErrors(ctx, &computepb.ListErrorsInstanceGroupManagersRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name,
	}).Next)
	return list, err
}

func (z *zone) autoscaler(ctx context.Context, name string) (*computepb.Autoscaler, error) {
	autoscaler, err := z.zoneAutoscalers.Get(ctx, &computepb.GetAutoscalerRequest{
		Project: z.project, Zone: z.name, Autoscaler: name,
	})
	return one(z.clients, autoscaler, err)
}

func (z *zone) operation(ctx context.Context, name string) (*computepb.Operation, error) {
	op, err := z.zoneOperations.Get(ctx, &computepb.GetZoneOperationRequest{
		Project: z.project, Zone: z.name, Operation: name,
	})
	return one(z.clients, op, err)
}

func (z *zone) resize(ctx context.Context, name string, size int32, requestID *string) (*computepb.Operation, error) {
	op, err := z.zoneGroups.Resize(ctx, &computepb.ResizeInstanceGroupManagerRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name, Size: size, RequestId: requestID,
	})
	return started(z.clients, op, err)
}

func (z *zone) remove(ctx context.Context, name string, urls []string, requestID *string) (*computepb.Operation, error) {
	op, err := z.zoneGroups.DeleteInstances(ctx, &computepb.DeleteInstancesInstanceGroupManagerRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name, RequestId: requestID,
		InstanceGroupManagersDeleteInstancesRequestResource: &computepb.InstanceGroupManagersDeleteInstancesRequest{
			Instances: urls, SkipInstancesOnValidationError: new(true),
		},
	})
	return started(z.clients, op, err)
}

func (z *zone) recreate(ctx context.Context, name string, urls []string) (*computepb.Operation, error) {
	op, err := z.zoneGroups.RecreateInstances(ctx, &computepb.RecreateInstancesInstanceGroupManagerRequest{
		Project: z.project, Zone: z.name, InstanceGroupManager: name,
		InstanceGroupManagersRecreateInstancesRequestResource: &computepb.InstanceGroupManagersRecreateInstancesRequest{
			Instances: urls,
		},
	})
	return started(z.clients, op, err)
}
