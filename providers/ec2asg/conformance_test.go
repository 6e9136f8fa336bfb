package ec2asg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/peertest"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
)

// plugin builds the binary.
func plugin(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "spillway-provider-ec2asg")
	build := exec.Command("go", "build", "-o", path, "github.com/spillway-ci/spillway/cmd/plugins/ec2asg")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// environment is all that the plugin's process sees.
func environment(t *testing.T) []string {
	t.Helper()
	return []string{
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret-of-the-test", "AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "TMPDIR=" + t.TempDir(),
	}
}

func subject(t *testing.T, endpoint, queue string) providertest.Subject {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"region": "us-east-1", "endpoint": endpoint, "groups": []string{"linux"}, "notices_queue": queue,
	})
	require.NoError(t, err)
	return providertest.Subject{Config: config, Group: "linux", MaxInstances: 3, Settle: time.Minute}
}

// The plugin, in a process of its own and over the wire, keeps the contract on a cloud
// that boots, terminates, pages and chooses victims.
func TestConformanceOnTheStub(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds and starts the plugin")
	}
	binary := plugin(t)
	for name, faults := range map[string]asgstub.Faults{
		"at once": {Victim: asgstub.BusyFirst},
		"slow": {
			Victim: asgstub.BusyFirst, Boot: asgstub.Boot{P50: 30 * time.Millisecond, P95: 80 * time.Millisecond}, Pending: 20 * time.Millisecond,
			Terminating: 50 * time.Millisecond, PageSize: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := asgstub.New(asgstub.Options{Faults: faults})
			g := linux(0)
			cloud.AddGroup(g)
			cloud.AddQueue("notices", asgstub.EventInterruption)
			server := httptest.NewServer(cloud)
			t.Cleanup(server.CloseClientConnections)
			t.Cleanup(server.Close)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go cloud.Run(ctx)
			providertest.RunBinary(t, binary, subject(t, server.URL, "notices"), environment(t)...)
			for _, c := range cloud.Calls() {
				require.NotContains(t, []string{"UpdateAutoScalingGroup", "TerminateInstances"}, c.Operation)
				require.Equal(t, "AKIDEXAMPLE", c.Who)
			}
		})
	}
}

// motoDeviates are the checks that the plugin can't pass on moto, and what of moto is
// the reason. One that passes all the same is a failure of this table.
var motoDeviates = map[string]string{
	"report_unhealthy": "moto notes an instance's health and replaces nobody",
}

// motoLacks are features of the plugin that moto has no service for; they are tested
// on the stub alone.
var motoLacks = map[string]string{
	"CompleteLifecycleAction":        "answers HTTP 500: hooks are tested on the stub",
	"RecordLifecycleActionHeartbeat": "answers HTTP 500: heartbeats are tested on the stub",
	"DescribeScalingActivities":      "has none ever: failed launches are tested on the stub",
	"DescribeInstanceRefreshes":      "has none ever: findings about refreshes are tested on the stub",
}

// moto is somebody else's Auto Scaling API.
type moto struct {
	endpoint string
	scaling  *autoscaling.Client
	queue    string
}

func startMoto(t *testing.T) moto {
	t.Helper()
	program := peertest.Program(t, "moto_server", "ec2asg was not tested against anybody else's Auto Scaling API")
	port := peertest.FreePort(t)
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", port)
	peertest.Start(t, exec.Command(program, "-H", "127.0.0.1", "-p", fmt.Sprint(port)), func() error {
		answer, err := http.Post(endpoint+"/moto-api/reset", "", nil)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	testCredentials(t)
	cfg, err := awsconfig.LoadDefaultConfig(t.Context(), awsconfig.WithRegion("us-east-1"))
	require.NoError(t, err)
	m := moto{endpoint: endpoint, scaling: autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) { o.BaseEndpoint = aws.String(endpoint) })}
	queue, err := sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.BaseEndpoint = aws.String(endpoint) }).
		CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("notices")})
	require.NoError(t, err)
	m.queue = aws.ToString(queue.QueueUrl)
	_, err = m.scaling.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: aws.String("lc"), ImageId: aws.String("ami-12c6146b"), InstanceType: aws.String("t3.micro"),
	})
	require.NoError(t, err)
	return m
}

func (m moto) create(t *testing.T, name string, desired int) {
	t.Helper()
	_, err := m.scaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(name), LaunchConfigurationName: aws.String("lc"),
		MinSize: aws.Int32(0), MaxSize: aws.Int32(9), DesiredCapacity: aws.Int32(int32(desired)),
		AvailabilityZones: []string{"us-east-1a"}, NewInstancesProtectedFromScaleIn: aws.Bool(true),
	})
	require.NoError(t, err)
}

func TestConformanceOnMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: starts moto_server and the plugin")
	}
	m := startMoto(t)
	m.create(t, "linux", 0)
	for _, what := range slices.Sorted(maps.Keys(motoLacks)) {
		t.Logf("not tested on moto: %s: it %s", what, motoLacks[what])
	}
	p, stop, err := providertest.Launch(plugin(t), environment(t), os.Stderr)
	require.NoError(t, err)
	t.Cleanup(stop)
	s := subject(t, m.endpoint, m.queue)
	s.Provider, s.Settle = p, 5*time.Second
	providertest.Check(t.Context(), s, func(r providertest.Result) {
		why, deviates := motoDeviates[r.Check]
		switch {
		case deviates && r.Outcome == providertest.Failed:
			t.Logf("deviates: %s: %s (%s)", r.Check, why, r.Detail)
		case deviates:
			t.Errorf("%s is said to deviate on moto, because %s, and doesn't: %s", r.Check, why, r)
		case r.Outcome != providertest.Passed:
			t.Error(r)
		}
	})
}

func TestAgainstMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: starts moto_server")
	}
	m := startMoto(t)
	var names []string
	for i := range 120 { // more than one call
		names = append(names, fmt.Sprintf("group-%03d", i))
		m.create(t, names[i], i%3)
	}
	p := configured(t, m.endpoint, append(names, "absent")...)
	statuses, err := p.Status(t.Context(), append(names, "absent"))
	require.NoError(t, err)
	for i := range names {
		require.Equal(t, pluginsdk.GroupStatus{Group: names[i], Desired: i % 3, Max: 9}, statuses[i])
	}
	require.ErrorIs(t, statuses[120].Err, pluginsdk.ErrNotFound)

	list, err := p.ListInstances(t.Context(), names[2])
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, in := range list {
		require.Regexp(t, "^i-", in.ID)
		require.Equal(t, pluginsdk.StateRunning, in.State)
		require.Equal(t, "us-east-1a", in.Zone)
		require.True(t, in.Protected)
		require.WithinDuration(t, time.Now(), in.LaunchedAt, time.Hour)
	}
	require.NoError(t, p.ReportUnhealthy(t.Context(), names[2], []string{list[0].ID}))
	findings, err := p.Findings(t.Context(), []string{names[2], "absent"})
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, "group_not_found", findings[0].Code)
}
