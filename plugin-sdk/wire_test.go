package pluginsdk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// overWire serves p on a connection in memory and returns the other end. opts
// are the server's.
func overWire(t *testing.T, p pluginsdk.Provider, opts ...grpc.ServerOption) pluginsdk.Provider {
	t.Helper()
	return pluginsdk.NewClient(serve(t, func(s *grpc.Server) { pluginsdk.Register(s, p) }, opts...))
}

func serve(t *testing.T, register func(*grpc.Server), opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	s := grpc.NewServer(opts...)
	register(s)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

var allKinds = []pluginsdk.Kind{
	pluginsdk.KindCapacity, pluginsdk.KindQuota, pluginsdk.KindThrottled, pluginsdk.KindAuth, pluginsdk.KindInvalid,
	pluginsdk.KindTransient, pluginsdk.KindConflict, pluginsdk.KindUnsupported, pluginsdk.KindNotFound,
}

// TestErrorsCrossTheWire: kind, message, retry-after and observed arrive as
// they were, wrapped or not.
func TestErrorsCrossTheWire(t *testing.T) {
	var failure error
	p := overWire(t, &stub{configure: func([]byte) error { return failure }})
	rapid.Check(t, func(rt *rapid.T) {
		want := &pluginsdk.Error{
			Kind:       rapid.SampledFrom(allKinds).Draw(rt, "kind"),
			Message:    rapid.StringMatching(`[a-z ]{0,40}`).Draw(rt, "message"),
			RetryAfter: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "retry after")),
			Observed:   rapid.IntRange(0, 10_000).Draw(rt, "observed"),
		}
		failure = want
		if rapid.Bool().Draw(rt, "wrapped") {
			failure = fmt.Errorf("while describing: %w", want)
		}
		err := p.Configure(context.Background(), nil)
		var got *pluginsdk.Error
		if !errors.As(err, &got) {
			rt.Fatalf("%T is not an *Error", err)
		}
		if got.Kind != want.Kind || got.RetryAfter != want.RetryAfter || got.Observed != want.Observed {
			rt.Fatalf("sent %#v, got %#v", want, got)
		}
		if !strings.Contains(got.Message, want.Message) {
			rt.Fatalf("message %q lost in %q", want.Message, got.Message)
		}
	})
}

func TestErrorsThatNobodyClassified(t *testing.T) {
	failure := errors.New("boom")
	p := overWire(t, &stub{configure: func([]byte) error { return failure }})

	err := p.Configure(context.Background(), nil)
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "boom")

	failure = &pluginsdk.Error{Kind: "nonsense", Message: "x"}
	require.ErrorIs(t, p.Configure(context.Background(), nil), pluginsdk.ErrTransient)
}

func TestOnlyTheMessageOfAnErrorCrosses(t *testing.T) {
	secret := errors.New("token=hunter2")
	p := overWire(t, &stub{configure: func([]byte) error {
		return &pluginsdk.Error{Kind: pluginsdk.KindAuth, Message: "refused", Cause: secret}
	}})
	err := p.Configure(context.Background(), nil)
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestLongAndBrokenMessagesArrive(t *testing.T) {
	for name, message := range map[string]string{
		"long":          strings.Repeat("x", 1<<20),
		"invalid UTF-8": "a\xffb",
		"cut in a rune": strings.Repeat("x", pluginsdk.MaxErrorBytes-1) + "é",
	} {
		t.Run(name, func(t *testing.T) {
			p := overWire(t, &stub{configure: func([]byte) error {
				return &pluginsdk.Error{Kind: pluginsdk.KindQuota, Message: message}
			}})
			err := p.Configure(context.Background(), nil)
			require.ErrorIs(t, err, pluginsdk.ErrQuota)
			require.LessOrEqual(t, len(err.Error()), pluginsdk.MaxErrorBytes+len("quota: �"))
		})
	}
}

func TestStatusesWithoutDetail(t *testing.T) {
	var code codes.Code
	refuse := grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, status.Error(code, "from grpc")
	})
	p := overWire(t, &stub{}, refuse)

	for c, want := range map[codes.Code]error{
		codes.Unavailable:      pluginsdk.ErrTransient,
		codes.Internal:         pluginsdk.ErrTransient,
		codes.InvalidArgument:  pluginsdk.ErrTransient, // no detail: not the provider's word
		codes.Unimplemented:    pluginsdk.ErrUnsupported,
		codes.DeadlineExceeded: context.DeadlineExceeded,
	} {
		code = c
		require.ErrorIs(t, p.Configure(context.Background(), nil), want, c.String())
	}
}

func TestTheEndOfTheContextIsKnown(t *testing.T) {
	p := overWire(t, &stub{list: func(ctx context.Context) ([]pluginsdk.Instance, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := p.ListInstances(ctx, "g")
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	_, err = p.ListInstances(ctx, "g")
	require.ErrorIs(t, err, context.Canceled)
}

// The host knows who ended a call: its own limit, a lease, a shutdown.
func TestX13_TheCauseOfTheEndIsKept(t *testing.T) {
	p := overWire(t, &stub{list: func(ctx context.Context) ([]pluginsdk.Instance, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	reason := errors.New("the lease ended")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, reason)
	defer cancel()
	_, err := p.ListInstances(ctx, "g")
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ended, end := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { end(reason) })
	_, err = p.ListInstances(ended, "g")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	require.ErrorContains(t, err, "no answer: context canceled: the lease ended")
}

func TestAnswersCrossTheWire(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	description := pluginsdk.Description{
		Name: "ec2asg", Version: "1.2.3", ConfigSchema: `{"type":"object"}`,
		Capabilities: []pluginsdk.Capability{pluginsdk.CanWithdraw, pluginsdk.CanProtect, pluginsdk.CanWatch, pluginsdk.CanCompareAndSet},
	}
	statuses := []pluginsdk.GroupStatus{
		{Group: "a", Desired: 3, Min: 1, Max: 9, InTransition: true, Failures: []pluginsdk.GroupFailure{
			{ID: "f1", Kind: pluginsdk.KindCapacity, Message: "none left", At: at},
		}},
		{Group: "b", Err: &pluginsdk.Error{Kind: pluginsdk.KindNotFound, Message: "no such group"}},
	}
	instances := []pluginsdk.Instance{
		{ID: "i-1", State: pluginsdk.StateRunning, LaunchedAt: at, Zone: "z", Address: "10.0.0.7:9252", Spot: true, Protected: true, Unhealthy: true},
		{ID: "i-2", State: pluginsdk.StateCreating, Address: "2001:db8::7"},
		{ID: "i-3", State: pluginsdk.StateDeleting},
		{ID: "i-4", State: pluginsdk.StateUnknown},
	}
	results := []pluginsdk.RemoveResult{
		{ID: "i-1", Outcome: pluginsdk.Removed},
		{ID: "i-2", Outcome: pluginsdk.AlreadyGone},
		{ID: "i-3", Outcome: pluginsdk.NotRemoved, Err: &pluginsdk.Error{Kind: pluginsdk.KindThrottled, RetryAfter: time.Second}},
	}
	ctx := context.Background()
	p := overWire(t, &stub{
		describe: func() (pluginsdk.Description, error) { return description, nil },
		status: func(groups []string) ([]pluginsdk.GroupStatus, error) {
			require.Equal(t, []string{"a", "b"}, groups)
			return statuses, nil
		},
		list: func(context.Context) ([]pluginsdk.Instance, error) { return instances, nil },
		setDesired: func(r pluginsdk.SetDesired) (int, error) {
			require.Equal(t, pluginsdk.SetDesired{Group: "a", Target: 7, Expected: 3, Token: "t"}, r)
			return 7, nil
		},
		remove: func(group string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
			require.Equal(t, []any{"a", []string{"i-1", "i-2", "i-3"}, "t"}, []any{group, ids, token})
			return results, nil
		},
		withdraw: func(group string, expected int, token string) (pluginsdk.WithdrawResult, error) {
			require.Equal(t, []any{"a", 7, "t"}, []any{group, expected, token})
			return pluginsdk.WithdrawResult{Desired: 5, Withdrawn: 2}, nil
		},
		protect: func(group string, ids []string, on bool) error {
			require.Equal(t, []any{"a", []string{"i-1"}, true}, []any{group, ids, on})
			return nil
		},
	})

	d, err := p.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, description, d)
	s, err := p.Status(ctx, []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, statuses, s)
	l, err := p.ListInstances(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, instances, l)
	n, err := p.SetDesired(ctx, pluginsdk.SetDesired{Group: "a", Target: 7, Expected: 3, Token: "t"})
	require.NoError(t, err)
	require.Equal(t, 7, n)
	r, err := p.Remove(ctx, "a", []string{"i-1", "i-2", "i-3"}, "t")
	require.NoError(t, err)
	require.Equal(t, results, r)
	w, err := p.Withdraw(ctx, "a", 7, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.WithdrawResult{Desired: 5, Withdrawn: 2}, w)
	require.NoError(t, p.Protect(ctx, "a", []string{"i-1"}, true))
}

// TestAbsurdNumbersStayAbsurd: wrapped around, 2³²+3 would look like 3.
func TestAbsurdNumbersStayAbsurd(t *testing.T) {
	p := overWire(t, &stub{
		status: func([]string) ([]pluginsdk.GroupStatus, error) {
			return []pluginsdk.GroupStatus{{Group: "a", Desired: 1<<32 + 3, Min: -1 << 40}}, nil
		},
	})
	s, err := p.Status(context.Background(), []string{"a"})
	require.NoError(t, err)
	require.Equal(t, math.MaxInt32, s[0].Desired)
	require.Equal(t, math.MinInt32, s[0].Min)

	for _, target := range []int{-1, math.MaxInt32 + 1} {
		_, err = p.SetDesired(context.Background(), pluginsdk.SetDesired{Group: "a", Target: target})
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
		_, err = p.Withdraw(context.Background(), "a", target, "t")
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	}
}

func TestTheLimitsOfOneCall(t *testing.T) {
	p := overWire(t, &stub{protect: func(string, []string, bool) error { return nil }})
	ctx := context.Background()
	calls := map[string]func(n int) error{
		"status":  func(n int) error { _, err := p.Status(ctx, make([]string, n)); return err },
		"remove":  func(n int) error { _, err := p.Remove(ctx, "g", make([]string, n), "t"); return err },
		"protect": func(n int) error { return p.Protect(ctx, "g", make([]string, n), true) },
	}
	for name, call := range calls {
		require.NoError(t, call(1_000), name)
		require.ErrorIs(t, call(1_001), pluginsdk.ErrInvalid, name)
	}
	require.Equal(t, []int{1_000, 1_000}, []int{pluginsdk.MaxGroupsPerCall, pluginsdk.MaxInstancesPerCall})
}

func TestWatchCrossesTheWire(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	sent := []pluginsdk.Interruption{
		{Group: "a", InstanceID: "i-1", Kind: pluginsdk.SpotInterruption, Deadline: at},
		{Group: "a", InstanceID: "i-2", Kind: pluginsdk.Rebalance},
		{Group: "a", InstanceID: "i-3", Kind: pluginsdk.Maintenance},
		{Group: "a", InstanceID: "i-4", Kind: pluginsdk.Terminating},
		{Group: "a", InstanceID: "i-5", Kind: "newer than this"},
	}
	ended := make(chan struct{})
	p := overWire(t, &stub{watch: func(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
		defer close(ended)
		for _, i := range sent {
			notify(i)
		}
		<-ctx.Done()
		return nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var got []pluginsdk.Interruption
	require.NoError(t, p.Watch(ctx, []string{"a"}, func(i pluginsdk.Interruption) {
		if got = append(got, i); len(got) == len(sent) {
			cancel()
		}
	}))
	sent[4].Kind = pluginsdk.Rebalance // the mildest, for one that is not known
	require.Equal(t, sent, got)
	<-ended // the provider's context ends with the host's
}

func TestAWatchThatEndsByItselfIsAnError(t *testing.T) {
	p := overWire(t, &stub{watch: func(context.Context, []string, func(pluginsdk.Interruption)) error { return nil }})
	require.ErrorIs(t, p.Watch(context.Background(), nil, func(pluginsdk.Interruption) {}), pluginsdk.ErrTransient)

	p = overWire(t, &stub{})
	require.ErrorIs(t, p.Watch(context.Background(), nil, func(pluginsdk.Interruption) {}), pluginsdk.ErrUnsupported)
}
