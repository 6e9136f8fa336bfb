package providers_test

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
	"github.com/spillway-ci/spillway/providers"
)

// versioned is a plugin that was built with another version's SDK: it offers that
// version only and has the methods that version 1 had.
type versioned struct {
	plugin.NetRPCUnsupportedPlugin
	contract int32
}

func (v versioned) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	providerv1.RegisterProviderServiceServer(s, versionedServer{contract: v.contract})
	return nil
}

func (versioned) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, pluginsdk.ErrUnsupported
}

// serveVersion is the main of such a plugin.
func serveVersion(contract int) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: withVersion(uint(contract)),
		Plugins:         plugin.PluginSet{pluginsdk.PluginName: versioned{contract: int32(contract)}},
		GRPCServer:      plugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
}

type versionedServer struct {
	providerv1.UnimplementedProviderServiceServer
	contract int32
}

func (v versionedServer) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return &providerv1.DescribeResponse{Name: "old", Version: "0.1.0", ContractVersion: v.contract, ConfigSchema: "{}"}, nil
}

func (versionedServer) Configure(context.Context, *providerv1.ConfigureRequest) (*providerv1.ConfigureResponse, error) {
	return &providerv1.ConfigureResponse{}, nil
}

func (versionedServer) Status(_ context.Context, r *providerv1.StatusRequest) (*providerv1.StatusResponse, error) {
	w := &providerv1.StatusResponse{}
	for _, g := range r.GetGroups() {
		w.Groups = append(w.Groups, &providerv1.GroupStatus{Group: g, Desired: 3, Max: 10})
	}
	return w, nil
}

func (versionedServer) ListInstances(context.Context, *providerv1.ListInstancesRequest) (*providerv1.ListInstancesResponse, error) {
	return &providerv1.ListInstancesResponse{Instances: []*providerv1.Instance{
		{Id: "i-1", State: providerv1.InstanceState_INSTANCE_STATE_RUNNING},
	}}, nil
}

func (versionedServer) SetDesired(_ context.Context, r *providerv1.SetDesiredRequest) (*providerv1.SetDesiredResponse, error) {
	return &providerv1.SetDesiredResponse{Desired: r.GetTarget()}, nil
}

func (versionedServer) Remove(_ context.Context, r *providerv1.RemoveRequest) (*providerv1.RemoveResponse, error) {
	w := &providerv1.RemoveResponse{}
	for _, id := range r.GetInstanceIds() {
		w.Results = append(w.Results, &providerv1.RemoveResult{InstanceId: id, Outcome: providerv1.RemoveOutcome_REMOVE_OUTCOME_REMOVED})
	}
	return w, nil
}

func (versionedServer) Close(context.Context, *providerv1.CloseRequest) (*providerv1.CloseResponse, error) {
	return &providerv1.CloseResponse{}, nil
}

// TestAPluginOfTheVersionBefore: everything that version 1 had works, and what it
// hasn't heard of is unsupported, not an error that looks like a failure.
func TestAPluginOfTheVersionBefore(t *testing.T) {
	f := newHost(t, providers.Timing{})
	p := open(t, f, spec(t, "version 1"))
	s := p.State()
	require.Equal(t, 1, s.Contract)
	require.Contains(t, s.String(), "(old 0.1.0, contract 1)")

	ctx := within(t, patience)
	g := p.Group("pool", "g")
	status, err := g.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, pluginsdk.GroupStatus{Group: "g", Desired: 3, Max: 10}, status, "nothing is halted")
	instances, err := g.ListInstances(ctx)
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.Instance{{ID: "i-1", State: pluginsdk.StateRunning}}, instances, "no hook, not kept")
	desired, err := g.SetDesired(ctx, 4, 3)
	require.NoError(t, err)
	require.Equal(t, 4, desired)
	removed, err := g.Remove(ctx, []string{"i-1"})
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.RemoveResult{{ID: "i-1", Outcome: pluginsdk.Removed}}, removed)

	_, findErr := p.Findings(ctx, []string{"g"})
	_, countErr := p.Count(ctx, "queue")
	for _, err := range []error{
		findErr, countErr, g.CompleteHook(ctx, []string{"i-1"}), g.ReportUnhealthy(ctx, []string{"i-1"}),
	} {
		require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
	}
	require.Equal(t, providers.Ready, p.State().Phase)
	require.Zero(t, p.State().Restarts)
}

// TestTheNewestVersionIsSpoken: this SDK's plugins offer both.
func TestTheNewestVersionIsSpoken(t *testing.T) {
	f := newHost(t, providers.Timing{})
	require.Equal(t, pluginsdk.ContractVersion, open(t, f, spec(t, "good")).State().Contract)
}

// TestAPluginOfTheNextVersion: one that has dropped ours can't be used, and the
// sentence says what to do it about.
func TestAPluginOfTheNextVersion(t *testing.T) {
	f := newHost(t, providers.Timing{})
	_, err := f.Open(within(t, patience), spec(t, "version 3"))
	require.ErrorIs(t, err, providers.ErrLaunch)
	require.ErrorContains(t, err, "speaks version 3 of the contract, this control plane speaks 1 and 2")
	requireNoProcess(t, "version 3")
}
