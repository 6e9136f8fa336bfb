package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// Whoever types the page's commands has a group as the page's table wants it, as far as
// an emulator of AWS can tell.
func TestAGroupIsMadeReadyOnAWS(t *testing.T) {
	if !*everything {
		t.Skip("SKIPPED, without -everything: the commands for a group on AWS were not run")
	}
	program := peertest.Program(t, "aws", "the commands for a group on AWS were not run")
	server := peertest.Program(t, "moto_server", "the commands for a group on AWS were not run")
	s := newStage(t)
	port := peertest.FreePort(t)
	at := fmt.Sprintf("http://127.0.0.1:%d", port)
	peertest.Start(t, exec.Command(server, "-H", "127.0.0.1", "-p", fmt.Sprint(port)), func() error {
		answer, err := http.Get(at + "/moto-api/data.json") //nolint:noctx // of a test, on loopback
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
	s.env = append(s.env, "AWS_ENDPOINT_URL="+at, "AWS_ACCESS_KEY_ID=somebody", "AWS_SECRET_ACCESS_KEY=something", "AWS_DEFAULT_REGION=eu-central-1", "AWS_PAGER=")
	s.run(program + ` autoscaling create-launch-configuration --launch-configuration-name plain --image-id ami-0123456789abcdef0 --instance-type m5.large
` + program + ` autoscaling create-auto-scaling-group --auto-scaling-group-name ci-linux --launch-configuration-name plain --min-size 1 --max-size 2 --availability-zones eu-central-1a`)
	found := 0
	for _, block := range blocks(read(t, "aws.md"), "sh") {
		if strings.HasPrefix(block, "aws autoscaling") {
			s.run(block)
			found++
		}
	}
	require.Equal(t, 1, found)

	var groups struct {
		AutoScalingGroups []struct {
			MinSize, MaxSize                 int
			NewInstancesProtectedFromScaleIn bool
			HealthCheckType                  string
			SuspendedProcesses               []struct{ ProcessName string }
			Tags                             []struct {
				Key, Value        string
				PropagateAtLaunch bool
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.run("aws autoscaling describe-auto-scaling-groups --output json")), &groups))
	require.Len(t, groups.AutoScalingGroups, 1)
	g := groups.AutoScalingGroups[0]
	require.Equal(t, []int{0, 20}, []int{g.MinSize, g.MaxSize})
	require.True(t, g.NewInstancesProtectedFromScaleIn)
	require.Equal(t, "EC2", g.HealthCheckType)
	require.Equal(t, "AZRebalance", g.SuspendedProcesses[0].ProcessName)
	require.Equal(t, "spillway-owner ci-production false", fmt.Sprint(g.Tags[0].Key, " ", g.Tags[0].Value, " ", g.Tags[0].PropagateAtLaunch))
	require.Contains(t, s.run("aws autoscaling describe-lifecycle-hooks --auto-scaling-group-name ci-linux --output json"), "autoscaling:EC2_INSTANCE_TERMINATING")
}
