package migstub_test

import (
	"net/http/httptest"
	"testing"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/require"
	oldcompute "google.golang.org/api/compute/v1"
	"google.golang.org/api/option"

	"github.com/spillway-ci/spillway/internal/migstub"
)

const zone, region = "europe-west1-b", "europe-west1"

// clock is a time that tests move.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.at }

// serve starts a Cloud on a socket.
func serve(t *testing.T, c *migstub.Cloud) (url string) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return server.URL
}

func ptr[T any](v T) *T { return &v }

// The new client: a whole life of a zonal group.
func TestAPIv1Client(t *testing.T) {
	clk := newClock()
	c := migstub.New(migstub.Options{Now: clk.now, Seed: 1})
	c.AddGroup(migstub.GroupConfig{Name: "linux", Zone: zone, Size: 2, Faults: migstub.GroupFaults{
		Boot: migstub.Boot{P50: time.Minute}, Stop: 20 * time.Second,
	}})
	url := serve(t, c)
	client, err := compute.NewInstanceGroupManagersRESTClient(t.Context(), option.WithEndpoint(url), option.WithoutAuthentication())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()

	list := func() map[string]*computepb.ManagedInstance {
		byName := make(map[string]*computepb.ManagedInstance)
		for m, err := range client.ListManagedInstances(t.Context(), &computepb.ListManagedInstancesInstanceGroupManagersRequest{
			Project: "p", Zone: zone, InstanceGroupManager: "linux",
		}).All() {
			require.NoError(t, err)
			byName[m.GetName()] = m
		}
		return byName
	}
	get := func() *computepb.InstanceGroupManager {
		g, err := client.Get(t.Context(), &computepb.GetInstanceGroupManagerRequest{Project: "p", Zone: zone, InstanceGroupManager: "linux"})
		require.NoError(t, err)
		return g
	}
	before := list()
	require.Len(t, before, 2)
	g := get()
	require.EqualValues(t, 2, g.GetTargetSize())
	require.True(t, g.GetStatus().GetIsStable())

	op, err := client.Resize(t.Context(), &computepb.ResizeInstanceGroupManagerRequest{
		Project: "p", Zone: zone, InstanceGroupManager: "linux", Size: 3, RequestId: ptr("11111111-1111-4111-8111-111111111111"),
	})
	require.NoError(t, err)
	require.NoError(t, op.Wait(t.Context()))
	g = get()
	require.EqualValues(t, 3, g.GetTargetSize())
	require.False(t, g.GetStatus().GetIsStable())
	require.EqualValues(t, 1, g.GetCurrentActions().GetCreating())
	var fresh *computepb.ManagedInstance
	for name, m := range list() {
		if before[name] == nil {
			fresh = m
		}
	}
	require.Equal(t, "CREATING", fresh.GetCurrentAction())
	require.Equal(t, "PROVISIONING", fresh.GetInstanceStatus())

	clk.at = clk.at.Add(time.Minute)
	require.True(t, get().GetStatus().GetIsStable())

	op, err = client.DeleteInstances(t.Context(), &computepb.DeleteInstancesInstanceGroupManagerRequest{
		Project: "p", Zone: zone, InstanceGroupManager: "linux",
		InstanceGroupManagersDeleteInstancesRequestResource: &computepb.InstanceGroupManagersDeleteInstancesRequest{
			Instances: []string{fresh.GetInstance()}, SkipInstancesOnValidationError: ptr(true),
		},
	})
	require.NoError(t, err)
	require.NoError(t, op.Wait(t.Context()))
	require.EqualValues(t, 2, get().GetTargetSize())
	require.Equal(t, "DELETING", list()[fresh.GetName()].GetCurrentAction())
	require.Equal(t, "STOPPING", list()[fresh.GetName()].GetInstanceStatus())
	clk.at = clk.at.Add(20 * time.Second)
	require.NotContains(t, list(), fresh.GetName())
	require.Equal(t, 1, c.CountOf("instanceGroupManagers.resize"))
}

// The older client, on a regional group.
func TestOlderClient(t *testing.T) {
	c := migstub.New(migstub.Options{Seed: 1})
	c.AddGroup(migstub.GroupConfig{Name: "linux", Region: region, Size: 3, Paginated: true})
	service, err := oldcompute.NewService(t.Context(), option.WithEndpoint(serve(t, c)+"/compute/v1/"), option.WithoutAuthentication())
	require.NoError(t, err)
	groups := oldcompute.NewRegionInstanceGroupManagersService(service)
	g, err := groups.Get("p", region, "linux").Context(t.Context()).Do()
	require.NoError(t, err)
	require.EqualValues(t, 3, g.TargetSize)
	require.Len(t, g.DistributionPolicy.Zones, 3)

	op, err := groups.Resize("p", region, "linux", 7).Context(t.Context()).Do()
	require.NoError(t, err)
	op, err = oldcompute.NewRegionOperationsService(service).Wait("p", region, op.Name).Context(t.Context()).Do()
	require.NoError(t, err)
	require.Equal(t, "DONE", op.Status)

	names, pages := map[string]bool{}, 0
	require.NoError(t, groups.ListManagedInstances("p", region, "linux").MaxResults(2).Pages(t.Context(), func(page *oldcompute.RegionInstanceGroupManagersListInstancesResponse) error {
		pages++
		for _, m := range page.ManagedInstances {
			names[m.Name] = true
		}
		return nil
	}))
	require.Len(t, names, 7)
	require.Equal(t, 4, pages)
}
