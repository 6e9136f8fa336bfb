package gcemig

import (
	"context"
	"net/http"

	compute "cloud.google.com/go/compute/apiv1"
	"google.golang.org/api/option"
	transport "google.golang.org/api/transport/http"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// authScope is the OAuth scope that the writes need; the reads need no other.
const authScope = "https://www.googleapis.com/auth/compute"

// clients are Google's, on one connection pool and one call budget. None of them
// repeats a call: that is the control plane's to decide.
type clients struct {
	project string
	http    *http.Client
	paced   *paced
	budget  *pluginsdk.Budget

	zoneGroups        *compute.InstanceGroupManagersClient
	regionGroups      *compute.RegionInstanceGroupManagersClient
	vms               *compute.InstancesClient
	zoneOperations    *compute.ZoneOperationsClient
	regionOperations  *compute.RegionOperationsClient
	zoneAutoscalers   *compute.AutoscalersClient
	regionAutoscalers *compute.RegionAutoscalersClient
}

// newClients makes no call but, where the credentials are a file's or a metadata
// server's, finds out which they are. below, if not nil, is used instead of a
// connection.
func newClients(ctx context.Context, c config, budget *pluginsdk.Budget, below http.RoundTripper) (*clients, error) {
	// What is made here outlives the call that made it.
	ctx = context.WithoutCancel(ctx)
	client, err := newHTTPClient(ctx, c.Endpoint, below)
	if err != nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindAuth, "no Google Cloud credentials: %w", err)
	}
	paced := &paced{next: client.Transport, budget: budget}
	made := &clients{project: c.Project, http: &http.Client{Transport: paced}, paced: paced, budget: budget}
	if err := made.connect(ctx, c.Endpoint); err != nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "no client of the Compute API: %w", err)
	}
	return made, nil
}

func newHTTPClient(ctx context.Context, endpoint string, below http.RoundTripper) (*http.Client, error) {
	switch {
	case below != nil:
		return &http.Client{Transport: below}, nil
	case endpoint != "" && onLoopback(endpoint):
		return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, nil
	}
	options := []option.ClientOption{option.WithScopes(authScope)}
	if endpoint != "" {
		options = append(options, option.WithEndpoint(endpoint))
	}
	client, _, err := transport.NewClient(ctx, options...)
	return client, err
}

func (c *clients) connect(ctx context.Context, endpoint string) (err error) {
	options := []option.ClientOption{option.WithHTTPClient(c.http)}
	if endpoint != "" {
		options = append(options, option.WithEndpoint(endpoint))
	}
	if c.zoneGroups, err = compute.NewInstanceGroupManagersRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.regionGroups, err = compute.NewRegionInstanceGroupManagersRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.vms, err = compute.NewInstancesRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.zoneOperations, err = compute.NewZoneOperationsRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.regionOperations, err = compute.NewRegionOperationsRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.zoneAutoscalers, err = compute.NewAutoscalersRESTClient(ctx, options...); err != nil {
		return err
	}
	if c.regionAutoscalers, err = compute.NewRegionAutoscalersRESTClient(ctx, options...); err != nil {
		return err
	}
	c.retryNothing()
	return nil
}

// retryNothing takes away the repetitions that Google's clients come with. Their
// options are emptied in place: the inner client looks at the same ones, and not at
// others that are put in their stead.
func (c *clients) retryNothing() {
	*c.zoneGroups.CallOptions = compute.InstanceGroupManagersCallOptions{}
	*c.regionGroups.CallOptions = compute.RegionInstanceGroupManagersCallOptions{}
	*c.vms.CallOptions = compute.InstancesCallOptions{}
	*c.zoneOperations.CallOptions = compute.ZoneOperationsCallOptions{}
	*c.regionOperations.CallOptions = compute.RegionOperationsCallOptions{}
	*c.zoneAutoscalers.CallOptions = compute.AutoscalersCallOptions{}
	*c.regionAutoscalers.CallOptions = compute.RegionAutoscalersCallOptions{}
}

// close lets the connections go.
func (c *clients) close() { c.http.CloseIdleConnections() }
