package ec2asg_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

// world is a provider in this process on the stand-in's clock.
type world struct {
	*ec2asg.Provider
	t     *testing.T
	cloud *asgstub.Cloud
	tags  *tags
	mu    sync.Mutex
	now   time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	w.mu.Lock()
	w.now = w.now.Add(d)
	w.mu.Unlock()
	w.cloud.Advance(w.clock())
}

// start makes the groups of a stand-in, and a provider for them all with more
// settings.
func start(t *testing.T, options asgstub.Options, settings map[string]any, groups ...asgstub.GroupConfig) *world {
	t.Helper()
	isolate(t)
	w := &world{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	options.Now = w.clock
	w.cloud = asgstub.New(options)
	var names []string
	for _, g := range groups {
		w.cloud.AddGroup(g)
		names = append(names, g.Name)
	}
	config := map[string]any{"region": asgstub.DefaultRegion, "endpoint": "http://aws.test", "groups": names}
	maps.Copy(config, settings)
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	w.tags = &tags{next: w.cloud.Client()}
	w.Provider = ec2asg.NewWith(ec2asg.Options{Now: w.clock, HTTP: w.tags, AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret-of-the-test"})
	require.NoError(t, w.Configure(t.Context(), raw))
	return w
}

// linux is a group as it should be.
func linux(desired int) asgstub.GroupConfig {
	return asgstub.GroupConfig{
		Name: "linux", Max: 20, Desired: desired, NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"},
	}
}

// look is what the control plane does: status and list.
func (w *world) look(group string) (pluginsdk.GroupStatus, []pluginsdk.Instance) {
	w.t.Helper()
	all, err := w.Status(w.t.Context(), []string{group})
	require.NoError(w.t, err)
	require.NoError(w.t, all[0].Err)
	list, err := w.ListInstances(w.t.Context(), group)
	require.NoError(w.t, err)
	return all[0], list
}

// ids are the instances that are listed.
func (w *world) ids(group string) (ids []string) {
	w.t.Helper()
	_, list := w.look(group)
	for _, in := range list {
		ids = append(ids, in.ID)
	}
	return ids
}

func (w *world) set(group string, target, expected int) (int, error) {
	return w.SetDesired(w.t.Context(), pluginsdk.SetDesired{Group: group, Target: target, Expected: expected, Token: "t"})
}

// remove removes ids and returns the outcome of each.
func (w *world) remove(group string, ids ...string) (outcomes []pluginsdk.RemoveOutcome, errs []error) {
	w.t.Helper()
	results, err := w.Remove(w.t.Context(), group, ids, "t")
	require.NoError(w.t, err)
	for i, r := range results {
		require.Equal(w.t, ids[i], r.ID)
		outcomes, errs = append(outcomes, r.Outcome), append(errs, r.Err)
	}
	return outcomes, errs
}

// writes are the calls that change something, in order.
func (w *world) writes() (ops []string) {
	for _, c := range w.cloud.Calls() {
		if c.Writes() {
			ops = append(ops, c.Operation)
		}
	}
	return ops
}

// group is the group as it is.
func (w *world) group(name string) asgstub.GroupView {
	w.t.Helper()
	g, ok := w.cloud.Group(name)
	require.True(w.t, ok)
	return g
}

// admin is somebody with more rights than the provider.
func (w *world) admin() *autoscaling.Client {
	return autoscaling.New(autoscaling.Options{
		Region: asgstub.DefaultRegion, BaseEndpoint: aws.String("http://aws.test"), HTTPClient: w.cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider("ADMIN", "secret", ""), Retryer: aws.NopRetryer{},
	})
}

// standby takes an instance out of service, without a replacement.
func (w *world) standby(id string) bool {
	w.t.Helper()
	_, err := w.admin().EnterStandby(w.t.Context(), &autoscaling.EnterStandbyInput{
		AutoScalingGroupName: aws.String("linux"), InstanceIds: []string{id}, ShouldDecrementDesiredCapacity: aws.Bool(true),
	})
	require.NoError(w.t, err)
	w.cloud.ResetCalls()
	return true
}

// terminate is somebody else's removal of an instance.
func (w *world) terminate(id string) {
	w.t.Helper()
	_, err := w.admin().TerminateInstanceInAutoScalingGroup(w.t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(true),
	})
	require.NoError(w.t, err)
	w.cloud.ResetCalls()
	w.after(time.Second)
}

// codes are the codes of the findings about a group.
func (w *world) codes(group string) (codes []string) {
	w.t.Helper()
	findings, err := w.Findings(w.t.Context(), []string{group})
	require.NoError(w.t, err)
	for _, f := range findings {
		require.Equal(w.t, group, f.Group)
		require.NotEmpty(w.t, f.Message)
		require.NotEmpty(w.t, f.Fix)
		if f.Severity != pluginsdk.FindingInfo {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// tags is a wire on which an instance has the tag spillway-keep, as of when keep is
// called.
type tags struct {
	next *http.Client
	kept atomic.Value // string, the id
}

func (t *tags) keep(id string) { t.kept.Store(id) }

func (t *tags) Do(r *http.Request) (*http.Response, error) {
	answer, err := t.next.Do(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	text := string(body)
	if id, ok := t.kept.Load().(string); ok && strings.Contains(text, "DescribeInstancesResponse") {
		before, after, _ := strings.Cut(text, "<instanceId>"+id+"</instanceId>")
		text = before + "<instanceId>" + id + "</instanceId>" + strings.Replace(after, "<tagSet>", "<tagSet><item><key>spillway-keep</key><value></value></item>", 1)
	}
	answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	return answer, nil
}

// slow is a wire on which every call takes a while.
type slow struct {
	next    *http.Client
	latency time.Duration
}

func (s slow) Do(r *http.Request) (*http.Response, error) {
	timer := time.NewTimer(s.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.next.Do(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
