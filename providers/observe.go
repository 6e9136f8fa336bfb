package providers

import (
	"context"
	"fmt"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Op names a call. The set is closed: it is a metric label.
type Op string

// The ops.
const (
	OpStatus        Op = "status"
	OpListInstances Op = "list_instances"
	OpSetDesired    Op = "set_desired"
	OpRemove        Op = "remove"
	OpWithdraw      Op = "withdraw"
	OpCompleteHook  Op = "complete_hook"
	OpUnhealthy     Op = "report_unhealthy"
	OpProtect       Op = "protect"
	OpFindings      Op = "findings"
	OpCount         Op = "count"
)

// CallInfo says which call.
type CallInfo struct {
	Provider string // of the configuration
	Pool     string // empty: no pool's loop asks
	Group    string // empty with OpFindings and OpCount
	Op       Op
}

func (i CallInfo) String() string {
	if i.Pool == "" {
		return fmt.Sprintf("%s of provider %s", i.Op, i.Provider)
	}
	return fmt.Sprintf("%s of %s (pool %s, provider %s)", i.Op, i.Group, i.Pool, i.Provider)
}

// CallDone says how it ended.
type CallDone struct {
	CallInfo
	Kind     pluginsdk.Kind // empty: it succeeded
	Err      error
	Duration time.Duration
}

func (d CallDone) String() string {
	if d.Err != nil {
		return fmt.Sprintf("%s failed after %v: %v", d.CallInfo, d.Duration.Round(time.Millisecond), d.Err)
	}
	return fmt.Sprintf("%s took %v", d.CallInfo, d.Duration.Round(time.Millisecond))
}

// Observer is told what happens; metrics and logs are made of it. Functions that
// are nil are not called. They must be quick and may be called concurrently.
type Observer struct {
	CallStarted  func(CallInfo)
	CallDone     func(CallDone)
	CallRepeated func(CallInfo, error) // a read got error and is about to be made again: no pool, no group
	StateChanged func(State)
}

func (o Observer) withDefaults() Observer {
	if o.CallStarted == nil {
		o.CallStarted = func(CallInfo) {}
	}
	if o.CallDone == nil {
		o.CallDone = func(CallDone) {}
	}
	if o.CallRepeated == nil {
		o.CallRepeated = func(CallInfo, error) {}
	}
	if o.StateChanged == nil {
		o.StateChanged = func(State) {}
	}
	return o
}

// observation tells the observer of each call.
type observation struct {
	next     Calls
	who      CallInfo
	observer Observer
}

// observed makes one call and tells of it.
func observed[T any](o Observer, info CallInfo, f func() (T, error)) (T, error) {
	o.CallStarted(info)
	start := time.Now()
	answer, err := f()
	o.CallDone(CallDone{CallInfo: info, Kind: pluginsdk.KindOf(err), Err: err, Duration: time.Since(start)})
	return answer, err
}

// watched makes one call of op for the pool.
func watched[T any](o *observation, op Op, f func() (T, error)) (T, error) {
	info := o.who
	info.Op = op
	return observed(o.observer, info, f)
}

func (o *observation) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	return watched(o, OpStatus, func() (pluginsdk.GroupStatus, error) { return o.next.Status(ctx) })
}

func (o *observation) ListInstances(ctx context.Context) ([]pluginsdk.Instance, error) {
	return watched(o, OpListInstances, func() ([]pluginsdk.Instance, error) { return o.next.ListInstances(ctx) })
}

func (o *observation) SetDesired(ctx context.Context, target, expected int) (int, error) {
	return watched(o, OpSetDesired, func() (int, error) { return o.next.SetDesired(ctx, target, expected) })
}

func (o *observation) Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	return watched(o, OpRemove, func() ([]pluginsdk.RemoveResult, error) { return o.next.Remove(ctx, ids) })
}

func (o *observation) Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return watched(o, OpWithdraw, func() (pluginsdk.WithdrawResult, error) { return o.next.Withdraw(ctx, expected) })
}

func (o *observation) CompleteHook(ctx context.Context, ids []string) error {
	_, err := watched(o, OpCompleteHook, func() (struct{}, error) { return struct{}{}, o.next.CompleteHook(ctx, ids) })
	return err
}

func (o *observation) ReportUnhealthy(ctx context.Context, ids []string) error {
	_, err := watched(o, OpUnhealthy, func() (struct{}, error) { return struct{}{}, o.next.ReportUnhealthy(ctx, ids) })
	return err
}
