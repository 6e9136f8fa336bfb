package ec2asg_test

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// startMoto runs an independent Auto Scaling API, or skips the test.
func startMoto(t *testing.T) (endpoint string) {
	t.Helper()
	program, err := exec.LookPath("moto_server")
	if err != nil {
		t.Skip("SKIPPED: moto_server is not installed, so ec2asg was not tested against anybody else's Auto Scaling API")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	server := exec.Command(program, "-H", "127.0.0.1", "-p", fmt.Sprint(port))
	require.NoError(t, server.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Wait()
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
	})
	endpoint = fmt.Sprintf("http://127.0.0.1:%d", port)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if answer, err := http.Post(endpoint+"/moto-api/reset", "", nil); err == nil {
			_ = answer.Body.Close()
			return endpoint
		}
		select {
		case <-ended:
			t.Skip("SKIPPED: moto_server is installed but does not run, so ec2asg was not tested against anybody else's Auto Scaling API")
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.FailNow(t, "moto_server does not answer")
	return ""
}

func TestAgainstMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: starts moto_server")
	}
	endpoint := startMoto(t)
	credentials(t)
	cfg, err := awsconfig.LoadDefaultConfig(t.Context(), awsconfig.WithRegion("us-east-1"))
	require.NoError(t, err)
	client := autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) { o.BaseEndpoint = aws.String(endpoint) })
	_, err = client.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: aws.String("lc"), ImageId: aws.String("ami-12c6146b"), InstanceType: aws.String("t3.micro"),
	})
	require.NoError(t, err)
	var names []string
	for i := range 60 { // more than one call
		names = append(names, fmt.Sprintf("group-%d", i))
		_, err = client.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(names[i]), LaunchConfigurationName: aws.String("lc"),
			MinSize: aws.Int32(0), MaxSize: aws.Int32(9), DesiredCapacity: aws.Int32(int32(i % 3)),
			AvailabilityZones: []string{"us-east-1a"}, NewInstancesProtectedFromScaleIn: aws.Bool(true),
		})
		require.NoError(t, err)
	}

	p := configured(t, endpoint, append(names, "absent")...)
	statuses, err := p.Status(t.Context(), append(names, "absent"))
	require.NoError(t, err)
	for i := range names {
		require.Equal(t, pluginsdk.GroupStatus{Group: names[i], Desired: i % 3, Max: 9}, statuses[i])
	}
	require.ErrorIs(t, statuses[60].Err, pluginsdk.ErrNotFound)

	list, err := p.ListInstances(t.Context(), "group-2")
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, in := range list {
		require.Regexp(t, "^i-", in.ID)
		require.Equal(t, pluginsdk.StateRunning, in.State)
		require.Equal(t, "us-east-1a", in.Zone)
		require.True(t, in.Protected)
	}
}
