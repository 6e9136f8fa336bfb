package asgstub

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"
)

// world is a stand-in on a clock of the test's, its AWS client, and what the
// observer was told.
type world struct {
	*Cloud
	t       testing.TB
	api     *autoscaling.Client
	now     time.Time
	changes []Change
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t testing.TB, opts Options, groups ...GroupConfig) *world {
	t.Helper()
	w := &world{t: t, now: epoch}
	opts.Now = func() time.Time { return w.now }
	w.Cloud = New(opts)
	w.Observe = func(ch Change) { w.changes = append(w.changes, ch) }
	for _, g := range groups {
		w.AddGroup(g)
	}
	w.api = newClient(w.Client(), "http://stub.invalid")
	return w
}

func newClient(c *http.Client, endpoint string) *autoscaling.Client {
	return autoscaling.New(autoscaling.Options{
		Region: DefaultRegion, BaseEndpoint: aws.String(endpoint), HTTPClient: c, RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "tester", SecretAccessKey: "secret"}, nil
		}),
	})
}

// pass moves the clock.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.Advance(w.now)
}

func (w *world) set(name string, n int) error {
	_, err := w.api.SetDesiredCapacity(w.t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &name, DesiredCapacity: aws.Int32(int32(n)), HonorCooldown: aws.Bool(false), //nolint:gosec // small
	})
	return err
}

func (w *world) kill(id string, decrement bool) error {
	_, err := w.api.TerminateInstanceInAutoScalingGroup(w.t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: &decrement,
	})
	return err
}

func (w *world) protect(name string, on bool, ids ...string) error {
	_, err := w.api.SetInstanceProtection(w.t.Context(), &autoscaling.SetInstanceProtectionInput{
		AutoScalingGroupName: &name, InstanceIds: ids, ProtectedFromScaleIn: &on,
	})
	return err
}

func (w *world) describe(name string) types.AutoScalingGroup {
	w.t.Helper()
	out, err := w.api.DescribeAutoScalingGroups(w.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	require.NoError(w.t, err)
	require.Len(w.t, out.AutoScalingGroups, 1)
	return out.AutoScalingGroups[0]
}

func (w *world) activities(name string) []types.Activity {
	w.t.Helper()
	out, err := w.api.DescribeScalingActivities(w.t.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: &name})
	require.NoError(w.t, err)
	return out.Activities
}

// states counts the instances of a group by lifecycle state, as the service shows them.
func (w *world) states(name string) map[string]int {
	out := map[string]int{}
	for _, in := range w.describe(name).Instances {
		out[string(in.LifecycleState)]++
	}
	return out
}

func (w *world) ids(name string) (out []string) {
	for _, in := range w.Existing(name) {
		out = append(out, in.ID)
	}
	return out
}

// ended are the causes of the ends so far, by instance.
func (w *world) ended() map[string]Cause {
	out := map[string]Cause{}
	for _, ch := range w.changes {
		if ch.Kind == Ended {
			out[ch.ID] = ch.Cause
		}
	}
	return out
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
