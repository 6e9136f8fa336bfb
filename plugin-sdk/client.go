package pluginsdk

import (
	"context"
	"errors"
	"io"
	"math"

	"google.golang.org/grpc"

	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// NewClient returns the provider at the other end of cc. Every error is an
// *[Error]; one that ended with the context also matches the context's error.
//
// What the plugin says is converted, not believed: checking is the host's.
func NewClient(cc grpc.ClientConnInterface) Provider {
	return &client{rpc: providerv1.NewProviderServiceClient(cc)}
}

// maxCapabilities bounds what is kept of a list that may fill a message [entries].
const maxCapabilities = 100

// client carries calls from the host to the wire.
type client struct {
	rpc providerv1.ProviderServiceClient
}

func (c *client) Describe(ctx context.Context) (Description, error) {
	w, err := c.rpc.Describe(ctx, &providerv1.DescribeRequest{})
	if err != nil {
		return Description{}, fromStatus(ctx, err)
	}
	if v := w.GetContractVersion(); v < OldestContract || v > ContractVersion {
		return Description{}, Errorf(KindInvalid, "the plugin speaks contract version %d, this side speaks %d and %d", v, OldestContract, ContractVersion)
	}
	d := Description{Name: w.GetName(), Version: w.GetVersion(), ConfigSchema: w.GetConfigSchema()}
	for _, number := range w.GetCapabilities() {
		if known, ok := capabilities.golang(number); ok && len(d.Capabilities) < maxCapabilities {
			d.Capabilities = append(d.Capabilities, known)
		}
	}
	for _, v := range w.GetDeviations() {
		d.Deviations = append(d.Deviations, Deviation{Check: clip(v.GetCheck()), Reason: clip(v.GetReason())})
	}
	return d, nil
}

func (c *client) Configure(ctx context.Context, config []byte) error {
	_, err := c.rpc.Configure(ctx, &providerv1.ConfigureRequest{Config: string(config)})
	return fromStatus(ctx, err)
}

func (c *client) Status(ctx context.Context, groups []string) ([]GroupStatus, error) {
	w, err := c.rpc.Status(ctx, &providerv1.StatusRequest{Groups: groups})
	if err != nil {
		return nil, fromStatus(ctx, err)
	}
	return each(w.GetGroups(), statusFromWire), nil
}

func (c *client) ListInstances(ctx context.Context, group string) ([]Instance, error) {
	w, err := c.rpc.ListInstances(ctx, &providerv1.ListInstancesRequest{Group: group})
	if err != nil {
		return nil, fromStatus(ctx, err)
	}
	return each(w.GetInstances(), instanceFromWire), nil
}

func (c *client) SetDesired(ctx context.Context, r SetDesired) (int, error) {
	if err := fits(r.Target, r.Expected); err != nil {
		return 0, err
	}
	w, err := c.rpc.SetDesired(ctx, &providerv1.SetDesiredRequest{
		Group: r.Group, Target: int32(r.Target), Expected: int32(r.Expected), Token: r.Token,
	})
	if err != nil {
		return 0, fromStatus(ctx, err)
	}
	return int(w.GetDesired()), nil
}

func (c *client) Remove(ctx context.Context, group string, ids []string, token string) ([]RemoveResult, error) {
	w, err := c.rpc.Remove(ctx, &providerv1.RemoveRequest{Group: group, InstanceIds: ids, Token: token})
	if err != nil {
		return nil, fromStatus(ctx, err)
	}
	return each(w.GetResults(), resultFromWire), nil
}

func (c *client) Withdraw(ctx context.Context, group string, expected int, token string) (WithdrawResult, error) {
	if err := fits(expected); err != nil {
		return WithdrawResult{}, err
	}
	w, err := c.rpc.Withdraw(ctx, &providerv1.WithdrawRequest{Group: group, Expected: int32(expected), Token: token})
	if err != nil {
		return WithdrawResult{}, fromStatus(ctx, err)
	}
	return WithdrawResult{Desired: int(w.GetDesired()), Withdrawn: int(w.GetWithdrawn())}, nil
}

func (c *client) Protect(ctx context.Context, group string, ids []string, protected bool) error {
	_, err := c.rpc.Protect(ctx, &providerv1.ProtectRequest{Group: group, InstanceIds: ids, Protected: protected})
	return fromStatus(ctx, err)
}

func (c *client) CompleteHook(ctx context.Context, group string, ids []string) error {
	_, err := c.rpc.CompleteHook(ctx, &providerv1.CompleteHookRequest{Group: group, InstanceIds: ids})
	return fromStatus(ctx, err)
}

func (c *client) ReportUnhealthy(ctx context.Context, group string, ids []string) error {
	_, err := c.rpc.ReportUnhealthy(ctx, &providerv1.ReportUnhealthyRequest{Group: group, InstanceIds: ids})
	return fromStatus(ctx, err)
}

func (c *client) Findings(ctx context.Context, groups []string) ([]Finding, error) {
	w, err := c.rpc.Findings(ctx, &providerv1.FindingsRequest{Groups: groups})
	if err != nil {
		return nil, fromStatus(ctx, err)
	}
	return each(w.GetFindings(), findingFromWire), nil
}

func (c *client) Count(ctx context.Context, name string) (Count, error) {
	w, err := c.rpc.Count(ctx, &providerv1.CountRequest{Name: name})
	if err != nil {
		return Count{}, fromStatus(ctx, err)
	}
	return Count{Jobs: w.GetJobs(), At: timeFromWire(w.GetAt())}, nil
}

func (c *client) Watch(ctx context.Context, groups []string, notify func(Interruption)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream that isn't read to its end leaks otherwise
	stream, err := c.rpc.Watch(ctx, &providerv1.WatchRequest{Groups: groups})
	for err == nil {
		var w *providerv1.WatchResponse
		if w, err = stream.Recv(); err == nil {
			notify(interruptionFromWire(w))
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, io.EOF):
		return Errorf(KindTransient, "the plugin ended the watch")
	default:
		return fromStatus(ctx, err)
	}
}

func (c *client) Close(ctx context.Context) error {
	_, err := c.rpc.Close(ctx, &providerv1.CloseRequest{})
	return fromStatus(ctx, err)
}

// fits refuses what would arrive as another number than was meant.
func fits(numbers ...int) error {
	for _, n := range numbers {
		if n < 0 || n > math.MaxInt32 {
			return Errorf(KindInvalid, "%d instances can't be asked for: use 0 to %d", n, math.MaxInt32)
		}
	}
	return nil
}
