package terraformtest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// within bounds every wait [time]; poll is how often a test looks again.
const (
	within = 2 * time.Minute
	poll   = 200 * time.Millisecond
)

// From nothing to a fleet that scales on its queue, and back: apply, jobs, a plan that
// has nothing to change though the group's number did, and destroy.
func TestAWSPoolFromNothingOnMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform, moto_server and a control plane")
	}
	m := startMoto(t)
	w := aws(t, "AWS_ENDPOINT_URL="+m.endpoint, "AWS_ACCESS_KEY_ID=terraform", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true")
	text, err := os.ReadFile(filepath.Join("testdata", "moto", "main.tf"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(w.Path("e2e"), 0o700))
	require.NoError(t, os.WriteFile(w.Path("e2e", "main.tf"), text, 0o600))
	bin, tokens := build(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tokens, "linux"), []byte("a-token-of-a-test"), 0o600))
	inputs := []string{
		"-no-color", "-input=false", "-var=endpoint=" + m.endpoint, "-var=token_dir=" + tokens,
		"-var=redis=" + storetest.StartServer(t).Addr, "-var=plugin_dir=" + bin, "-var=plugin_sha256=" + sum(t, filepath.Join(bin, "spillway-provider-ec2asg")),
	}
	run := func(args ...string) string { return w.Run("e2e", append(args, inputs...)...) }
	w.Init("e2e")
	run("apply", "-auto-approve")
	require.Zero(t, m.group(t).Desired)

	file := filepath.Join(tokens, "spillway.yaml")
	yaml := w.Run("e2e", "output", "-raw", "yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(yaml, `"plugin":`, "\"env\": [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]\n    \"plugin\":", 1)), 0o600))
	c := startControlPlane(t, bin, file)
	out, err := c.command("controlplane", "validate", "--online", "--strict", file).CombinedOutput()
	require.NoError(t, err, "the plugin has something to say of the module's group:\n%s", out)

	release := filepath.Join(tokens, "release")
	c.submit(t, 2, fmt.Sprintf("until [ -e %s ]; do sleep 0.1; done", release))
	require.Eventually(t, func() bool { return len(m.group(t).Instances) == 2 }, within, poll, "%s", c.log)
	for _, in := range m.group(t).Instances {
		require.True(t, in.Protected, "of scale-in")
		agent := c.command("spillway-agent", "--router", c.runners, "--plaintext", "--token-file", filepath.Join(tokens, "linux"), "--instance-id", in.ID, "--work-dir", t.TempDir())
		require.NoError(t, agent.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = agent.Wait()
		}()
		t.Cleanup(func() {
			_ = agent.Process.Kill()
			<-ended
		})
	}
	require.Eventually(t, func() bool { return c.running(t) == 2 }, within, poll, "%s", c.log)

	run("plan", "-out=plan")
	require.Equal(t, motoDeviates, changes(t, w.Run("e2e", "show", "-json", "plan")), "a plan changes something that Spillway has done, or moto has got better")
	run("apply", "-auto-approve")
	require.Equal(t, 2, m.group(t).Desired, "C33: an apply has reset desired")

	// C31: the group's own maximum is Terraform's.
	run("apply", "-auto-approve", "-var=max_runners=7")
	require.Equal(t, 7, m.group(t).Max)
	require.Equal(t, 2, m.group(t).Desired)

	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.Eventually(t, func() bool { g := m.group(t); return len(g.Instances) == 0 && g.Desired == 0 }, within, poll, "%s", c.log)
	c.stop(t)
	run("destroy", "-auto-approve")
	require.Empty(t, m.groups(t))
}

// motoDeviates are the attributes that a plan wants to change whatever was done before:
// moto answers with a target and a role of its own for every hook.
var motoDeviates = []string{
	"module.linux.aws_autoscaling_lifecycle_hook.terminating notification_target_arn",
	"module.linux.aws_autoscaling_lifecycle_hook.terminating role_arn",
}

// changes are the attributes that a plan changes.
// https://developer.hashicorp.com/terraform/internals/json-format#change-representation
func changes(t *testing.T, shown string) (found []string) {
	t.Helper()
	var plan struct {
		Resources []struct {
			Address string `json:"address"`
			Change  struct {
				Actions       []string `json:"actions"`
				Before, After map[string]any
			} `json:"change"`
		} `json:"resource_changes"`
	}
	require.NoError(t, json.Unmarshal([]byte(shown), &plan))
	require.NotEmpty(t, plan.Resources)
	for _, r := range plan.Resources {
		if r.Change.Actions[0] == "no-op" || r.Change.Actions[0] == "read" {
			continue
		}
		require.Equal(t, []string{"update"}, r.Change.Actions, r.Address)
		for name, before := range r.Change.Before {
			if !reflect.DeepEqual(before, r.Change.After[name]) {
				found = append(found, r.Address+" "+name)
			}
		}
	}
	slices.Sort(found)
	return found
}

// moto is somebody else's AWS.
type moto struct{ endpoint string }

func startMoto(t *testing.T) moto {
	t.Helper()
	program := peertest.Program(t, "moto_server", "no module was applied")
	port := peertest.FreePort(t)
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", port)
	peertest.Start(t, exec.Command(program, "-H", "127.0.0.1", "-p", fmt.Sprint(port)), func() error {
		answer, err := http.Post(endpoint+"/moto-api/reset", "", nil)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	return moto{endpoint}
}

type group struct {
	Desired   int `xml:"DesiredCapacity"`
	Max       int `xml:"MaxSize"`
	Instances []struct {
		ID        string `xml:"InstanceId"`
		Protected bool   `xml:"ProtectedFromScaleIn"`
	} `xml:"Instances>member"`
}

// groups asks without a client of AWS: those are the plugins' alone. The service and
// region are in the name of a key; nobody looks at the signature.
func (m moto) groups(t *testing.T) []group {
	t.Helper()
	body := url.Values{"Action": {"DescribeAutoScalingGroups"}, "Version": {"2011-01-01"}}.Encode()
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.endpoint, strings.NewReader(body))
	require.NoError(t, err)
	ask.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	ask.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/autoscaling/aws4_request, SignedHeaders=host, Signature=0")
	answer, err := http.DefaultClient.Do(ask)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	require.NoError(t, err)
	var all struct {
		Groups []group `xml:"DescribeAutoScalingGroupsResult>AutoScalingGroups>member"`
	}
	require.NoError(t, xml.Unmarshal(text, &all), "%s", text)
	return all.Groups
}

func (m moto) group(t *testing.T) group {
	t.Helper()
	all := m.groups(t)
	require.Len(t, all, 1)
	return all[0]
}

// build makes the binaries, each under the name that it has when it is installed.
func build(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for name, folder := range map[string]string{
		"controlplane": "controlplane", "spillwayctl": "spillwayctl", "spillway-agent": "agent", "spillway-provider-ec2asg": "plugins/ec2asg",
	} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(bin, name), "github.com/spillway-ci/spillway/cmd/"+folder).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return bin
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// log is what a process prints, readable while it runs.
type log struct {
	mu struct {
		sync.Mutex
		text bytes.Buffer
	}
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.text.String()
}

// controlPlane is a process that serves the configuration which Terraform made.
type controlPlane struct {
	bin, runners, api string
	log               *log
	process           *exec.Cmd
	ended             chan error
}

var serving = regexp.MustCompile(`msg=serving .*`)

func startControlPlane(t *testing.T, bin, file string) *controlPlane {
	t.Helper()
	c := &controlPlane{bin: bin, log: &log{}, ended: make(chan error, 1)}
	c.process = c.command("controlplane", "serve", "--config", file)
	c.process.Stdout, c.process.Stderr = c.log, c.log
	require.NoError(t, c.process.Start())
	go func() { c.ended <- c.process.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		_ = c.process.Process.Kill()
		for range c.ended { // until it is closed
		}
	})
	require.Eventually(t, func() bool { return serving.MatchString(c.log.String()) }, within, poll, "%s", c.log)
	line := serving.FindString(c.log.String())
	c.runners, c.api = word(line, "runners"), word(line, "api")
	require.NotEmpty(t, c.runners, line)
	require.NotEmpty(t, c.api, line)
	return c
}

// word is the value of key=value in a line of the log.
func word(line, key string) string {
	_, after, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(after, " ")
	return value
}

func (c *controlPlane) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=spillway", "AWS_SECRET_ACCESS_KEY=secret")
	return cmd
}

func (c *controlPlane) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.command("spillwayctl", append([]string{"--addr", c.api}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func (c *controlPlane) submit(t *testing.T, jobs int, script string) {
	t.Helper()
	for i := range jobs {
		c.ctl(t, "jobs", "submit", "--id", fmt.Sprintf("job-%d", i), "--tag", "linux", "--script", script)
	}
}

func (c *controlPlane) running(t *testing.T) int {
	t.Helper()
	return strings.Count(c.ctl(t, "jobs", "list", "--state", "running", "-o", "json"), `"id"`)
}

// stop ends it in order.
func (c *controlPlane) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.process.Process.Signal(os.Interrupt))
	require.NoError(t, <-c.ended, "%s", c.log)
}
