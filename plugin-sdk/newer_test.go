package pluginsdk_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// newer is a plugin of a later version: its enums have numbers that this side
// has never heard of.
type newer struct {
	providerv1.UnimplementedProviderServiceServer
	contract int32
}

func (n newer) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return &providerv1.DescribeResponse{
		Name: "newer", ContractVersion: n.contract,
		Capabilities: []providerv1.Capability{99, providerv1.Capability_CAPABILITY_WATCH},
	}, nil
}

func (newer) Status(context.Context, *providerv1.StatusRequest) (*providerv1.StatusResponse, error) {
	return &providerv1.StatusResponse{Groups: []*providerv1.GroupStatus{{
		Error:    &providerv1.ProviderError{Kind: 99},
		Failures: []*providerv1.GroupFailure{{Id: "f", Kind: 99, At: &timestamppb.Timestamp{Nanos: -5}}},
	}}}, nil
}

func (newer) ListInstances(context.Context, *providerv1.ListInstancesRequest) (*providerv1.ListInstancesResponse, error) {
	return &providerv1.ListInstancesResponse{Instances: []*providerv1.Instance{{Id: "i", State: 99}}}, nil
}

func (newer) Remove(context.Context, *providerv1.RemoveRequest) (*providerv1.RemoveResponse, error) {
	return &providerv1.RemoveResponse{Results: []*providerv1.RemoveResult{{InstanceId: "i", Outcome: 99}}}, nil
}

func newerPlugin(t *testing.T, contract int32) pluginsdk.Provider {
	return pluginsdk.NewClient(serve(t, func(s *grpc.Server) {
		providerv1.RegisterProviderServiceServer(s, newer{contract: contract})
	}))
}

// TestWhatANewerPluginSaysIsTakenCautiously: what isn't known is transient,
// counts as running, is not removed.
func TestWhatANewerPluginSaysIsTakenCautiously(t *testing.T) {
	ctx := context.Background()
	p := newerPlugin(t, pluginsdk.ContractVersion)

	d, err := p.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.Capability{pluginsdk.CanWatch}, d.Capabilities)

	s, err := p.Status(ctx, []string{"g"})
	require.NoError(t, err)
	require.ErrorIs(t, s[0].Err, pluginsdk.ErrTransient)
	require.Equal(t, []pluginsdk.GroupFailure{{ID: "f", Kind: pluginsdk.KindTransient}}, s[0].Failures)

	l, err := p.ListInstances(ctx, "g")
	require.NoError(t, err)
	require.Equal(t, []pluginsdk.Instance{{ID: "i", State: pluginsdk.StateUnknown}}, l)

	r, err := p.Remove(ctx, "g", []string{"i"}, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.NotRemoved, r[0].Outcome)
	require.ErrorIs(t, r[0].Err, pluginsdk.ErrTransient)

	// A method that the plugin doesn't have.
	_, err = p.Withdraw(ctx, "g", 1, "t")
	require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
}

func TestAnotherContractVersionIsRefused(t *testing.T) {
	_, err := newerPlugin(t, pluginsdk.ContractVersion+1).Describe(context.Background())
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.ErrorContains(t, err, "contract version 3, this side speaks 1 and 2")
}

// flooding is a plugin that can the same thing a million times.
type flooding struct {
	providerv1.UnimplementedProviderServiceServer
}

func (flooding) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return &providerv1.DescribeResponse{
		Name: "flooding", ContractVersion: pluginsdk.ContractVersion,
		Capabilities: slices.Repeat([]providerv1.Capability{providerv1.Capability_CAPABILITY_WATCH}, 1_000_000),
	}, nil
}

// T5: what is kept of a list does not grow with the message.
func TestT5_CapabilitiesAreBounded(t *testing.T) {
	p := pluginsdk.NewClient(serve(t, func(s *grpc.Server) { providerv1.RegisterProviderServiceServer(s, flooding{}) }))
	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, len(d.Capabilities), 100)
	require.True(t, d.Has(pluginsdk.CanWatch))
}
