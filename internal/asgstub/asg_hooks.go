package asgstub

import (
	"slices"
)

// describeHooks:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeLifecycleHooks.html
func describeHooks(x *exchange) error {
	names := x.p.list("LifecycleHookNames.member")
	g, err := x.group()
	if err != nil {
		return err
	}
	x.w.in("LifecycleHooks", func() {
		for _, h := range g.hooks {
			if len(names) == 0 || slices.Contains(names, h.Name) {
				x.w.in("member", func() { g.describeHook(&x.w, h) })
			}
		}
	})
	return nil
}

func (g *group) describeHook(w *xmlWriter, h *hook) {
	w.text("LifecycleHookName", h.Name)
	w.text("AutoScalingGroupName", g.name)
	w.text("LifecycleTransition", h.Transition)
	w.some("NotificationTargetARN", h.NotificationTargetARN)
	w.some("RoleARN", h.RoleARN)
	w.some("NotificationMetadata", h.NotificationMetadata)
	w.int("HeartbeatTimeout", int(h.HeartbeatTimeout))
	w.int("GlobalTimeout", int(h.total()))
	w.text("DefaultResult", h.DefaultResult)
}

// putLifecycleHook:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
func putLifecycleHook(x *exchange) error {
	name := x.p.need("LifecycleHookName")
	var h HookConfig
	if g := x.c.mu.groups[arnGroup(x.p.values.Get("AutoScalingGroupName"))]; g != nil && g.hook(name) != nil {
		h = g.hook(name).HookConfig // what is not given stays
	}
	x.hookFields("", &h)
	h.Name = name
	g, err := x.group()
	if err != nil {
		return err
	}
	if err := h.validate(); err != nil {
		return invalid("%s", err)
	}
	if g.hook(name) == nil && len(g.hooks) >= maxHooks {
		return &failure{code: "LimitExceeded", message: "The group has too many lifecycle hooks.", status: 400}
	}
	g.putHook(h)
	return nil
}

// hookFields reads the fields of a hook that are given.
func (x *exchange) hookFields(prefix string, h *HookConfig) {
	set := func(name string, to *string) {
		if x.p.has(prefix + name) {
			*to = x.p.str(prefix + name)
		}
	}
	set("LifecycleTransition", &h.Transition)
	set("RoleARN", &h.RoleARN)
	set("NotificationTargetARN", &h.NotificationTargetARN)
	set("NotificationMetadata", &h.NotificationMetadata)
	set("DefaultResult", &h.DefaultResult)
	h.HeartbeatTimeout = Seconds(x.p.int(prefix+"HeartbeatTimeout", int(h.HeartbeatTimeout)))
}

// deleteLifecycleHook ends the waits for the hook with their default results:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DeleteLifecycleHook.html
func deleteLifecycleHook(x *exchange) error {
	name := x.p.need("LifecycleHookName")
	g, err := x.group()
	if err != nil {
		return err
	}
	if g.hook(name) == nil {
		return invalid("No Lifecycle Hook found with name: %s", name)
	}
	g.hooks = slices.DeleteFunc(g.hooks, func(h *hook) bool { return h.Name == name })
	for _, in := range slices.Clone(g.instances) {
		if w := in.waitFor(name, ""); w != nil {
			result := Continue
			if w.hook.Transition == Launching {
				result = Abandon
			}
			g.complete(in, w, result)
		}
	}
	return nil
}

// waiting is the wait that a call means, by the token or by the instance.
func (x *exchange) waiting() (in *instance, w *wait, err error) {
	name, token, id := x.p.need("LifecycleHookName"), x.p.str("LifecycleActionToken"), x.p.str("InstanceId")
	g, err := x.group()
	if err != nil {
		return nil, nil, err
	}
	if g.hook(name) == nil {
		return nil, nil, invalid("No Lifecycle Hook found with name: %s", name)
	}
	if token == "" && id == "" {
		return nil, nil, invalid("Either Lifecycle Action Token or Instance ID must be specified")
	}
	for _, in := range g.instances {
		if id != "" && in.id != id {
			continue
		}
		if w := in.waitFor(name, token); w != nil {
			return in, w, nil
		}
	}
	if token != "" {
		return nil, nil, invalid("No active Lifecycle Action found with token %s", token)
	}
	return nil, nil, invalid("No active Lifecycle Action found with instance ID %s", id)
}

// recordHeartbeat:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_RecordLifecycleActionHeartbeat.html
func recordHeartbeat(x *exchange) error {
	in, w, err := x.waiting()
	if err != nil {
		return err
	}
	in.g.heartbeat(w)
	return nil
}

// completeAction:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CompleteLifecycleAction.html
func completeAction(x *exchange) error {
	result := x.p.need("LifecycleActionResult")
	if x.p.err == nil && result != Continue && result != Abandon {
		x.p.fail(invalid("Lifecycle Action Result must be one of %s, %s", Continue, Abandon))
	}
	in, w, err := x.waiting()
	if err != nil {
		return err
	}
	in.g.complete(in, w, result)
	return nil
}
