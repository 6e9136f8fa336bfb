package asgstub

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

func TestTwentyInstancesAreMovedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 30, Desired: 21})
	move := func(n int) error {
		_, err := w.api.EnterStandby(t.Context(), &autoscaling.EnterStandbyInput{
			AutoScalingGroupName: aws.String("ci"), InstanceIds: w.ids("ci")[:n], ShouldDecrementDesiredCapacity: aws.Bool(true),
		})
		return err
	}
	require.Equal(t, "ValidationError", code(move(maxMoved+1)))
	require.NoError(t, move(maxMoved))
	require.Equal(t, map[string]int{Standby: maxMoved, InService: 1}, w.states("ci"))
	require.ErrorContains(t, move(1), "is not in InService")
}

func TestFiftyHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 1})
	put := func(i int) error {
		_, err := w.api.PutLifecycleHook(t.Context(), &autoscaling.PutLifecycleHookInput{
			AutoScalingGroupName: aws.String("ci"), LifecycleHookName: aws.String(strconv.Itoa(i)), LifecycleTransition: aws.String(Launching),
		})
		return err
	}
	for i := range maxHooks {
		require.NoError(t, put(i))
	}
	require.Equal(t, "LimitExceeded", code(put(maxHooks)))
	require.NoError(t, put(0), "one that is there can still be changed")
}

func TestTenMessagesAreDeletedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.AddQueue("q")
	b := newInbox(t, w.Client(), "http://stub.invalid", "q")
	remove := func(ids ...string) error {
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &b.url}
		for _, id := range ids {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(id), ReceiptHandle: aws.String("x")})
		}
		_, err := b.api.DeleteMessageBatch(t.Context(), in)
		return err
	}
	require.NoError(t, remove(strings.Split("abcdefghij", "")...))
	require.Equal(t, "TooManyEntriesInBatchRequest", code(remove(strings.Split("abcdefghijk", "")...)))
	require.Equal(t, "BatchEntryIdsNotDistinct", code(remove("a", "a")))
}

func TestActivitiesAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 1})
	require.NoError(t, w.set("ci", 1))
	w.pass(activityAge - time.Second)
	require.Len(t, w.activities("ci"), 1)
	w.pass(time.Second)
	require.Empty(t, w.activities("ci"))

	g := w.mu.groups["ci"]
	for i := range maxActivities + 5 {
		g.startActivity(fmt.Sprint(i), "", "")
	}
	require.Len(t, g.activities, maxActivities)
	require.Equal(t, fmt.Sprint(maxActivities+4), g.activities[maxActivities-1].description)
}

func TestEndedInstancesLeaveEC2AfterAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 1, Desired: 1})
	id := w.ids("ci")[0]
	ec2 := func() string {
		_, body := post(t, w.Cloud, "Action=DescribeInstances&Version=2016-11-15&InstanceId.1="+id, strings.Replace(signed, "autoscaling", "ec2", 1))
		return body
	}
	require.Contains(t, ec2(), "<name>running</name>")
	require.NoError(t, w.kill(id, true))
	w.pass(terminatedFor - time.Second)
	require.Contains(t, ec2(), "<name>terminated</name>")
	w.pass(time.Second)
	require.Contains(t, ec2(), "<Code>InvalidInstanceID.NotFound</Code>")
	require.Len(t, w.Instances("ci"), 1, "the test still sees it")
}
