package pluginsdk

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// Register serves p on s. [Serve] does it for a plugin's main.
func Register(s grpc.ServiceRegistrar, p Provider) {
	register(s, p, ContractVersion)
}

func register(s grpc.ServiceRegistrar, p Provider, contract int) {
	providerv1.RegisterProviderServiceServer(s, &server{provider: p, contract: contract})
}

// server carries calls from the wire to the provider.
type server struct {
	providerv1.UnimplementedProviderServiceServer
	provider Provider
	contract int // the version that was agreed on
}

func (s *server) Describe(ctx context.Context, _ *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	d, err := s.provider.Describe(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	w := &providerv1.DescribeResponse{
		Name:            d.Name,
		Version:         d.Version,
		ContractVersion: toInt32(s.contract),
		ConfigSchema:    d.ConfigSchema,
	}
	for _, c := range d.Capabilities {
		w.Capabilities = append(w.Capabilities, capabilities.wire(c))
	}
	for _, v := range d.Deviations {
		w.Deviations = append(w.Deviations, &providerv1.Deviation{Check: v.Check, Reason: clip(v.Reason)})
	}
	return w, nil
}

func (s *server) Configure(ctx context.Context, r *providerv1.ConfigureRequest) (*providerv1.ConfigureResponse, error) {
	if err := s.provider.Configure(ctx, []byte(r.GetConfig())); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.ConfigureResponse{}, nil
}

func (s *server) Status(ctx context.Context, r *providerv1.StatusRequest) (*providerv1.StatusResponse, error) {
	if err := CheckGroups(r.GetGroups()); err != nil {
		return nil, toStatus(ctx, err)
	}
	all, err := s.provider.Status(ctx, r.GetGroups())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.StatusResponse{Groups: each(all, statusToWire)}, nil
}

func (s *server) ListInstances(ctx context.Context, r *providerv1.ListInstancesRequest) (*providerv1.ListInstancesResponse, error) {
	all, err := s.provider.ListInstances(ctx, r.GetGroup())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.ListInstancesResponse{Instances: each(all, instanceToWire)}, nil
}

func (s *server) SetDesired(ctx context.Context, r *providerv1.SetDesiredRequest) (*providerv1.SetDesiredResponse, error) {
	desired, err := s.provider.SetDesired(ctx, SetDesired{
		Group: r.GetGroup(), Target: int(r.GetTarget()), Expected: int(r.GetExpected()), Token: r.GetToken(),
	})
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.SetDesiredResponse{Desired: toInt32(desired)}, nil
}

func (s *server) Remove(ctx context.Context, r *providerv1.RemoveRequest) (*providerv1.RemoveResponse, error) {
	if err := CheckInstances(r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	results, err := s.provider.Remove(ctx, r.GetGroup(), r.GetInstanceIds(), r.GetToken())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.RemoveResponse{Results: each(results, resultToWire)}, nil
}

func (s *server) Withdraw(ctx context.Context, r *providerv1.WithdrawRequest) (*providerv1.WithdrawResponse, error) {
	got, err := s.provider.Withdraw(ctx, r.GetGroup(), int(r.GetExpected()), r.GetToken())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.WithdrawResponse{Desired: toInt32(got.Desired), Withdrawn: toInt32(got.Withdrawn)}, nil
}

func (s *server) Protect(ctx context.Context, r *providerv1.ProtectRequest) (*providerv1.ProtectResponse, error) {
	if err := CheckInstances(r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	if err := s.provider.Protect(ctx, r.GetGroup(), r.GetInstanceIds(), r.GetProtected()); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.ProtectResponse{}, nil
}

func (s *server) CompleteHook(ctx context.Context, r *providerv1.CompleteHookRequest) (*providerv1.CompleteHookResponse, error) {
	if err := CheckInstances(r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	if err := s.provider.CompleteHook(ctx, r.GetGroup(), r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.CompleteHookResponse{}, nil
}

func (s *server) ReportUnhealthy(ctx context.Context, r *providerv1.ReportUnhealthyRequest) (*providerv1.ReportUnhealthyResponse, error) {
	if err := CheckInstances(r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	if err := s.provider.ReportUnhealthy(ctx, r.GetGroup(), r.GetInstanceIds()); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.ReportUnhealthyResponse{}, nil
}

func (s *server) Findings(ctx context.Context, r *providerv1.FindingsRequest) (*providerv1.FindingsResponse, error) {
	if err := CheckGroups(r.GetGroups()); err != nil {
		return nil, toStatus(ctx, err)
	}
	all, err := s.provider.Findings(ctx, r.GetGroups())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.FindingsResponse{Findings: each(all, findingToWire)}, nil
}

func (s *server) Count(ctx context.Context, r *providerv1.CountRequest) (*providerv1.CountResponse, error) {
	got, err := s.provider.Count(ctx, r.GetName())
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.CountResponse{Jobs: got.Jobs, At: timeToWire(got.At)}, nil
}

// Watch lets notify be called from any goroutine, although a stream takes one
// message at a time. When the host is gone the provider's context ends.
func (s *server) Watch(r *providerv1.WatchRequest, stream grpc.ServerStreamingServer[providerv1.WatchResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	if err := CheckGroups(r.GetGroups()); err != nil {
		return toStatus(ctx, err)
	}
	var sending sync.Mutex
	err := s.provider.Watch(ctx, r.GetGroups(), func(i Interruption) {
		sending.Lock()
		defer sending.Unlock()
		if ctx.Err() == nil && stream.Send(interruptionToWire(i)) != nil {
			cancel()
		}
	})
	return toStatus(ctx, err)
}

func (s *server) Close(ctx context.Context, _ *providerv1.CloseRequest) (*providerv1.CloseResponse, error) {
	if err := s.provider.Close(ctx); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &providerv1.CloseResponse{}, nil
}

func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
