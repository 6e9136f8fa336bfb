package gcemig

import (
	"context"
	"errors"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of what one call reads; more means an endpoint that makes things up.
const (
	maxGroupsRead    = 20_000
	maxInstancesRead = 20_000
	// maxErrorsRead bounds the errors of one group that are looked at [entries]: how
	// they are ordered is not documented, so that the newest need not come first.
	maxErrorsRead = 1_000
)

// How large Google lets a group be (compute/docs/instance-groups/
// creating-groups-of-managed-instances, limitations, and add-remove-vms-in-mig,
// "increase the group's size limit") [instances].
const (
	maxZonal          = 1_000
	maxZonalPaginated = 2_000
	maxRegional       = 2_000
)

// scope is where groups are: a zone or a region. Lists are whole, all pages, or an
// error, which is one of the contract's. A write returns the operation that it
// started.
type scope interface {
	groups(ctx context.Context) ([]*computepb.InstanceGroupManager, error)
	group(ctx context.Context, name string) (*computepb.InstanceGroupManager, error)
	managed(ctx context.Context, name string) ([]*computepb.ManagedInstance, error)
	failures(ctx context.Context, name string) ([]*computepb.InstanceManagedByIgmError, error)
	autoscaler(ctx context.Context, name string) (*computepb.Autoscaler, error)
	operation(ctx context.Context, name string) (*computepb.Operation, error)

	resize(ctx context.Context, name string, size int32, requestID *string) (*computepb.Operation, error)
	remove(ctx context.Context, name string, urls []string, requestID *string) (*computepb.Operation, error)
	recreate(ctx context.Context, name string, urls []string) (*computepb.Operation, error)

	maxSize(group *computepb.InstanceGroupManager) int // [instances]
	zones(group *computepb.InstanceGroupManager) []string
}

// all reads an iterator to its end: all of it, or an error.
func all[T any](c *clients, limit int, next func() (T, error)) ([]T, error) {
	list, more, err := upTo(c, limit, next)
	switch {
	case err != nil:
		return nil, err
	case more:
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "the list has more than %d entries", limit)
	}
	return list, nil
}

// upTo reads at most limit entries of an iterator, and says whether there are more.
func upTo[T any](c *clients, limit int, next func() (T, error)) (list []T, more bool, err error) {
	for {
		item, err := next()
		switch {
		case errors.Is(err, iterator.Done):
			return list, false, nil
		case err != nil:
			return nil, false, c.classify(err)
		case len(list) == limit:
			return list, true, nil
		}
		list = append(list, item)
	}
}

// one is an answer with its error classified.
func one[T any](c *clients, answer T, err error) (T, error) {
	if err != nil {
		var none T
		return none, c.classify(err)
	}
	return answer, nil
}

// started is the operation that a write started.
func started(c *clients, op interface{ Proto() *computepb.Operation }, err error) (*computepb.Operation, error) {
	if err != nil {
		return nil, c.classify(err)
	}
	return op.Proto(), nil
}
