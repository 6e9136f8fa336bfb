package migstub_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/peertest"
)

// gcloud runs the cloud's own command line against a Cloud.
type gcloud struct {
	t    *testing.T
	path string
	env  []string
}

func newGcloud(t *testing.T, url string) *gcloud {
	t.Helper()
	return &gcloud{t: t, path: peertest.Program(t, "gcloud", "the stub was not tried by gcloud"), env: append(os.Environ(),
		"CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
		"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE="+url+"/compute/v1/",
		"CLOUDSDK_CONFIG="+t.TempDir(),
		"CLOUDSDK_CORE_PROJECT=p",
		"CLOUDSDK_CORE_DISABLE_PROMPTS=1",
		"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true",
		"CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=1",
	)}
}

func (g *gcloud) try(args ...string) (stdout, stderr string, err error) {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), g.path, append([]string{"compute"}, args...)...)
	cmd.Env = g.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// run is a command that succeeds without a warning, and its answer as JSON.
func (g *gcloud) run(into any, args ...string) {
	g.t.Helper()
	out, errs, err := g.try(append(args, "--format=json")...)
	require.NoError(g.t, err, errs)
	require.NotContains(g.t, errs, "WARNING")
	if into != nil {
		require.NoError(g.t, json.Unmarshal([]byte(out), into), out)
	}
}

func TestGcloud(t *testing.T) {
	c := migstub.New(migstub.Options{Seed: 1, Faults: migstub.Faults{Operations: migstub.OperationTimes{Running: 50 * time.Millisecond}}})
	c.AddGroup(migstub.GroupConfig{Name: "linux", Zone: zone, Size: 2, Autoscaler: &migstub.Autoscaler{Max: 9}})
	c.AddGroup(migstub.GroupConfig{Name: "windows", Region: region, Size: 3})
	c.AddGroup(migstub.GroupConfig{Name: "poor", Zone: zone, Faults: migstub.GroupFaults{
		Errors: []migstub.CreateError{{Code: migstub.QuotaExceeded}},
	}})
	g := newGcloud(t, serve(t, c))
	if out, errs, err := g.try("zones", "list", "--format=value(name)"); err != nil || !strings.Contains(out, zone) {
		peertest.Broken(t, "gcloud is installed but does not work: %v %s", err, errs)
	}
	managed := []string{"instance-groups", "managed"}
	do := func(into any, args ...string) { t.Helper(); g.run(into, append(managed, args...)...) }

	var group struct {
		TargetSize int
		Autoscaler struct{ Name string }
		Status     struct{ IsStable bool }
	}
	do(&group, "describe", "linux", "--zone", zone)
	require.Equal(t, 2, group.TargetSize)
	require.Equal(t, "linux", group.Autoscaler.Name)
	require.True(t, group.Status.IsStable)

	var groups []struct{ Name, Size, TargetSize any }
	do(&groups, "list")
	require.Len(t, groups, 3)

	do(nil, "resize", "linux", "--zone", zone, "--size", "4")
	require.Equal(t, 4, c.Live("linux"))
	c.SetSizeExternally("windows", 5)

	var list []struct{ Name, InstanceStatus, CurrentAction string }
	do(&list, "list-instances", "linux", "--zone", zone)
	require.Len(t, list, 4)
	require.Equal(t, "RUNNING", list[0].InstanceStatus)
	do(nil, "delete-instances", "linux", "--zone", zone, "--instances", list[0].Name+","+list[1].Name)
	require.Equal(t, 2, c.Live("linux"))
	do(&list, "list-instances", "windows", "--region", region)
	do(nil, "delete-instances", "windows", "--region", region, "--instances", list[0].Name)
	require.Equal(t, 4, c.Live("windows"))
	view, _ := c.Group("windows")
	require.Equal(t, 4, view.Target)

	was := c.Existing("linux")[0]
	do(nil, "recreate-instances", "linux", "--zone", zone, "--instances", was.Name)
	require.NotEqual(t, was.ID, c.Existing("linux")[0].ID)
	do(nil, "abandon-instances", "linux", "--zone", zone, "--instances", was.Name)
	require.Equal(t, 1, c.Live("linux"))

	c.SetSizeExternally("poor", 1)
	var failures []struct{ Error struct{ Code string } }
	do(&failures, "list-errors", "poor", "--zone", zone)
	require.Equal(t, "QUOTA_EXCEEDED", failures[0].Error.Code)

	// What is refused is told.
	_, errs, err := g.try(append(managed, "delete-instances", "linux", "--zone", zone, "--instances", "linux-none")...)
	require.Error(t, err)
	require.Contains(t, errs, "not a member")

	var instances []struct{ Name string }
	g.run(&instances, "instances", "list")
	require.Len(t, instances, 1+4+1, "the abandoned one too")
}

// The command of people and of other languages.
func TestMigstubd(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "migstubd")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./migstubd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	help, err := exec.CommandContext(t.Context(), binary, "--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(help), "--faults")
	out, err = exec.CommandContext(t.Context(), binary, "--faults", "absent.yaml").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "absent.yaml")

	port := peertest.FreePort(t)
	url := "http://127.0.0.1:" + itoa(port)
	cmd := exec.CommandContext(t.Context(), binary, "--faults", filepath.Join("testdata", "faults.yaml"), "--port", itoa(port))
	peertest.Start(t, cmd, func() error { return reachable(t, url) })
	require.NoError(t, reachable(t, url))
}
