package asgstub

import (
	"cmp"
	"slices"
)

// groupPolicy is a scaling policy together with its group.
type groupPolicy struct {
	g *group
	Policy
}

func (p groupPolicy) kind() string { return cmp.Or(p.Type, "SimpleScaling") }

// describePolicies:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribePolicies.html
func describePolicies(x *exchange) error {
	const list = "policies"
	name := arnGroup(x.p.str("AutoScalingGroupName"))
	names, kinds := x.p.list("PolicyNames.member"), x.p.list("PolicyTypes.member")
	pg := x.p.page(list, 50, 100, x.faults.PageSize)
	if name != "" && x.c.mu.groups[name] == nil {
		x.p.fail(invalid("AutoScalingGroup name not found - AutoScalingGroup: %s not found", name))
	}
	if err := x.p.done(); err != nil {
		return err
	}
	var found []groupPolicy
	for _, g := range x.c.mu.order {
		for _, cfg := range g.cfg.ScalingPolicies {
			p := groupPolicy{g, cfg}
			if (name == "" || name == g.name) && (len(names) == 0 || slices.Contains(names, p.Name)) &&
				(len(kinds) == 0 || slices.Contains(kinds, p.kind())) {
				found = append(found, p)
			}
		}
	}
	found, next := cut(found, pg, list, func(p groupPolicy) string { return p.g.name + "\x00" + p.Name })
	x.w.in("ScalingPolicies", func() {
		for _, p := range found {
			x.w.in("member", func() { p.describe(&x.w) })
		}
	})
	x.w.some("NextToken", next)
	return nil
}

func (p groupPolicy) describe(w *xmlWriter) {
	w.text("AutoScalingGroupName", p.g.name)
	w.text("PolicyName", p.Name)
	w.text("PolicyARN", p.g.arn+":policyName/"+p.Name)
	w.text("PolicyType", p.kind())
	w.strings("StepAdjustments", "member", nil)
	w.strings("Alarms", "member", nil)
	w.bool("Enabled", !p.Disabled)
	if p.kind() != "TargetTrackingScaling" {
		w.text("AdjustmentType", cmp.Or(p.AdjustmentType, "ChangeInCapacity"))
		w.int("ScalingAdjustment", p.ScalingAdjustment)
		return
	}
	w.in("TargetTrackingConfiguration", func() {
		w.in("PredefinedMetricSpecification", func() {
			w.text("PredefinedMetricType", cmp.Or(p.PredefinedMetric, "ASGAverageCPUUtilization"))
		})
		w.float("TargetValue", p.TargetValue)
		w.bool("DisableScaleIn", false)
	})
}

// describeRefreshes shows the newest first:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeInstanceRefreshes.html
func describeRefreshes(x *exchange) error {
	const list = "refreshes"
	ids := x.p.list("InstanceRefreshIds.member")
	pg := x.p.page(list, 50, 100, x.faults.PageSize)
	g, err := x.group()
	if err != nil {
		return err
	}
	var found []*refresh
	for _, r := range slices.Backward(g.refreshes) {
		if len(ids) == 0 || slices.Contains(ids, r.id) {
			found = append(found, r)
		}
	}
	found, next := cut(found, pg, list, func(r *refresh) string { return r.id })
	x.w.in("InstanceRefreshes", func() {
		for _, r := range found {
			x.w.in("member", func() {
				x.w.text("InstanceRefreshId", r.id)
				x.w.text("AutoScalingGroupName", g.name)
				x.w.text("Status", r.status)
				x.w.time("StartTime", r.started)
				x.w.time("EndTime", r.ended)
				x.w.int("PercentageComplete", r.percent())
				x.w.int("InstancesToUpdate", r.todo)
				x.w.text("Strategy", "Rolling")
			})
		}
	})
	x.w.some("NextToken", next)
	return nil
}

func (r *refresh) percent() int {
	if r.all == 0 {
		if r.status == refreshSuccessful {
			return 100
		}
		return 0
	}
	return 100 * max(0, r.all-r.todo) / r.all
}

// startInstanceRefresh knows no preferences: it replaces one by one, and waits for
// what is protected, as the service does where none are given.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_StartInstanceRefresh.html
func startInstanceRefresh(x *exchange) error {
	if s := x.p.str("Strategy"); s != "" && s != "Rolling" {
		x.p.fail(invalid("the stand-in knows only the strategy Rolling"))
	}
	g, err := x.group()
	if err != nil {
		return err
	}
	if g.activeRefresh() != nil {
		return &failure{code: "InstanceRefreshInProgress", status: 400, message: "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."}
	}
	x.w.text("InstanceRefreshId", g.startRefresh().id)
	return nil
}

// describeWarmPool:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeWarmPool.html
func describeWarmPool(x *exchange) error {
	const list = "warm"
	pg := x.p.page(list, 50, 50, x.faults.PageSize)
	g, err := x.group()
	if err != nil {
		return err
	}
	if g.cfg.WarmPool != nil {
		x.w.in("WarmPoolConfiguration", func() { g.describeWarmPool(&x.w) })
	}
	found, next := cut(g.warm, pg, list, func(in *instance) string { return in.id })
	x.w.in("Instances", func() {
		for _, in := range found {
			x.w.in("member", func() { in.describe(&x.w) })
		}
	})
	x.w.some("NextToken", next)
	return nil
}

func (g *group) describeWarmPool(w *xmlWriter) {
	p := g.cfg.WarmPool
	if p.MaxGroupPreparedCapacity > 0 {
		w.int("MaxGroupPreparedCapacity", p.MaxGroupPreparedCapacity)
	}
	w.int("MinSize", p.MinSize)
	w.text("PoolState", cmp.Or(p.PoolState, "Stopped"))
	if p.ReuseOnScaleIn {
		w.in("InstanceReusePolicy", func() { w.bool("ReuseOnScaleIn", true) })
	}
}
