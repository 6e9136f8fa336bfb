package asgstub

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// python runs a script of testdata, with credentials that open nothing.
func python(t *testing.T, script string, args ...string) []byte {
	t.Helper()
	path := peertest.Program(t, "python3", "the stand-in was not tried by boto3")
	if err := exec.CommandContext(t.Context(), path, "-c", "import boto3").Run(); err != nil {
		t.Skip("SKIPPED: python3 has no boto3: the stand-in was not tried by it")
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"testdata/" + script}, args...)...)
	cmd.Env = awsEnv(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	return out
}

func awsEnv(t *testing.T) []string {
	return append(os.Environ(),
		"AWS_ACCESS_KEY_ID=tester", "AWS_SECRET_ACCESS_KEY=secret", "AWS_DEFAULT_REGION="+DefaultRegion, "AWS_PAGER=",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "HOME="+t.TempDir(),
		"AWS_EC2_METADATA_DISABLED=true", "NO_PROXY=127.0.0.1")
}

// TestAnswersFitTheModels drives every operation with boto3 and holds the answers
// against the models of botocore.
func TestAnswersFitTheModels(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	c.AddQueue("events")
	c.AddGroup(GroupConfig{
		Name: "full", Max: 9, Desired: 4, SpotShare: 0.5, CapacityRebalance: true, InstanceRefreshInProgress: true,
		WarmPool:        &WarmPool{MinSize: 2, ReuseOnScaleIn: true},
		ScalingPolicies: []Policy{{Name: "cpu", Type: "TargetTrackingScaling", TargetValue: 50.5}, {Name: "one", ScalingAdjustment: 1}},
		Hooks:           []HookConfig{{Name: "up", Transition: Launching, NotificationMetadata: "x", RoleARN: "arn:aws:iam::123456789012:role/x", NotificationTargetARN: "arn:aws:sqs:us-east-1:123456789012:events"}},
	})
	c.AddGroup(GroupConfig{Name: "broken", Max: 9, Faults: &Faults{Launch: []LaunchFault{{Code: "InsufficientInstanceCapacity"}}}})
	at := time.Unix(1_772_366_400, 0)
	for i, v := range []float64{1, 3, 5} {
		c.SetMetric("Spillway", "Queue", map[string]string{"pool": "a"}, v, at.Add(time.Duration(i)*30*time.Second))
	}
	srv := httptest.NewServer(c)
	defer srv.Close()
	var got struct {
		Calls                int
		Operations, Problems []string
	}
	require.NoError(t, json.Unmarshal(python(t, "oracle.py", srv.URL), &got))
	require.Empty(t, got.Problems)
	known := 0
	for _, ops := range operations {
		known += len(ops)
	}
	require.Len(t, got.Operations, known, "every operation was checked: %v", got.Operations)
}

// TestSameAnswersAsMoto sends the same requests to the stand-in and to moto_server,
// where that does what the service does.
func TestSameAnswersAsMoto(t *testing.T) {
	t.Parallel()
	path := peertest.Program(t, "moto_server", "the stand-in was not compared with moto")
	moto := startMoto(t, path)
	srv := httptest.NewServer(New(Options{}))
	defer srv.Close()
	var got struct {
		Compared int
		Problems []string
	}
	require.NoError(t, json.Unmarshal(python(t, "differential.py", srv.URL, moto), &got))
	require.Empty(t, got.Problems)
	require.Greater(t, got.Compared, 25)
}

// TestAWSCLI is what a person would type.
func TestAWSCLI(t *testing.T) {
	t.Parallel()
	path := peertest.Program(t, "aws", "the stand-in was not tried by aws-cli")
	c := New(Options{})
	c.AddQueue("events")
	c.AddGroup(GroupConfig{Name: "ci", Max: 5})
	srv := httptest.NewServer(c)
	defer srv.Close()
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--endpoint-url", srv.URL, "--output", "text"}, args...)...)
		cmd.Env = awsEnv(t)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", "ci", "--desired-capacity", "2")
	require.NoError(t, err, out)
	out, err = run("autoscaling", "describe-auto-scaling-groups", "--query", "AutoScalingGroups[].[DesiredCapacity,length(Instances)]")
	require.NoError(t, err, out)
	require.Equal(t, "2\t2\n", out)
	out, err = run("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", "ci", "--desired-capacity", "6")
	require.Error(t, err)
	require.Contains(t, out, "(ValidationError) when calling the SetDesiredCapacity operation: New SetDesiredCapacity value 6 is above max value 5")
	out, err = run("cloudwatch", "get-metric-data", "--start-time", "2026-01-01T00:00:00Z", "--end-time", "2026-01-01T01:00:00Z", "--metric-data-queries",
		`[{"Id":"q","MetricStat":{"Metric":{"Namespace":"N","MetricName":"M"},"Period":60,"Stat":"Sum"}}]`, "--query", "MetricDataResults[].StatusCode")
	require.NoError(t, err, out)
	require.Equal(t, "Complete\n", out)
	require.Equal(t, "tester", c.Calls()[0].Who)
}
