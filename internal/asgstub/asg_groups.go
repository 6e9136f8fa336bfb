package asgstub

import (
	"slices"
	"strconv"
	"strings"
)

// createGroup:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html
func createGroup(x *exchange) error {
	name := x.p.need("AutoScalingGroupName")
	cfg := GroupConfig{Name: name, Min: x.p.needInt("MinSize"), Max: x.p.needInt("MaxSize")}
	cfg.Desired = x.p.int("DesiredCapacity", cfg.Min)
	cfg.Zones = x.p.list("AvailabilityZones.member")
	cfg.NewInstancesProtected = x.p.bool("NewInstancesProtectedFromScaleIn", false)
	cfg.CapacityRebalance = x.p.bool("CapacityRebalance", false)
	cfg.DefaultCooldown = Seconds(x.p.int("DefaultCooldown", 0))
	cfg.ServiceLinkedRoleARN = x.p.str("ServiceLinkedRoleARN")
	cfg.Tags = x.tags("Tags.member", name)
	for _, at := range x.p.prefixes("LifecycleHookSpecificationList.member") {
		h := HookConfig{Name: x.p.need(at + ".LifecycleHookName")}
		x.hookFields(at+".", &h)
		cfg.Hooks = append(cfg.Hooks, h)
	}
	hasTemplate := x.p.any("LaunchTemplate")
	lt, subnets, grace := x.template(), x.p.str("VPCZoneIdentifier"), x.p.int("HealthCheckGracePeriod", 0)
	policies := x.terminationPolicies()
	if err := x.p.done(); err != nil {
		return err
	}
	if err := x.c.creatable(cfg, hasTemplate, subnets); err != nil {
		return err
	}
	desired := cfg.Desired
	cfg.Desired = cfg.Min // newGroup sets it; what is asked for is launched below
	g := x.c.newGroup(cfg)
	g.template, g.subnets, g.grace = lt, subnets, Seconds(grace)
	if len(policies) > 0 {
		g.policies = policies
	}
	g.desired, g.stale = desired, desired
	g.why = "At " + seconds(x.c.mu.now) + " a user request created an AutoScalingGroup changing the desired capacity from 0 to " + strconv.Itoa(desired) + "."
	g.converge(ByScaleIn)
	return nil
}

func (c *Cloud) creatable(cfg GroupConfig, hasTemplate bool, subnets string) error {
	switch {
	case c.mu.groups[cfg.Name] != nil:
		return &failure{code: "AlreadyExists", message: "AutoScalingGroup by this name already exists - A group with the name " + cfg.Name + " already exists", status: 400}
	case len(c.mu.groups) >= MaxGroups:
		return &failure{code: "LimitExceeded", message: "You have reached the limit of Auto Scaling groups.", status: 400}
	case !hasTemplate:
		return invalid("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	case len(cfg.Zones) == 0 && subnets == "":
		return invalid("At least one Availability Zone or VPC Subnet is required.")
	}
	return bounds(cfg.Min, cfg.Max, cfg.Desired, cfg.Validate)
}

func bounds(low, high, desired int, rest func() error) error {
	switch {
	case low > high:
		return invalid("Max bound, %d, must be greater than or equal to min bound, %d", high, low)
	case desired < low || desired > high:
		return invalid("Desired capacity:%d must be between the specified min size:%d and max size:%d", desired, low, high)
	}
	if err := rest(); err != nil {
		return invalid("%s", err)
	}
	return nil
}

func (x *exchange) template() template {
	const at = "LaunchTemplate."
	t := template{x.p.str(at + "LaunchTemplateId"), x.p.str(at + "LaunchTemplateName"), x.p.str(at + "Version")}
	if x.p.any("LaunchTemplate") && (t.id == "") == (t.name == "") {
		x.p.fail(invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName"))
	}
	return t
}

func (x *exchange) terminationPolicies() []string {
	known := []string{
		"Default", "OldestInstance", "NewestInstance", "OldestLaunchConfiguration", "OldestLaunchTemplate",
		"ClosestToNextInstanceHour", "AllocationStrategy",
	}
	list := x.p.list("TerminationPolicies.member")
	for _, p := range list {
		if !slices.Contains(known, p) && !strings.HasPrefix(p, "arn:") {
			x.p.fail(invalid("%s is not a valid termination policy", p))
		}
	}
	return list
}

// updateGroup changes what is given. Where a new bound leaves desired outside, desired
// moves to it:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_UpdateAutoScalingGroup.html
func updateGroup(x *exchange) error {
	g := x.c.mu.groups[arnGroup(x.p.values.Get("AutoScalingGroupName"))]
	if g == nil {
		g = &group{} // x.group refuses it
	}
	low, high := x.p.int("MinSize", g.min), x.p.int("MaxSize", g.max)
	desired := g.desired
	if !x.p.has("DesiredCapacity") {
		desired = max(low, min(high, desired))
	}
	desired = x.p.int("DesiredCapacity", desired)
	protect := x.p.bool("NewInstancesProtectedFromScaleIn", g.protectNew)
	rebalances := x.p.bool("CapacityRebalance", g.rebalances)
	cooldown, grace := x.p.int("DefaultCooldown", int(g.cooldown)), x.p.int("HealthCheckGracePeriod", int(g.grace))
	zones, policies, lt := x.p.list("AvailabilityZones.member"), x.terminationPolicies(), x.template()
	subnets := g.subnets
	if x.p.has("VPCZoneIdentifier") {
		subnets = x.p.str("VPCZoneIdentifier")
	}
	if kind := x.p.str("HealthCheckType"); kind != "" && kind != "EC2" {
		x.p.fail(invalid("the stand-in knows only the health check type EC2"))
	}
	if _, err := x.group(); err != nil {
		return err
	}
	if err := bounds(low, high, desired, func() error { return nil }); err != nil {
		return err
	}
	g.min, g.max, g.protectNew, g.rebalances, g.subnets = low, high, protect, rebalances, subnets
	g.cooldown, g.grace = Seconds(cooldown), Seconds(grace)
	if len(zones) > 0 {
		g.zones = zones
	}
	if len(policies) > 0 {
		g.policies = policies
	}
	if lt != (template{}) {
		g.template = lt
	}
	g.setDesired(desired, g.constraintsText(low, high, desired))
	g.converge(ByScaleIn)
	return nil
}

// deleteGroup:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DeleteAutoScalingGroup.html
func deleteGroup(x *exchange) error {
	force := x.p.bool("ForceDelete", false)
	g, err := x.group()
	switch {
	case err != nil:
		return err
	case !force && len(g.instances)+len(g.warm) > 0:
		return &failure{code: "ResourceInUse", status: 400, message: "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group."}
	}
	g.deleted = true
	x.c.removeGroup(g)
	for _, in := range slices.Concat(g.instances, g.warm) {
		g.halt(in, Deleted)
		g.drop(in, Terminated)
	}
	return nil
}

// tags reads tags of groups: each must be of the group name, or of an existing
// one where name is empty.
func (x *exchange) tags(prefix, name string) (out []Tag) {
	for _, at := range x.p.prefixes(prefix) {
		kind, id := x.p.str(at+".ResourceType"), x.p.str(at+".ResourceId")
		switch {
		case kind != "" && kind != "auto-scaling-group":
			x.p.fail(invalid("%s is not a valid resource type", kind))
		case name != "" && id != "" && id != name:
			x.p.fail(invalid("The tag is for the group %s", id))
		}
		out = append(out, Tag{x.p.need(at + ".Key"), x.p.str(at + ".Value"), x.p.bool(at+".PropagateAtLaunch", false)})
	}
	return out
}
