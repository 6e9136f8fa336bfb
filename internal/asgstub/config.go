package asgstub

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxInstances bounds a group's max [instances].
const MaxInstances = 20_000

// GroupConfig is a group as it is when the stand-in starts.
type GroupConfig struct {
	Name    string `json:"-"` // in a file it is the key
	Min     int    `json:"min"`
	Max     int    `json:"max"`
	Desired int    `json:"desired"` // so many are in service from the start; their runners have registered

	Zones                 []string     `json:"zones"` // empty = the region's "a" and "b"
	InstanceType          string       `json:"instance_type"`
	NewInstancesProtected bool         `json:"protected"`
	SuspendedProcesses    []string     `json:"suspended"`
	DefaultCooldown       Seconds      `json:"default_cooldown"` // 0 = 300 s
	CapacityRebalance     bool         `json:"capacity_rebalance"`
	SpotShare             float64      `json:"spot_share"` // of the instances, 0 to 1; above 0 the group has a mixed instances policy
	Tags                  []Tag        `json:"tags"`
	Hooks                 []HookConfig `json:"hooks"`
	WarmPool              *WarmPool    `json:"warm_pool"`
	ScalingPolicies       []Policy     `json:"scaling_policies"`
	// InstanceRefreshInProgress: a refresh runs from the start and does not come to
	// its end, because it waits for something outside.
	InstanceRefreshInProgress bool   `json:"instance_refresh"`
	ServiceLinkedRoleARN      string `json:"service_linked_role"` // empty = the account's AWSServiceRoleForAutoScaling
	PlacementStatus           string `json:"status"`              // of the group, such as "Delete in progress"; empty = none
	// Faults is how the group misbehaves; nil = as Options.Faults says.
	Faults *Faults `json:"faults"`
}

// Seconds is a whole number of seconds, as the service counts timeouts.
type Seconds int

// Duration is s as a duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// Tag is one tag of a group.
type Tag struct {
	Key               string `json:"key" config:"required"`
	Value             string `json:"value"`
	PropagateAtLaunch bool   `json:"propagate_at_launch"` // the instances have it too
}

// The transitions that a hook can hold.
const (
	Launching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	Terminating = "autoscaling:EC2_INSTANCE_TERMINATING"
)

// What a hook ends with.
const (
	Continue = "CONTINUE"
	Abandon  = "ABANDON"
)

// HookConfig is a lifecycle hook.
type HookConfig struct {
	Name             string  `json:"name" config:"required"`
	Transition       string  `json:"transition" config:"required"` // [Launching] or [Terminating]
	HeartbeatTimeout Seconds `json:"heartbeat_timeout"`            // 0 = 3600
	// GlobalTimeout shortens the time that an instance can wait in all; 0 = as the
	// service computes it, 100 heartbeats but at most 48 hours.
	GlobalTimeout         Seconds `json:"global_timeout"`
	DefaultResult         string  `json:"default_result"`          // [Continue] or [Abandon]; empty = Abandon
	NotificationTargetARN string  `json:"notification_target_arn"` // a queue of the stand-in
	NotificationMetadata  string  `json:"notification_metadata"`
	RoleARN               string  `json:"role_arn"`
}

// WarmPool is a group's pool of prepared instances.
type WarmPool struct {
	MinSize                  int    `json:"min_size"`
	MaxGroupPreparedCapacity int    `json:"max_group_prepared_capacity"` // 0 = not set
	PoolState                string `json:"pool_state"`                  // Stopped (default), Running or Hibernated
	ReuseOnScaleIn           bool   `json:"reuse_on_scale_in"`
}

// Policy is a scaling policy that is attached to a group. It does nothing.
type Policy struct {
	Name              string  `json:"name" config:"required"`
	Type              string  `json:"type"`               // SimpleScaling (default), StepScaling or TargetTrackingScaling
	AdjustmentType    string  `json:"adjustment_type"`    // of the first two
	ScalingAdjustment int     `json:"scaling_adjustment"` // of the first two
	TargetValue       float64 `json:"target_value"`       // of the last
	PredefinedMetric  string  `json:"predefined_metric"`  // of the last
	Disabled          bool    `json:"disabled"`
}

// processes are what can be suspended:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SuspendProcesses.html
var processes = []string{
	procLaunch, procTerminate, "AddToLoadBalancer", "AlarmNotification", procAZRebalance,
	procHealthCheck, procRefresh, procReplace, "ScheduledActions",
}

const (
	procLaunch      = "Launch"
	procTerminate   = "Terminate"
	procAZRebalance = "AZRebalance"
	procHealthCheck = "HealthCheck"
	procRefresh     = "InstanceRefresh"
	procReplace     = "ReplaceUnhealthy"
)

// Validate reports everything that is wrong with g, joined; nil for nothing.
func (g GroupConfig) Validate() error { return errors.Join(g.mistakes()...) }

func (g GroupConfig) mistakes() (errs []error) {
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(g.Name == "" || len(g.Name) > 255, "name: use 1 to 255 characters")
	check(g.Min < 0, "min %d is negative", g.Min)
	check(g.Max < g.Min || g.Max > MaxInstances, "max %d: use min (%d) to %d", g.Max, g.Min, MaxInstances)
	check(g.Desired < g.Min || g.Desired > g.Max, "desired %d is outside of min %d to max %d", g.Desired, g.Min, g.Max)
	check(g.SpotShare < 0 || g.SpotShare > 1, "spot_share %g: use 0 to 1", g.SpotShare)
	check(g.DefaultCooldown < 0, "default_cooldown %d is negative", g.DefaultCooldown)
	for _, p := range g.SuspendedProcesses {
		check(!slices.Contains(processes, p), "suspended: %q, use some of %v", p, processes)
	}
	for i, h := range g.Hooks {
		if err := h.validate(); err != nil {
			errs = append(errs, fmt.Errorf("hooks[%d]: %w", i, err))
		}
	}
	for i, p := range g.ScalingPolicies {
		check(!slices.Contains([]string{"", "SimpleScaling", "StepScaling", "TargetTrackingScaling"}, p.Type),
			"scaling_policies[%d]: type %q: use SimpleScaling, StepScaling or TargetTrackingScaling", i, p.Type)
	}
	if w := g.WarmPool; w != nil {
		check(w.MinSize < 0 || w.MaxGroupPreparedCapacity < 0, "warm_pool: sizes must not be negative")
		check(!slices.Contains([]string{"", "Stopped", "Running", "Hibernated"}, w.PoolState),
			"warm_pool: pool_state %q: use Stopped, Running or Hibernated", w.PoolState)
	}
	if g.Faults != nil {
		for _, err := range g.Faults.mistakes() {
			errs = append(errs, fmt.Errorf("faults: %w", err))
		}
	}
	return errs
}

// The bounds of a hook's heartbeat:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
const (
	minHeartbeat     Seconds = 30
	maxHeartbeat     Seconds = 7200
	defaultHeartbeat Seconds = 3600
	// maxHookWait is how long an instance can wait whatever its heartbeat is.
	maxHookWait Seconds = 172800
	// maxHookHeartbeats is how many heartbeats' time an instance can wait.
	maxHookHeartbeats = 100
)

func (h HookConfig) validate() error {
	switch {
	case h.Name == "" || len(h.Name) > 255:
		return errors.New("name: use 1 to 255 characters")
	case h.Transition != Launching && h.Transition != Terminating:
		return fmt.Errorf("transition %q: use %s or %s", h.Transition, Launching, Terminating)
	case h.HeartbeatTimeout != 0 && (h.HeartbeatTimeout < minHeartbeat || h.HeartbeatTimeout > maxHeartbeat):
		return fmt.Errorf("heartbeat_timeout %d: use %d to %d", h.HeartbeatTimeout, minHeartbeat, maxHeartbeat)
	case h.GlobalTimeout < 0 || h.GlobalTimeout > maxHookWait:
		return fmt.Errorf("global_timeout %d: use 0 to %d", h.GlobalTimeout, maxHookWait)
	case h.DefaultResult != "" && h.DefaultResult != Continue && h.DefaultResult != Abandon:
		return fmt.Errorf("default_result %q: use %s or %s", h.DefaultResult, Continue, Abandon)
	}
	return nil
}
