package ec2asg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// What would end instances with jobs is found before it does.
func TestC27_SettingsThatKillAreFound(t *testing.T) {
	policy := asgstub.Policy{Name: "cpu", Type: "TargetTrackingScaling", TargetValue: 50, PredefinedMetric: "ASGAverageCPUUtilization"}
	disabled := policy
	disabled.Disabled = true
	for code, c := range map[string]struct {
		change func(g *asgstub.GroupConfig)
	}{
		"az_rebalance":           {func(g *asgstub.GroupConfig) { g.SuspendedProcesses = nil }},
		"no_scale_in_protection": {func(g *asgstub.GroupConfig) { g.NewInstancesProtected = false }},
		"scaling_policy":         {func(g *asgstub.GroupConfig) { g.ScalingPolicies = []asgstub.Policy{policy} }},
		"instance_refresh":       {func(g *asgstub.GroupConfig) { g.InstanceRefreshInProgress = true }},
		"foreign_owner":          {func(g *asgstub.GroupConfig) { g.Tags = []asgstub.Tag{{Key: "spillway-owner", Value: "them"}} }},
		"capacity_rebalance":     {func(g *asgstub.GroupConfig) { g.CapacityRebalance = true }},
		"suspended_process":      {func(g *asgstub.GroupConfig) { g.SuspendedProcesses = append(g.SuspendedProcesses, "ReplaceUnhealthy") }},
		"":                       {func(g *asgstub.GroupConfig) { g.ScalingPolicies = []asgstub.Policy{disabled} }},
		"-one zone":              {func(g *asgstub.GroupConfig) { g.SuspendedProcesses, g.Zones = nil, []string{"us-east-1a"} }},
	} {
		t.Run(code, func(t *testing.T) {
			g := linux(2)
			c.change(&g)
			w := start(t, asgstub.Options{}, nil, g)
			if code == "" || code[0] == '-' {
				require.Empty(t, w.codes("linux"))
				return
			}
			require.Equal(t, []string{code}, w.codes("linux"))
		})
	}
}

func TestC27_ARefreshIsSeenToBeginAndToEnd(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(2))
	require.Empty(t, w.codes("linux"))
	w.cloud.StartInstanceRefresh("linux")
	w.after(time.Minute)
	require.Contains(t, [][]string{{"instance_refresh"}, nil}, w.codes("linux"))
	s, _ := w.look("linux")
	require.Empty(t, s.LaunchHalt+s.RemovalHalt, "a refresh hinders nothing")
}

// An instance that somebody else ends is gone at the next look, and its place is the
// group's to fill.
func TestC27_SomebodyElseEndsAnInstance(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(3))
	ids := w.ids("linux")
	w.cloud.TerminateExternally(ids[1])
	w.after(5 * time.Second)
	now := w.ids("linux")
	require.NotContains(t, now, ids[1])
	require.Len(t, now, 3)
	require.Empty(t, w.writes())
}

func TestFindingsOfGroupsThatCantBeRead(t *testing.T) {
	w := start(t, asgstub.Options{}, map[string]any{"groups": []string{"linux", "absent"}}, linux(1))
	require.Equal(t, []string{"group_not_found"}, w.codes("absent"))
	require.Equal(t, []string{"group_not_found"}, w.codes("somebody's"))
	findings, err := w.Findings(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, findings)
	_, err = w.Findings(t.Context(), make([]string, pluginsdk.MaxGroupsPerCall+1))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)

	a, names := manyGroups()
	a.fail, a.failFrom, a.failTo = failure(500, "InternalFailure"), 1, 1
	findings, err = serve(t, a, names...).Findings(t.Context(), names)
	require.NoError(t, err)
	unreadable := 0
	for _, f := range findings {
		if f.Code == "group_unreadable" {
			unreadable++
		}
	}
	require.Equal(t, 100, unreadable, "those of one call")
}

// What could end an instance with a job, and what a health check or a lifetime does,
// is in the group's settings; the stand-in takes them from a call.
func TestFindingsOfHealthChecksAndLifetimes(t *testing.T) {
	a := &api{groups: map[string]string{
		"elb":      group("elb", 0, 0, 5, "<NewInstancesProtectedFromScaleIn>true</NewInstancesProtectedFromScaleIn><HealthCheckType>EC2,ELB</HealthCheckType>"),
		"lifetime": group("lifetime", 0, 0, 5, "<NewInstancesProtectedFromScaleIn>true</NewInstancesProtectedFromScaleIn><MaxInstanceLifetime>86400</MaxInstanceLifetime>"),
		"weights":  group("weights", 0, 0, 5, "<NewInstancesProtectedFromScaleIn>true</NewInstancesProtectedFromScaleIn><MixedInstancesPolicy><LaunchTemplate><Overrides><member><InstanceType>m5.large</InstanceType><WeightedCapacity>2</WeightedCapacity></member></Overrides></LaunchTemplate></MixedInstancesPolicy>"),
	}}
	p := serve(t, a, "elb", "lifetime", "weights")
	findings, err := p.Findings(t.Context(), []string{"elb", "lifetime", "weights"})
	require.NoError(t, err)
	codes := map[string]string{}
	for _, f := range findings {
		codes[f.Group] += f.Code
	}
	require.Equal(t, map[string]string{"elb": "health_check_elb", "lifetime": "max_instance_lifetime", "weights": "weighted_capacity"}, codes)
}

// Many groups cost few calls: policies are read for the account, and what can only be
// asked of one group has its turn.
func TestFindingsOfManyGroups(t *testing.T) {
	var all []asgstub.GroupConfig
	var names []string
	for i := range 150 {
		g := linux(0)
		g.Name = fmt.Sprintf("group-%03d", i)
		g.InstanceRefreshInProgress = true
		g.ScalingPolicies = []asgstub.Policy{{Name: fmt.Sprintf("p-%d", i)}}
		all, names = append(all, g), append(names, g.Name)
	}
	w := start(t, asgstub.Options{}, nil, all...)
	found := map[string]int{}
	count := func() {
		findings, err := w.Findings(t.Context(), names)
		require.NoError(t, err)
		clear(found)
		for _, f := range findings {
			found[f.Code]++
		}
	}
	count()
	require.Equal(t, map[string]int{"scaling_policy": 150, "instance_refresh": 100}, found)
	require.Equal(t, 2, w.cloud.CountOf("DescribePolicies"), "pages of 100")
	require.Equal(t, 100, w.cloud.CountOf("DescribeInstanceRefreshes"))
	count()
	require.Equal(t, map[string]int{"scaling_policy": 150, "instance_refresh": 150}, found)
}

// A right that is missing is a finding, and hinders no other.
func TestFindingsWithoutRights(t *testing.T) {
	g := linux(0)
	g.NewInstancesProtected = false
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Calls: []asgstub.CallFault{{
		Operations: []string{"DescribePolicies", "DescribeInstanceRefreshes", "DescribeLifecycleHooks"}, Code: "AccessDenied",
	}}}}, map[string]any{"hooks": map[string]any{"drain_timeout": "1h"}}, g)
	require.Equal(t, []string{"no_scale_in_protection", "missing_permission", "missing_permission", "missing_permission"}, w.codes("linux"))
}

// The right policies are found when the account is read as a whole.
func TestAdminChangesAreSeen(t *testing.T) {
	w := start(t, asgstub.Options{}, nil, linux(0))
	_, err := w.admin().SuspendProcesses(t.Context(), &autoscaling.SuspendProcessesInput{
		AutoScalingGroupName: aws.String("linux"), ScalingProcesses: []string{"Launch", "Terminate"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"suspended_process", "suspended_process"}, w.codes("linux"))
	s, _ := w.look("linux")
	require.NotEmpty(t, s.LaunchHalt)
	require.NotEmpty(t, s.RemovalHalt)
}

// A list that ends at our limit says that it is not all.
func TestX07_MorePoliciesThanAreReadAreTold(t *testing.T) {
	for n, more := range map[int]bool{100: false, 101: true} {
		g := linux(1)
		for i := range n {
			g.ScalingPolicies = append(g.ScalingPolicies, asgstub.Policy{
				Name: fmt.Sprintf("p%03d", i), Type: "TargetTrackingScaling", TargetValue: 50, PredefinedMetric: "ASGAverageCPUUtilization",
			})
		}
		w := start(t, asgstub.Options{Faults: asgstub.Faults{PageSize: 1}}, nil, g)
		findings, err := w.Findings(t.Context(), []string{"linux"})
		require.NoError(t, err)
		var messages []string
		for _, f := range findings {
			messages = append(messages, f.Message)
		}
		text := strings.Join(messages, "\n")
		require.Contains(t, text, "100 scaling policies")
		require.Equal(t, more, strings.Contains(text, "more than 100 pages"), text)
	}
}
