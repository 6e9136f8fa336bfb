package gcemig

import (
	"context"
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Findings implements pluginsdk.Provider. It costs one list for each zone or region
// and one call for each autoscaler.
func (p *Provider) Findings(ctx context.Context, ids []string) ([]pluginsdk.Finding, error) {
	if err := pluginsdk.CheckGroups(ids); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	found, errs := s.readGroups(ctx, ids)
	var findings []pluginsdk.Finding
	for _, id := range ids {
		g := s.groups[id]
		switch {
		case g != nil && errs[g.scope] != nil:
			findings = append(findings, pluginsdk.Finding{
				Group: id, Code: "group_unreadable", Severity: pluginsdk.FindingError,
				Message: "the group can't be read: " + errs[g.scope].Error(),
				Fix:     "give the plugin's service account compute.instanceGroupManagers.list, and see that the project and the place are right",
			})
		case g == nil || found[g] == nil:
			findings = append(findings, pluginsdk.Finding{
				Group: id, Code: "group_not_found", Severity: pluginsdk.FindingError,
				Message: "there is no managed instance group of that name in that place",
				Fix:     "create it, or correct its name, zone or region",
			})
		default:
			findings = append(findings, s.findings(ctx, g, found[g])...)
		}
	}
	return findings[:min(len(findings), pluginsdk.MaxFindings)], nil
}

// findings is what is wrong with a group that is there.
func (s *session) findings(ctx context.Context, g *group, igm *computepb.InstanceGroupManager) []pluginsdk.Finding {
	var list []pluginsdk.Finding
	add := func(code string, severity pluginsdk.Severity, fix, format string, args ...any) {
		list = append(list, pluginsdk.Finding{
			Group: g.id, Code: code, Severity: severity, Message: fmt.Sprintf(format, args...), Fix: fix,
		})
	}
	s.findOwner(g, igm, add)
	s.findAutoscaler(ctx, g, igm, add)
	findUpdates(igm, add)
	findRepairs(igm, add)
	findState(igm, add)
	return list
}

// adder takes one finding of a group.
type adder func(code string, severity pluginsdk.Severity, fix, format string, args ...any)

func (s *session) findOwner(g *group, igm *computepb.InstanceGroupManager, add adder) {
	switch owner := g.ownerOf(igm); {
	case s.owner == "":
	case owner == "":
		add("no_owner_tag", pluginsdk.FindingWarning, fmt.Sprintf("set the label %s=%s in the group's all-instances configuration", ownerLabel, s.owner),
			"nothing keeps another Spillway from scaling this group too: its instances have no label %s", ownerLabel)
	case owner != s.owner:
		add("foreign_owner", pluginsdk.FindingError, "use another group, or set the label to this provider's owner once the other has let go",
			"the group belongs to %s %q, and this provider is %q: nothing is written to it", ownerLabel, owner, s.owner)
	}
}

// findAutoscaler looks at the autoscaler's mode: one that is off is kept for its
// settings only. Any other sets the target size within a minute of our setting it,
// and one that is on deletes instances that have jobs.
func (s *session) findAutoscaler(ctx context.Context, g *group, igm *computepb.InstanceGroupManager, add adder) {
	url := igm.GetStatus().GetAutoscaler()
	if url == "" {
		return
	}
	const fix = "delete the autoscaler, or set its mode to OFF"
	name := last(url)
	switch a, err := g.autoscaler(ctx, name); {
	case err != nil:
		add("autoscaler_attached", pluginsdk.FindingWarning, fix, "autoscaler %q is attached, and its mode can't be read: %v", name, err)
	case a.GetAutoscalingPolicy().GetMode() == "OFF":
	case a.GetAutoscalingPolicy().GetMode() == "ON":
		add("autoscaler_attached", pluginsdk.FindingError, fix, "autoscaler %q is on: it sets the target size too, and ends instances that have jobs", name)
	default:
		add("autoscaler_attached", pluginsdk.FindingError, fix, "autoscaler %q may scale out (%s): it sets the target size too", name, a.GetAutoscalingPolicy().GetMode())
	}
}

// findUpdates is about instances that are replaced though they are well.
func findUpdates(igm *computepb.InstanceGroupManager, add adder) {
	policy := igm.GetUpdatePolicy()
	allowed := policy.GetMostDisruptiveAllowedAction()
	if policy.GetType() == "PROACTIVE" && allowed != "NONE" && allowed != "REFRESH" {
		const fix = "set the update policy's type to OPPORTUNISTIC: new instances get the new template anyway"
		add("update_policy_proactive", pluginsdk.FindingWarning, fix,
			"the update policy is PROACTIVE: a new template replaces instances while they have jobs")
		if v := igm.GetStatus().GetVersionTarget(); v != nil && !v.GetIsReached() {
			add("instance_refresh", pluginsdk.FindingWarning, fix, "instances are being replaced by a new template now")
		}
	}
	// PROACTIVE is the default of regional groups (InstanceGroupManagerUpdatePolicy,
	// instanceRedistributionType). Shapes that follow the resources move nothing.
	shape := igm.GetDistributionPolicy().GetTargetShape()
	if igm.GetRegion() != "" && policy.GetInstanceRedistributionType() != "NONE" && (shape == "" || shape == "EVEN") {
		add("az_rebalance", pluginsdk.FindingWarning, "set the update policy's instance redistribution type to NONE, and the target shape to ANY or BALANCED",
			"the group keeps its zones even: it ends instances that have jobs to make others in another zone")
	}
}

// findRepairs is about instances that are recreated because a health check fails. One
// that Google has stopped is recreated too, which is as it should be.
func findRepairs(igm *computepb.InstanceGroupManager, add adder) {
	if len(igm.GetAutoHealingPolicies()) == 0 {
		return
	}
	rules := igm.GetInstanceLifecyclePolicy()
	action := rules.GetOnFailedHealthCheck()
	if action == "" || action == "DEFAULT_ACTION" {
		action = rules.GetDefaultActionOnFailure()
	}
	if action != "DO_NOTHING" {
		add("autohealing", pluginsdk.FindingWarning, "set onFailedHealthCheck to DO_NOTHING, or remove the health check: Spillway notices instances that are lost",
			"a health check that fails, as under a heavy job, recreates the instance with its jobs")
	}
}

func findState(igm *computepb.InstanceGroupManager, add adder) {
	if igm.GetStatus().GetStateful().GetHasStatefulConfig() || igm.GetStatefulPolicy() != nil {
		add("stateful", pluginsdk.FindingWarning, "use a group without a stateful configuration",
			"the group is stateful: disks and addresses of removed instances stay, cost money and come back with what was on them")
	}
	if igm.GetTargetStoppedSize() > 0 || igm.GetTargetSuspendedSize() > 0 {
		add("standby_pool", pluginsdk.FindingWarning, "set the target sizes of stopped and suspended instances to 0",
			"the group has a standby pool: its instances are taken for busy ones, as their state is of no use")
	}
}
