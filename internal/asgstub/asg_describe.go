package asgstub

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// describeGroups:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeAutoScalingGroups.html
func describeGroups(x *exchange) error {
	const list = "groups"
	names := x.p.list("AutoScalingGroupNames.member")
	pg := x.p.page(list, 50, 100, x.faults.PageSize)
	filters := x.p.filters("Filters.member", "Values.member")
	instances := x.p.bool("IncludeInstances", true)
	if limit := x.p.int("MaxRecords", 50); len(names) > limit {
		x.p.fail(invalid("The number of Auto Scaling group names that may be passed in is limited to %d", limit))
	}
	if err := x.p.done(); err != nil {
		return err
	}
	groups := x.c.mu.order
	if len(names) > 0 {
		groups = x.c.named(names)
	}
	if len(filters) > 0 {
		groups = slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return !g.matches(filters) })
	}
	groups, next := cut(groups, pg, list, func(g *group) string { return g.name })
	x.w.b = make([]byte, 0, roughSize(groups))
	x.w.in("AutoScalingGroups", func() {
		for _, g := range groups {
			x.w.in("member", func() { g.describe(&x.w, instances) })
		}
	})
	x.w.some("NextToken", next)
	return nil
}

// roughSize is about how long the answer about these groups will be [bytes].
func roughSize(groups []*group) int {
	const perGroup, perInstance = 2000, 500
	n := perGroup
	for _, g := range groups {
		n += perGroup + perInstance*len(g.instances)
	}
	return n
}

// named are the groups of these names or ARNs that there are, by name.
func (c *Cloud) named(names []string) (found []*group) {
	for _, name := range names {
		if g := c.mu.groups[arnGroup(name)]; g != nil && (name == g.name || name == g.arn) {
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(a, b *group) int { return cmp.Compare(a.name, b.name) })
	return slices.Compact(found)
}

// matches reports whether the group's tags pass the filters tag-key, tag-value and
// tag:<key>:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_Filter.html
func (g *group) matches(filters []filter) bool {
	for _, f := range filters {
		if !slices.ContainsFunc(g.tags, func(t Tag) bool {
			switch f.name {
			case "tag-key":
				return slices.Contains(f.values, t.Key)
			case "tag-value":
				return slices.Contains(f.values, t.Value)
			}
			return f.name == "tag:"+t.Key && slices.Contains(f.values, t.Value)
		}) {
			return false
		}
	}
	return true
}

func (g *group) describe(w *xmlWriter, instances bool) {
	w.text("AutoScalingGroupName", g.name)
	w.text("AutoScalingGroupARN", g.arn)
	if g.cfg.SpotShare > 0 {
		g.describeMixed(w)
	} else {
		w.in("LaunchTemplate", func() { g.template.describe(w) })
	}
	w.int("MinSize", g.min)
	w.int("MaxSize", g.max)
	w.int("DesiredCapacity", g.shownDesired())
	w.int("DefaultCooldown", int(g.cooldown))
	w.strings("AvailabilityZones", "member", g.zones)
	w.strings("LoadBalancerNames", "member", nil)
	w.strings("TargetGroupARNs", "member", nil)
	w.text("HealthCheckType", "EC2")
	w.int("HealthCheckGracePeriod", int(g.grace))
	if instances {
		w.in("Instances", func() {
			for _, in := range g.instances {
				if in.visible() {
					w.in("member", func() { in.describe(w) })
				}
			}
		})
	}
	w.time("CreatedTime", g.created)
	w.in("SuspendedProcesses", func() {
		for _, p := range g.suspended {
			w.in("member", func() {
				w.text("ProcessName", p)
				w.text("SuspensionReason", "User suspended at "+seconds(g.created))
			})
		}
	})
	w.text("VPCZoneIdentifier", g.subnets)
	w.strings("EnabledMetrics", "member", nil)
	w.some("Status", g.cfg.PlacementStatus)
	w.in("Tags", func() {
		for _, t := range g.tags {
			w.in("member", func() { g.describeTag(w, t) })
		}
	})
	w.strings("TerminationPolicies", "member", g.policies)
	w.bool("NewInstancesProtectedFromScaleIn", g.protectNew)
	w.text("ServiceLinkedRoleARN", cmp.Or(g.cfg.ServiceLinkedRoleARN, "arn:aws:iam::"+g.c.opts.AccountID+
		":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"))
	w.bool("CapacityRebalance", g.rebalances)
	if g.cfg.WarmPool != nil {
		w.in("WarmPoolConfiguration", func() { g.describeWarmPool(w) })
		w.int("WarmPoolSize", len(g.warm))
	}
	w.strings("TrafficSources", "member", nil)
}

func (g *group) describeMixed(w *xmlWriter) {
	w.in("MixedInstancesPolicy", func() {
		w.in("LaunchTemplate", func() {
			w.in("LaunchTemplateSpecification", func() { g.template.describe(w) })
			w.in("Overrides", func() {
				w.in("member", func() { w.text("InstanceType", g.instanceType()) })
			})
		})
		w.in("InstancesDistribution", func() {
			w.text("OnDemandAllocationStrategy", "prioritized")
			w.int("OnDemandBaseCapacity", 0)
			w.int("OnDemandPercentageAboveBaseCapacity", int(100*(1-g.cfg.SpotShare)+0.5))
			w.text("SpotAllocationStrategy", "price-capacity-optimized")
		})
	})
}

// The launch template of groups that were not created through the API.
const (
	templateID   = "lt-0123456789abcdef0"
	templateName = "runner"
)

// template is a reference to a launch template.
type template struct{ id, name, version string }

func (t template) describe(w *xmlWriter) {
	w.some("LaunchTemplateId", t.id)
	w.some("LaunchTemplateName", t.name)
	w.some("Version", t.version)
}

func (g *group) describeTag(w *xmlWriter, t Tag) {
	w.text("ResourceId", g.name)
	w.text("ResourceType", "auto-scaling-group")
	w.text("Key", t.Key)
	w.text("Value", t.Value)
	w.bool("PropagateAtLaunch", t.PropagateAtLaunch)
}

func (in *instance) describe(w *xmlWriter) {
	w.text("InstanceId", in.id)
	w.text("InstanceType", in.kind)
	w.text("AvailabilityZone", in.zone)
	w.text("LifecycleState", in.state)
	w.text("HealthStatus", in.health(true))
	w.in("LaunchTemplate", func() { in.g.template.describe(w) })
	w.bool("ProtectedFromScaleIn", in.protected)
}

// health is the last health status; DescribeAutoScalingInstances shouts it:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_AutoScalingInstanceDetails.html
func (in *instance) health(quiet bool) string {
	s := "Healthy"
	if in.unhealthy {
		s = "Unhealthy"
	}
	if !quiet {
		s = strings.ToUpper(s)
	}
	return s
}

// describeASGInstances:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeAutoScalingInstances.html
func describeASGInstances(x *exchange) error {
	const list, maxIDs = "instances", 50
	ids := x.p.list("InstanceIds.member")
	pg := x.p.page(list, maxIDs, maxIDs, x.faults.PageSize)
	if len(ids) > maxIDs {
		x.p.fail(invalid("The number of instance ids that may be passed in is limited to %d", maxIDs))
	}
	if err := x.p.done(); err != nil {
		return err
	}
	var found []*instance
	for _, g := range x.c.mu.order {
		for _, in := range slices.Concat(g.instances, g.warm) {
			if in.visible() && (len(ids) == 0 || slices.Contains(ids, in.id)) {
				found = append(found, in)
			}
		}
	}
	slices.SortFunc(found, func(a, b *instance) int { return cmp.Compare(a.id, b.id) })
	found, next := cut(found, pg, list, func(in *instance) string { return in.id })
	x.w.in("AutoScalingInstances", func() {
		for _, in := range found {
			x.w.in("member", func() {
				x.w.text("InstanceId", in.id)
				x.w.text("InstanceType", in.kind)
				x.w.text("AutoScalingGroupName", in.g.name)
				x.w.text("AvailabilityZone", in.zone)
				x.w.text("LifecycleState", in.state)
				x.w.text("HealthStatus", in.health(false))
				x.w.in("LaunchTemplate", func() { in.g.template.describe(&x.w) })
				x.w.bool("ProtectedFromScaleIn", in.protected)
			})
		}
	})
	x.w.some("NextToken", next)
	return nil
}

// describeActivities shows the newest first:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeScalingActivities.html
func describeActivities(x *exchange) error {
	const list, maxIDs = "activities", 50
	ids := x.p.list("ActivityIds.member")
	name := arnGroup(x.p.str("AutoScalingGroupName"))
	x.p.bool("IncludeDeletedGroups", false) // a deleted group is forgotten
	pg := x.p.page(list, 100, 100, x.faults.PageSize)
	keep, bad := activityFilter(x.p.filters("Filters.member", "Values.member"))
	if bad != nil {
		x.p.fail(bad)
	}
	if len(ids) > maxIDs {
		x.p.fail(invalid("The number of activity ids that may be passed in is limited to %d", maxIDs))
	}
	if err := x.p.done(); err != nil {
		return err
	}
	var found []*activity
	for _, g := range x.c.mu.order {
		if name != "" && name != g.name {
			continue
		}
		for _, a := range g.activities {
			if x.c.mu.now.Sub(a.started) < activityAge && keep(a) && (len(ids) == 0 || slices.Contains(ids, a.id)) {
				found = append(found, a)
			}
		}
	}
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b *activity) int { return b.started.Compare(a.started) })
	found, next := cut(found, pg, list, func(a *activity) string { return a.id })
	x.w.in("Activities", func() {
		for _, a := range found {
			x.w.in("member", func() { a.describe(&x.w) })
		}
	})
	x.w.some("NextToken", next)
	return nil
}

func activityFilter(filters []filter) (keep func(*activity) bool, bad *failure) {
	low, high, status := time.Time{}, time.Time{}, []string(nil)
	for _, f := range filters {
		var err error
		switch {
		case f.name == "Status":
			status = f.values
		case f.name == "StartTimeLowerBound" && len(f.values) == 1:
			low, err = timeText(f.values[0])
		case f.name == "StartTimeUpperBound" && len(f.values) == 1:
			high, err = timeText(f.values[0])
		default:
			bad = invalid("the stand-in does not know the filter %s with %d values", f.name, len(f.values))
		}
		if err != nil {
			bad = invalid("the filter %s is not a time", f.name)
		}
	}
	return func(a *activity) bool {
		return (len(status) == 0 || slices.Contains(status, a.status)) && !a.started.Before(low) &&
			(high.IsZero() || !a.started.After(high))
	}, bad
}

func (a *activity) describe(w *xmlWriter) {
	w.text("ActivityId", a.id)
	w.text("AutoScalingGroupName", a.g.name)
	w.text("Description", a.description)
	w.text("Cause", a.cause)
	w.time("StartTime", a.started)
	w.time("EndTime", a.ended)
	w.text("StatusCode", a.status)
	w.some("StatusMessage", a.message)
	w.int("Progress", a.progress)
	w.text("Details", a.details)
	w.text("AutoScalingGroupState", InService)
	w.text("AutoScalingGroupARN", a.g.arn)
}
