package asgstub

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/stretchr/testify/require"
)

const (
	guide = "https://docs.aws.amazon.com/autoscaling/ec2/userguide/"
	ref   = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference/"
)

// TestBehaviour is what the documentation says, page by page, asked for through
// the Go SDK.
func TestBehaviour(t *testing.T) {
	t.Parallel()
	slow := Faults{Boot: Boot{P50: time.Minute}, Pending: 20 * time.Second, Terminating: 30 * time.Second}
	for _, c := range []struct {
		name, page string
		group      GroupConfig
		run        func(*testing.T, *world)
	}{
		{
			"desired above max is refused", ref + "API_SetDesiredCapacity.html",
			GroupConfig{Max: 5},
			func(t *testing.T, w *world) {
				err := w.set("ci", 6)
				require.Equal(t, "ValidationError", code(err))
				require.ErrorContains(t, err, "New SetDesiredCapacity value 6 is above max value 5 for the AutoScalingGroup.")
				require.NoError(t, w.set("ci", 5))
			},
		},
		{
			"desired below min is refused", ref + "API_SetDesiredCapacity.html",
			GroupConfig{Min: 2, Desired: 2, Max: 5},
			func(t *testing.T, w *world) {
				require.ErrorContains(t, w.set("ci", 1), "New SetDesiredCapacity value 1 is below min value 2 for the AutoScalingGroup.")
			},
		},
		{
			"an instance goes from pending to in service", guide + "ec2-auto-scaling-lifecycle.html",
			GroupConfig{Max: 5, Faults: &slow},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 2))
				require.Equal(t, map[string]int{"Pending": 2}, w.states("ci"))
				w.pass(20 * time.Second)
				require.Equal(t, map[string]int{"InService": 2}, w.states("ci"))
				require.Equal(t, types.ScalingActivityStatusCodeSuccessful, w.activities("ci")[0].StatusCode)
				require.Len(t, w.changes, 2, "they are launched and not ready")
				w.pass(40 * time.Second)
				require.Len(t, w.changes, 4)
				require.Equal(t, Change{At: epoch.Add(time.Minute), Kind: Ready, Group: "ci", ID: w.ids("ci")[1], Registers: true}, w.changes[3])
			},
		},
		{
			"an instance terminates over a while", guide + "ec2-auto-scaling-lifecycle.html",
			GroupConfig{Max: 5, Desired: 2, Faults: &slow},
			func(t *testing.T, w *world) {
				id := w.ids("ci")[0]
				require.NoError(t, w.kill(id, true))
				require.Equal(t, map[string]int{"InService": 1, "Terminating": 1}, w.states("ci"))
				require.EqualValues(t, 1, *w.describe("ci").DesiredCapacity)
				require.Equal(t, map[string]Cause{id: ByName}, w.ended())
				w.pass(30 * time.Second)
				require.Equal(t, map[string]int{"InService": 1}, w.states("ci"))
			},
		},
		{
			"terminate without decrement is replaced", ref + "API_TerminateInstanceInAutoScalingGroup.html",
			GroupConfig{Max: 5, Desired: 2},
			func(t *testing.T, w *world) {
				require.NoError(t, w.kill(w.ids("ci")[0], false))
				g, _ := w.Group("ci")
				require.Equal(t, 2, g.Desired)
				require.Len(t, g.Instances, 2)
				require.Len(t, w.Instances("ci"), 3)
			},
		},
		{
			"terminate with decrement at min is refused", ref + "API_TerminateInstanceInAutoScalingGroup.html",
			GroupConfig{Min: 1, Desired: 1, Max: 5},
			func(t *testing.T, w *world) {
				err := w.kill(w.ids("ci")[0], true)
				require.Equal(t, "ValidationError", code(err))
				require.ErrorContains(t, err, "Currently, desiredSize equals minSize (1). Terminating instance without replacement will violate group's min size constraint.")
				require.Empty(t, w.ended())
			},
		},
		{
			"a protected instance can be terminated by name", guide + "ec2-auto-scaling-instance-protection.html",
			GroupConfig{Max: 5, Desired: 1, NewInstancesProtected: true},
			func(t *testing.T, w *world) {
				require.NoError(t, w.kill(w.ids("ci")[0], true))
				require.Zero(t, w.Live("ci"))
			},
		},
		{
			"all protected: desired falls and nobody ends", guide + "ec2-auto-scaling-instance-protection.html",
			GroupConfig{Max: 5, Desired: 3, NewInstancesProtected: true},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 1))
				require.Equal(t, 3, w.Live("ci"))
				a := w.activities("ci")[0]
				require.Equal(t, types.ScalingActivityStatusCodeCancelled, a.StatusCode)
				require.Contains(t, *a.Description, "Could not scale to desired capacity because all remaining instances are protected from scale-in.")
				free := w.ids("ci")[1]
				require.NoError(t, w.protect("ci", false, free))
				require.Equal(t, map[string]Cause{free: ByScaleIn}, w.ended(), "the first that is not protected any more")
			},
		},
		{
			"protection starts in service", guide + "ec2-auto-scaling-instance-protection.html",
			GroupConfig{Max: 5, NewInstancesProtected: true, Faults: &slow},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 1))
				require.ErrorContains(t, w.protect("ci", true, w.ids("ci")[0]), "is not in InService or EnteringStandby or Standby")
				w.pass(time.Minute)
				require.True(t, *w.describe("ci").Instances[0].ProtectedFromScaleIn)
			},
		},
		{
			"protection takes 50 ids", ref + "API_SetInstanceProtection.html",
			GroupConfig{Max: 60, Desired: 51},
			func(t *testing.T, w *world) {
				require.NoError(t, w.protect("ci", true, w.ids("ci")[:50]...))
				require.Equal(t, "ValidationError", code(w.protect("ci", true, w.ids("ci")...)))
			},
		},
		{
			"launch suspended: nothing is launched until it is resumed", guide + "understand-how-suspending-processes-affects-other-processes.html",
			GroupConfig{Max: 5, SuspendedProcesses: []string{"Launch"}},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 3))
				w.pass(time.Hour)
				require.Zero(t, w.Live("ci"))
				_, err := w.api.ResumeProcesses(t.Context(), &autoscaling.ResumeProcessesInput{AutoScalingGroupName: aws.String("ci"), ScalingProcesses: []string{"Launch"}})
				require.NoError(t, err)
				require.Equal(t, 3, w.Live("ci"))
			},
		},
		{
			"terminate suspended: no scale-in, but by name", guide + "suspend-resume-considerations.html",
			GroupConfig{Max: 5, Desired: 3, SuspendedProcesses: []string{"Terminate"}},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 2))
				require.Equal(t, 3, w.Live("ci"))
				require.NoError(t, w.kill(w.ids("ci")[0], true))
				require.Equal(t, 2, w.Live("ci"))
			},
		},
		{
			"honored cooldown blocks", ref + "API_SetDesiredCapacity.html",
			GroupConfig{Max: 5},
			func(t *testing.T, w *world) {
				require.NoError(t, w.set("ci", 1))
				in := &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("ci"), DesiredCapacity: aws.Int32(2), HonorCooldown: aws.Bool(true)}
				_, err := w.api.SetDesiredCapacity(t.Context(), in)
				require.Equal(t, "ScalingActivityInProgress", code(err))
				w.pass(300 * time.Second)
				_, err = w.api.SetDesiredCapacity(t.Context(), in)
				require.NoError(t, err)
			},
		},
		{
			"unhealthy is replaced", ref + "API_SetInstanceHealth.html",
			GroupConfig{Max: 5, Desired: 2, NewInstancesProtected: true},
			func(t *testing.T, w *world) {
				id := w.ids("ci")[0]
				_, err := w.api.SetInstanceHealth(t.Context(), &autoscaling.SetInstanceHealthInput{InstanceId: &id, HealthStatus: aws.String("Unhealthy")})
				require.NoError(t, err)
				require.Equal(t, map[string]Cause{id: Unhealthy}, w.ended())
				require.Equal(t, 2, w.Live("ci"))
			},
		},
		{
			"new bounds move desired", ref + "API_UpdateAutoScalingGroup.html",
			GroupConfig{Max: 9, Desired: 4},
			func(t *testing.T, w *world) {
				update := func(low, high int32) {
					_, err := w.api.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("ci"), MinSize: &low, MaxSize: &high})
					require.NoError(t, err)
				}
				update(6, 9)
				require.EqualValues(t, 6, *w.describe("ci").DesiredCapacity)
				update(0, 2)
				require.EqualValues(t, 2, *w.describe("ci").DesiredCapacity)
				require.Equal(t, 2, w.Live("ci"))
			},
		},
		{
			"standby does not count, and comes back", ref + "API_ExitStandby.html",
			GroupConfig{Max: 5, Desired: 2},
			func(t *testing.T, w *world) {
				id := w.ids("ci")[:1]
				_, err := w.api.EnterStandby(t.Context(), &autoscaling.EnterStandbyInput{AutoScalingGroupName: aws.String("ci"), InstanceIds: id, ShouldDecrementDesiredCapacity: aws.Bool(true)})
				require.NoError(t, err)
				require.Equal(t, map[string]int{"InService": 1, "Standby": 1}, w.states("ci"))
				require.EqualValues(t, 1, *w.describe("ci").DesiredCapacity)
				_, err = w.api.ExitStandby(t.Context(), &autoscaling.ExitStandbyInput{AutoScalingGroupName: aws.String("ci"), InstanceIds: id})
				require.NoError(t, err)
				require.Equal(t, map[string]int{"InService": 2}, w.states("ci"))
				require.EqualValues(t, 2, *w.describe("ci").DesiredCapacity)
			},
		},
		{
			"detach keeps the instance running", ref + "API_DetachInstances.html",
			GroupConfig{Max: 5, Desired: 2},
			func(t *testing.T, w *world) {
				_, err := w.api.DetachInstances(t.Context(), &autoscaling.DetachInstancesInput{AutoScalingGroupName: aws.String("ci"), InstanceIds: w.ids("ci")[:1], ShouldDecrementDesiredCapacity: aws.Bool(true)})
				require.NoError(t, err)
				require.Len(t, w.describe("ci").Instances, 1)
				require.Equal(t, 2, w.Live("ci"), "it still bills")
			},
		},
		{
			"a page of groups is 50, at most 100, and named ones are as many", ref + "API_DescribeAutoScalingGroups.html",
			GroupConfig{Max: 1},
			func(t *testing.T, w *world) {
				for i := range 120 {
					w.AddGroup(GroupConfig{Name: fmt.Sprintf("g%03d", i), Max: 1})
				}
				page := func(in autoscaling.DescribeAutoScalingGroupsInput) (int, *string, error) {
					out, err := w.api.DescribeAutoScalingGroups(t.Context(), &in)
					if err != nil {
						return 0, nil, err
					}
					return len(out.AutoScalingGroups), out.NextToken, nil
				}
				n, _, err := page(autoscaling.DescribeAutoScalingGroupsInput{})
				require.NoError(t, err)
				require.Equal(t, 50, n)
				n, next, err := page(autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(100)})
				require.NoError(t, err)
				require.Equal(t, 100, n)
				n, last, err := page(autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(100), NextToken: next})
				require.NoError(t, err)
				require.Equal(t, 21, n)
				require.Nil(t, last)
				_, _, err = page(autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(101)})
				require.Equal(t, "ValidationError", code(err))
				names := w.Groups()[:51]
				_, _, err = page(autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names})
				require.Equal(t, "ValidationError", code(err))
				n, _, err = page(autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names, MaxRecords: aws.Int32(100)})
				require.NoError(t, err)
				require.Equal(t, 51, n)
				_, _, err = page(autoscaling.DescribeAutoScalingGroupsInput{NextToken: aws.String("no")})
				require.Equal(t, "InvalidNextToken", code(err))
			},
		},
		{
			"a group that is not there", ref + "API_DescribeAutoScalingGroups.html",
			GroupConfig{Max: 1},
			func(t *testing.T, w *world) {
				out, err := w.api.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"no"}})
				require.NoError(t, err, "it is left out")
				require.Empty(t, out.AutoScalingGroups)
				require.ErrorContains(t, w.set("no", 1), "AutoScalingGroup name not found")
				require.ErrorContains(t, w.kill("i-00000000000000000", true), "No managed instance found")
			},
		},
		{
			"a group with instances is not deleted without force", ref + "API_DeleteAutoScalingGroup.html",
			GroupConfig{Max: 2, Desired: 1},
			func(t *testing.T, w *world) {
				in := &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: aws.String("ci")}
				_, err := w.api.DeleteAutoScalingGroup(t.Context(), in)
				require.Equal(t, "ResourceInUse", code(err))
				id := w.ids("ci")[0]
				in.ForceDelete = aws.Bool(true)
				_, err = w.api.DeleteAutoScalingGroup(t.Context(), in)
				require.NoError(t, err)
				require.Equal(t, map[string]Cause{id: Deleted}, w.ended())
			},
		},
		{
			"a refresh replaces all, one by one", ref + "API_StartInstanceRefresh.html",
			GroupConfig{Max: 5, Desired: 3, Faults: &slow},
			func(t *testing.T, w *world) {
				old := w.ids("ci")
				_, err := w.api.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("ci")})
				require.NoError(t, err)
				_, err = w.api.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("ci")})
				require.Equal(t, "InstanceRefreshInProgress", code(err))
				for range 300 {
					w.pass(time.Second)
					require.GreaterOrEqual(t, w.states("ci")["InService"], 2)
				}
				require.Len(t, w.ended(), 3)
				for _, id := range old {
					require.NotContains(t, w.ids("ci"), id)
				}
				out, err := w.api.DescribeInstanceRefreshes(t.Context(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String("ci")})
				require.NoError(t, err)
				require.Equal(t, types.InstanceRefreshStatusSuccessful, out.InstanceRefreshes[0].Status)
			},
		},
		{
			"a refresh waits for what is protected", ref + "API_RefreshPreferences.html",
			GroupConfig{Max: 5, Desired: 2, NewInstancesProtected: true},
			func(t *testing.T, w *world) {
				require.True(t, w.StartInstanceRefresh("ci"))
				w.pass(time.Hour)
				require.Empty(t, w.ended())
			},
		},
		{
			"launches come from the warm pool first", guide + "ec2-auto-scaling-warm-pools.html",
			GroupConfig{Max: 4, WarmPool: &WarmPool{MinSize: 2, MaxGroupPreparedCapacity: 2}},
			func(t *testing.T, w *world) {
				pool := func() []types.Instance {
					out, err := w.api.DescribeWarmPool(t.Context(), &autoscaling.DescribeWarmPoolInput{AutoScalingGroupName: aws.String("ci")})
					require.NoError(t, err)
					return out.Instances
				}
				require.Len(t, pool(), 2)
				require.Equal(t, types.LifecycleStateWarmedStopped, pool()[0].LifecycleState)
				first := *pool()[0].InstanceId
				require.NoError(t, w.set("ci", 1))
				require.Equal(t, first, *w.describe("ci").Instances[0].InstanceId)
				require.Len(t, pool(), 2, "it is filled up again")
				require.ErrorContains(t, w.kill(*pool()[0].InstanceId, true), "warm pool")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log(c.page)
			c.group.Name = "ci"
			c.run(t, newWorld(t, Options{}, c.group))
		})
	}
}
