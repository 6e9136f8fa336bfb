package ec2asg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// checksPerLook bounds the calls about single groups of one Findings, for hooks and
	// for refreshes each. The groups that were left out are first at the next.
	checksPerLook = 100
	// refreshesAge is how old the answer about instance refreshes may be.
	refreshesAge = time.Minute
	// policiesPerPage is the most that AWS gives at once.
	policiesPerPage = 100
	// maxPolicyPages bounds the pages of one call's answer; a finding says so when
	// there are more.
	maxPolicyPages = 100
	// fewGroups is up to how many groups the policies of each are asked for by itself;
	// for more it is cheaper to read all of the account's.
	fewGroups = 10
)

// Findings implements pluginsdk.Provider.
func (p *Provider) Findings(ctx context.Context, names []string) ([]pluginsdk.Finding, error) {
	if err := pluginsdk.CheckGroups(names); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	known := s.known(names)
	answers := s.reader.read(ctx, known)
	if err := nothingTold(answers); err != nil {
		return nil, err
	}
	l := &lookout{session: s, policies: map[string][]string{}}
	var found []string
	for _, name := range known {
		if answers[name].group != nil {
			found = append(found, name)
		}
	}
	l.askPolicies(ctx, found)
	l.askRefreshes(ctx, found)
	l.askHooks(ctx, found)
	for _, name := range names {
		l.group(name, answers[name])
	}
	l.denials(names)
	return l.findings[:min(len(l.findings), pluginsdk.MaxFindings)], nil
}

// lookout collects findings. What could not be asked for is not found; a right that
// is missing is a finding itself.
type lookout struct {
	*session
	policies map[string][]string // group → names
	missing  []string            // rights that we lack
	findings []pluginsdk.Finding
}

func (l *lookout) add(group, code string, severity pluginsdk.Severity, fix, format string, args ...any) {
	l.findings = append(l.findings, pluginsdk.Finding{Group: group, Code: code, Severity: severity, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// lacks notes a right that is missing, once.
func (l *lookout) lacks(err error, action string) {
	if denied(err) {
		l.missing = append(l.missing, action)
	}
}

// askPolicies reads the scaling policies that are attached to groups.
func (l *lookout) askPolicies(ctx context.Context, names []string) {
	asked := names
	if len(names) > fewGroups {
		asked = []string{""} // all of the account's
	}
	for _, name := range asked {
		whole, err := l.policiesOf(ctx, name)
		if err != nil {
			l.lacks(err, "autoscaling:DescribePolicies")
			return
		}
		if !whole {
			about := name
			if about == "" {
				about = names[0]
			}
			l.add(about, "scaling_policy", pluginsdk.FindingWarning, "delete policies that nobody needs",
				"there are more than %d pages of scaling policies: those beyond were not looked at", maxPolicyPages)
		}
	}
}

// policiesOf reads the policies of one group, or of all for "", and says whether that
// is all of them.
func (l *lookout) policiesOf(ctx context.Context, name string) (whole bool, err error) {
	in := &autoscaling.DescribePoliciesInput{MaxRecords: aws.Int32(policiesPerPage)}
	if name != "" {
		in.AutoScalingGroupName = aws.String(name)
	}
	for range maxPolicyPages {
		out, err := send(ctx, l.session, l.scaling.DescribePolicies, in)
		if err != nil {
			return false, err
		}
		for i := range out.ScalingPolicies {
			if policy := &out.ScalingPolicies[i]; policy.Enabled == nil || *policy.Enabled {
				group := aws.ToString(policy.AutoScalingGroupName)
				l.policies[group] = append(l.policies[group], aws.ToString(policy.PolicyName))
			}
		}
		if in.NextToken = out.NextToken; aws.ToString(out.NextToken) == "" {
			return true, nil
		}
	}
	return false, nil
}

// askRefreshes reads whether instance refreshes run.
func (l *lookout) askRefreshes(ctx context.Context, names []string) {
	for _, name := range l.refreshes.due(names, refreshesAge, checksPerLook) {
		out, err := send(ctx, l.session, l.scaling.DescribeInstanceRefreshes, &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String(name)})
		if err != nil {
			l.refreshes.tried(name)
			if l.lacks(err, "autoscaling:DescribeInstanceRefreshes"); !errors.Is(err, pluginsdk.ErrInvalid) {
				return
			}
			continue
		}
		l.refreshes.learnt(name, refreshing(out.InstanceRefreshes))
	}
}

// refreshing reports whether one of the refreshes still replaces instances.
func refreshing(all []types.InstanceRefresh) bool {
	for i := range all {
		switch all[i].Status {
		case types.InstanceRefreshStatusPending, types.InstanceRefreshStatusInProgress, types.InstanceRefreshStatusCancelling,
			types.InstanceRefreshStatusRollbackInProgress, types.InstanceRefreshStatusBaking:
			return true
		default:
		}
	}
	return false
}

// askHooks reads the hooks of groups, if drains depend on them.
func (l *lookout) askHooks(ctx context.Context, names []string) {
	if l.config.Hooks.DrainTimeout == 0 {
		return
	}
	for _, name := range l.hooks.known.due(names, hooksAge, checksPerLook) {
		if _, err := l.hooks.ask(ctx, name); err != nil {
			if l.lacks(err, "autoscaling:DescribeLifecycleHooks"); !errors.Is(err, pluginsdk.ErrInvalid) {
				return
			}
		}
	}
}

// denials tells of rights that are missing: of those that were asked for now, and of
// those that a look met.
func (l *lookout) denials(names []string) {
	if len(names) == 0 {
		return
	}
	l.lacks(l.machines.denied(), "ec2:DescribeInstances")
	l.lacks(l.activities.deniedErr(), "autoscaling:DescribeScalingActivities")
	for _, action := range l.missing {
		what := map[string]string{
			"ec2:DescribeInstances":                 "launch times and spot are not known, and the tag " + keepTag + " protects nothing",
			"autoscaling:DescribeScalingActivities": "launches that fail are noticed only when instances stay away",
			"autoscaling:DescribeLifecycleHooks":    "instances that a hook holds are not kept alive and not completed",
		}[action]
		if what == "" {
			what = "what it would show is not looked at"
		}
		l.add(names[0], "missing_permission", pluginsdk.FindingWarning, "allow "+action, "%s is denied, for all groups: %s", action, what)
	}
}

// group looks at what one group says of itself.
func (l *lookout) group(name string, a answer) {
	switch {
	case a.err != nil:
		l.add(name, "group_unreadable", pluginsdk.FindingError, "see the message", "the group can't be read: %s", a.err)
		return
	case a.group == nil:
		l.add(name, "group_not_found", pluginsdk.FindingError, "create it, or take it out of the setting groups", "there is no such Auto Scaling group in %s, or it is not in the setting groups", l.config.Region)
		return
	}
	if err := checkUnit(a.group); err != nil {
		l.add(name, "weighted_capacity", pluginsdk.FindingError, "let the group count instances, each as one", "%s", err)
	}
	l.bounds(name, a.group)
	l.owner(name, a.group)
	l.processes(name, a.group)
	l.killers(name, a.group)
	l.lifecycleHooks(name)
}

func (l *lookout) bounds(name string, g *types.AutoScalingGroup) {
	low, high := minSize(g), maxSize(g)
	switch {
	case high == 0:
		l.add(name, "max_zero", pluginsdk.FindingError, "raise the group's max size", "the group's max size is 0: nothing is ever launched")
	case low == high:
		l.add(name, "bounds_conflict", pluginsdk.FindingWarning, "lower the group's min size, or raise its max size", "the group's min and max size are both %d: it can't be scaled", low)
	}
}

func (l *lookout) owner(name string, g *types.AutoScalingGroup) {
	switch who := l.foreignOwner(g); {
	case who != "":
		l.add(name, "foreign_owner", pluginsdk.FindingError, "use a group of your own, or change the tag or the setting owner",
			"the group's tag %s is %.100q, the setting owner is %.100q: nothing is written to it", ownerTag, who, l.config.Owner)
	case l.config.Owner != "" && owner(g) == "":
		l.add(name, "no_owner_tag", pluginsdk.FindingWarning, fmt.Sprintf("tag the group with %s = %s, where it is created", ownerTag, l.config.Owner),
			"the group has no tag %s: another control plane could take it for its own", ownerTag)
	}
}

// stopped are processes that Spillway needs, and what comes of it when they are
// suspended.
var stopped = []struct {
	process, so string
	severity    pluginsdk.Severity
}{
	{"Launch", "nothing is launched", pluginsdk.FindingError},
	{"Terminate", "nothing can be removed", pluginsdk.FindingError},
	{"HealthCheck", "instances that broke are never noticed", pluginsdk.FindingWarning},
	{"ReplaceUnhealthy", "instances that broke stay, and are paid for", pluginsdk.FindingWarning},
}

func (l *lookout) processes(name string, g *types.AutoScalingGroup) {
	for _, p := range stopped {
		if suspended(g, p.process) {
			l.add(name, "suspended_process", p.severity, "resume the process "+p.process, "the group's process %s is suspended: %s", p.process, p.so)
		}
	}
}

// killers are what makes the group end instances that have jobs.
func (l *lookout) killers(name string, g *types.AutoScalingGroup) {
	warn := func(code, fix, format string, args ...any) {
		l.add(name, code, pluginsdk.FindingWarning, fix, format, args...)
	}
	if zones := len(g.AvailabilityZones); zones > 1 && !suspended(g, "AZRebalance") {
		warn("az_rebalance", "suspend the group's process AZRebalance", "the group balances its %d zones, and ends instances with jobs for it", zones)
	}
	if !aws.ToBool(g.NewInstancesProtectedFromScaleIn) {
		warn("no_scale_in_protection", "switch on the protection of new instances from scale-in", "new instances are not protected from scale-in: whatever lowers the group's desired number ends one with a job, and what was not filled can't be taken back")
	}
	if policies := l.policies[name]; len(policies) > 0 {
		warn("scaling_policy", "delete the policies", "the group has %d scaling policies (%s): they fight with Spillway about its desired number", len(policies), some(policies))
	}
	if running, _ := l.refreshes.get(name); running {
		warn("instance_refresh", "wait for it to end, or cancel it and let instances be replaced as they idle", "an instance refresh runs: it ends instances with jobs")
	}
	if aws.ToBool(g.CapacityRebalance) {
		warn("capacity_rebalance", "switch it off: Spillway drains on the same notice", "capacity rebalancing is on: the group ends spot instances with jobs at a recommendation")
	}
	if checks := aws.ToString(g.HealthCheckType); strings.Contains(checks, "ELB") || strings.Contains(checks, "VPC_LATTICE") {
		warn("health_check_elb", "use the health check of EC2 only", "the group's health check is %s: a runner serves nobody, and is ended when a load balancer finds that", checks)
	}
	if life := aws.ToInt32(g.MaxInstanceLifetime); life > 0 {
		warn("max_instance_lifetime", "set it to 0", "instances are ended %d s after their launch, with or without jobs", life)
	}
}

// maxNamed bounds the names in one message.
const maxNamed = 5

func some(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// lifecycleHooks looks whether drains can take as long as they should.
func (l *lookout) lifecycleHooks(name string) {
	drain := l.config.Hooks.DrainTimeout
	list, known := l.hooks.known.get(name)
	if drain == 0 || !known {
		return
	}
	found := false
	for _, hook := range list {
		if hook.transition != terminating || !l.config.Hooks.mine(hook.name) {
			continue
		}
		found = true
		if hook.limit < drain {
			l.add(name, "hook_too_short", pluginsdk.FindingWarning, fmt.Sprintf("give the hook a heartbeat timeout of %s at least, or use a shorter drain_timeout", (drain/maxHookHeartbeats).Round(time.Second)),
				"hook %s holds an instance for %s at most, drain_timeout is %s: jobs that take longer are ended", hook.name, hook.limit, drain)
		}
	}
	if found {
		l.add(name, "terminating_hook", pluginsdk.FindingInfo, "nothing", "a lifecycle hook holds instances that end until their jobs have")
	} else {
		l.add(name, "no_terminating_hook", pluginsdk.FindingWarning, "add a lifecycle hook for terminating instances", "no lifecycle hook holds instances that AWS ends: their jobs have no time to finish")
	}
}
