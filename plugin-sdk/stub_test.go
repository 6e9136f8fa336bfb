package pluginsdk_test

import (
	"context"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// stub is a provider made of functions; a nil one answers with zero values. It
// notes what it was asked.
type stub struct {
	pluginsdk.Unsupported
	describe   func() (pluginsdk.Description, error)
	configure  func([]byte) error
	status     func([]string) ([]pluginsdk.GroupStatus, error)
	list       func(ctx context.Context) ([]pluginsdk.Instance, error)
	setDesired func(pluginsdk.SetDesired) (int, error)
	remove     func(group string, ids []string, token string) ([]pluginsdk.RemoveResult, error)
	withdraw   func(group string, expected int, token string) (pluginsdk.WithdrawResult, error)
	protect    func(group string, ids []string, on bool) error
	watch      func(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error
	closed     func()
}

func (s *stub) Describe(context.Context) (pluginsdk.Description, error) {
	if s.describe == nil {
		return pluginsdk.Description{Name: "stub", Version: "1.0.0", ConfigSchema: "{}"}, nil
	}
	return s.describe()
}

func (s *stub) Configure(_ context.Context, config []byte) error {
	if s.configure == nil {
		return nil
	}
	return s.configure(config)
}

func (s *stub) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if s.status == nil {
		return nil, nil
	}
	return s.status(groups)
}

func (s *stub) ListInstances(ctx context.Context, _ string) ([]pluginsdk.Instance, error) {
	if s.list == nil {
		return nil, nil
	}
	return s.list(ctx)
}

func (s *stub) SetDesired(_ context.Context, r pluginsdk.SetDesired) (int, error) {
	if s.setDesired == nil {
		return r.Target, nil
	}
	return s.setDesired(r)
}

func (s *stub) Remove(_ context.Context, group string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
	if s.remove == nil {
		return nil, nil
	}
	return s.remove(group, ids, token)
}

func (s *stub) Withdraw(_ context.Context, group string, expected int, token string) (pluginsdk.WithdrawResult, error) {
	if s.withdraw == nil {
		return pluginsdk.WithdrawResult{}, pluginsdk.ErrUnsupported
	}
	return s.withdraw(group, expected, token)
}

func (s *stub) Protect(_ context.Context, group string, ids []string, on bool) error {
	if s.protect == nil {
		return pluginsdk.ErrUnsupported
	}
	return s.protect(group, ids, on)
}

func (s *stub) Watch(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	if s.watch == nil {
		return pluginsdk.ErrUnsupported
	}
	return s.watch(ctx, groups, notify)
}

func (s *stub) Close(context.Context) error {
	if s.closed != nil {
		s.closed()
	}
	return nil
}
