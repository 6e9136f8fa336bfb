package ec2asg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// A launch that was accepted and failed is told at the next look, once and for as
// long as it could matter.
func TestC28_FailedLaunchesAreTold(t *testing.T) {
	for code, kind := range map[string]pluginsdk.Kind{
		"InsufficientInstanceCapacity": pluginsdk.KindCapacity,
		"UnfulfillableCapacity":        pluginsdk.KindCapacity,
		"NoSpotCapacity":               pluginsdk.KindCapacity,
		"MaxSpotInstanceCountExceeded": pluginsdk.KindQuota,
		"VcpuLimitExceeded":            pluginsdk.KindQuota,
		"InstanceLimitExceeded":        pluginsdk.KindQuota,
		"Unsupported":                  pluginsdk.KindInvalid,
		"InvalidParameter":             pluginsdk.KindInvalid,
		"InvalidAMIID.NotFound":        pluginsdk.KindInvalid,
		"InvalidKeyPair.NotFound":      pluginsdk.KindInvalid,
		"InvalidLaunchTemplate":        pluginsdk.KindInvalid,
	} {
		t.Run(code, func(t *testing.T) {
			w := start(t, asgstub.Options{Faults: asgstub.Faults{
				Launch: []asgstub.LaunchFault{{Window: asgstub.Window{To: time.Minute}, Code: code}}, RetryEvery: time.Hour,
			}}, nil, linux(0))
			_, err := w.set("linux", 1, 0)
			require.NoError(t, err, "the cloud says yes, and fails later")
			w.after(5 * time.Second)
			s, list := w.look("linux")
			require.Empty(t, list)
			require.Len(t, s.Failures, 1)
			f := s.Failures[0]
			require.NotEmpty(t, f.ID)
			require.Equal(t, kind, f.Kind, f.Message)
			require.NotEmpty(t, f.Message)
			require.False(t, f.At.After(w.clock()) || f.At.Before(w.clock().Add(-time.Minute)))

			w.after(14 * time.Minute)
			s, _ = w.look("linux")
			require.Equal(t, []pluginsdk.GroupFailure{f}, s.Failures, "it is counted once as long as it is told at every look")
			w.after(2 * time.Minute)
			s, _ = w.look("linux")
			require.Empty(t, s.Failures)
		})
	}
}

func TestC28_OtherMessages(t *testing.T) {
	for message, kind := range map[string]pluginsdk.Kind{
		"Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient p3.2xlarge capacity.": pluginsdk.KindCapacity,
		"Could not launch Spot Instances. SpotMaxPriceTooLow - Your Spot request price of 0.01 is lower than required.":                 pluginsdk.KindCapacity,
		"There are not enough free addresses in subnet subnet-1.":                                                                       pluginsdk.KindQuota,
		"You are not authorized to perform this operation.":                                                                             pluginsdk.KindAuth,
		"Request limit exceeded.": pluginsdk.KindThrottled,
		"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: Client.InternalError: Client error on launch":   pluginsdk.KindInvalid,
		"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: Server.InternalError: Internal error on launch": pluginsdk.KindTransient,
		"Something that nobody has seen before.": pluginsdk.KindTransient,
	} {
		w := start(t, asgstub.Options{Faults: asgstub.Faults{
			Launch: []asgstub.LaunchFault{{Code: "Other", Message: message}}, RetryEvery: time.Hour,
		}}, nil, linux(0))
		_, err := w.set("linux", 1, 0)
		require.NoError(t, err)
		w.after(time.Second)
		s, _ := w.look("linux")
		require.Len(t, s.Failures, 1)
		require.Equal(t, kind, s.Failures[0].Kind, message)
	}
}

// A group that has all that it was asked for costs no call, nor does one that is as it
// was when we came.
func TestActivitiesAreLookedAtOnlyWhileSomethingIsMissing(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Boot: asgstub.Boot{P50: time.Minute}, Pending: time.Minute}}, nil, linux(2))
	calls := func() int { return w.cloud.CountOf("DescribeScalingActivities") }
	for range 3 {
		w.look("linux")
		w.after(5 * time.Second)
	}
	require.Zero(t, calls())
	_, err := w.set("linux", 4, 2)
	require.NoError(t, err)
	w.look("linux")
	require.Equal(t, 1, calls(), "at the first look")
	w.after(2 * time.Minute)
	w.look("linux")
	before := calls()
	for range 5 {
		w.after(5 * time.Second)
		w.look("linux")
	}
	require.Equal(t, before, calls(), "everything has come")
}

// With more groups in trouble than a look asks about, each has its turn.
func TestC28_NoGroupInTroubleIsLeftOut(t *testing.T) {
	const groups = 90
	var all []asgstub.GroupConfig
	for i := range groups {
		g := linux(0)
		g.Name = fmt.Sprintf("group-%02d", i)
		all = append(all, g)
	}
	w := start(t, asgstub.Options{Faults: asgstub.Faults{
		Launch: []asgstub.LaunchFault{{Code: "InsufficientInstanceCapacity"}}, RetryEvery: time.Minute,
	}}, nil, all...)
	var names []string
	for _, g := range all {
		names = append(names, g.Name)
		_, err := w.set(g.Name, 1, 0)
		require.NoError(t, err)
	}
	told := map[string]bool{}
	for range (groups + 19) / 20 {
		w.after(5 * time.Second)
		before := w.cloud.CountOf("DescribeScalingActivities")
		statuses, err := w.Status(t.Context(), names)
		require.NoError(t, err)
		require.LessOrEqual(t, w.cloud.CountOf("DescribeScalingActivities")-before, 20)
		for _, s := range statuses {
			told[s.Group] = told[s.Group] || len(s.Failures) > 0
		}
	}
	for _, name := range names {
		require.True(t, told[name], name)
	}
}

// Without the right to read activities the group is scaled all the same.
func TestActivitiesDenied(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{
		Launch: []asgstub.LaunchFault{{Code: "InsufficientInstanceCapacity"}},
		Calls:  []asgstub.CallFault{{Operations: []string{"DescribeScalingActivities"}, Code: "AccessDenied"}},
	}}, nil, linux(0))
	_, err := w.set("linux", 1, 0)
	require.NoError(t, err)
	for range 3 {
		s, _ := w.look("linux")
		require.Empty(t, s.Failures)
		w.after(5 * time.Second)
	}
	require.Equal(t, 1, w.cloud.CountOf("DescribeScalingActivities"), "it was asked again at once")
	require.Contains(t, w.codes("linux"), "missing_permission")
}

// What the group cancels because we took it back has not failed.
func TestAWithdrawalIsNoFailure(t *testing.T) {
	w := start(t, asgstub.Options{Faults: asgstub.Faults{Partial: 0.5, LateFill: time.Hour}}, nil, linux(0))
	_, err := w.set("linux", 4, 0)
	require.NoError(t, err)
	w.look("linux")
	_, err = w.Withdraw(t.Context(), "linux", 4, "t")
	require.NoError(t, err)
	w.after(5 * time.Second)
	s, list := w.look("linux")
	require.Len(t, list, 2)
	require.Equal(t, 2, s.Desired)
	require.Empty(t, s.Failures)
}
