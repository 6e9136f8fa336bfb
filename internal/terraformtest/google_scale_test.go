package terraformtest_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/terraformtest"
	"github.com/spillway-ci/spillway/store/storetest"
)

const (
	googleProject = "my-project"
	googleGroup   = "spillway-linux"
	gcemig        = "spillway-provider-gcemig"
)

// The group that the module asks for, as our stand-in for Google has it: the plugin has
// nothing to say of it, and a control plane with the configuration that Terraform wrote
// scales it from its queue, and back.
func TestGooglePoolScalesOnTheStandIn(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform and a control plane")
	}
	cloud := migstub.New(migstub.Options{Project: googleProject})
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	bin, tokens := build(t), t.TempDir()
	plugin := filepath.Join(bin, gcemig)
	out, err := exec.Command("go", "build", "-o", plugin, "github.com/spillway-ci/spillway/cmd/plugins/gcemig").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(filepath.Join(tokens, "linux"), []byte("a-token-of-a-test"), 0o600))

	state := googlePool(t, map[string]string{
		"endpoint": server.URL, "token_dir": tokens, "redis": storetest.StartServer(t).Addr, "plugin_dir": bin, "plugin_sha256": sum(t, plugin),
	})
	cloud.AddGroup(groupOf(t, state))
	file := filepath.Join(tokens, "spillway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(state.Outputs["yaml"].(string)), 0o600))
	c := startControlPlane(t, bin, file)
	out, err = c.command("controlplane", "validate", "--online", "--strict", file).CombinedOutput()
	require.NoError(t, err, "the plugin has something to say of the module's group:\n%s", out)

	release := filepath.Join(tokens, "release")
	c.submit(t, 2, fmt.Sprintf("until [ -e %s ]; do sleep 0.1; done", release))
	require.Eventually(t, func() bool { return len(cloud.Existing(googleGroup)) == 2 }, within, poll, "%s", c.log)
	for _, in := range cloud.Existing(googleGroup) {
		startAgent(t, c, in.ID, filepath.Join(tokens, "linux"))
	}
	require.Eventually(t, func() bool { return c.running(t) == 2 }, within, poll, "%s", c.log)
	cloud.ResetCalls()
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.Eventually(t, func() bool {
		g, ok := cloud.Group(googleGroup)
		return ok && g.Target == 0 && g.Live == 0
	}, within, poll, "%s", c.log)
	require.Zero(t, cloud.CountOf("resize"), "a resize lets the group choose whom it ends")
	c.stop(t)
}

func startAgent(t *testing.T, c *controlPlane, id, token string) {
	t.Helper()
	agent := c.command("spillway-agent", "--router", c.runners, "--plaintext", "--token-file", token, "--instance-id", id, "--work-dir", t.TempDir())
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

// googlePool is what Terraform would make of testdata/google.
func googlePool(t *testing.T, variables map[string]string) terraformtest.State {
	t.Helper()
	var env []string
	for name, value := range variables {
		env = append(env, "TF_VAR_"+name+"="+value)
	}
	w := terraformtest.New(t, source, terraformtest.GoogleMirror(t, "googleschema"), env...)
	addTestdata(t, w, "google", "main.tf", "tests/pool.tftest.hcl")
	w.Init("google")
	return w.States("google", "tests/pool.tftest.hcl")["pool"]
}

// addTestdata puts a folder of testdata beside the modules.
func addTestdata(t *testing.T, w *terraformtest.Workspace, folder string, files ...string) {
	t.Helper()
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join("testdata", folder, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(w.Path(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(w.Path(folder, name), text, 0o600))
	}
}

// groupOf is the group as Google would make it of the module's arguments.
func groupOf(t *testing.T, s terraformtest.State) migstub.GroupConfig {
	t.Helper()
	group := s.Resources["module.linux.google_compute_region_instance_group_manager.runners"]
	template := s.Resources["module.linux.google_compute_region_instance_template.runner"]
	require.NotNil(t, group)
	require.NotNil(t, template)
	update, lifecycle, scheduling := block(t, group, "update_policy"), block(t, group, "instance_lifecycle_policy"), block(t, template, "scheduling")
	return migstub.GroupConfig{
		Name:             text(t, group, "name"),
		Region:           text(t, group, "region"),
		Zones:            texts(t, group["distribution_policy_zones"]),
		BaseInstanceName: text(t, group, "base_instance_name"),
		Paginated:        text(t, group, "list_managed_instances_results") == "PAGINATED",
		TargetShape:      migstub.TargetShape(text(t, group, "distribution_policy_target_shape")),
		Labels:           labels(t, block(t, group, "all_instances_config")),
		UpdatePolicy: migstub.UpdatePolicy{
			Type: text(t, update, "type"), MinimalAction: text(t, update, "minimal_action"),
			InstanceRedistributionType: text(t, update, "instance_redistribution_type"),
		},
		Lifecycle: migstub.LifecycleRules{
			DefaultActionOnFailure: text(t, lifecycle, "default_action_on_failure"), ForceUpdateOnRepair: text(t, lifecycle, "force_update_on_repair"),
		},
		Template: migstub.Template{
			MachineType: text(t, template, "machine_type"), Labels: labels(t, template),
			Spot: text(t, scheduling, "provisioning_model") == "SPOT", OnHostMaintenance: text(t, scheduling, "on_host_maintenance"),
		},
	}
}

// block is the one block of that name.
func block(t *testing.T, values map[string]any, name string) map[string]any {
	t.Helper()
	list, ok := values[name].([]any)
	require.True(t, ok && len(list) == 1, name)
	inner, ok := list[0].(map[string]any)
	require.True(t, ok, name)
	return inner
}

func text(t *testing.T, values map[string]any, name string) string {
	t.Helper()
	value, ok := values[name].(string)
	require.True(t, ok, name)
	return value
}

func labels(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, value := range values["labels"].(map[string]any) {
		found[name] = value.(string)
	}
	require.Contains(t, found, "spillway-owner")
	return found
}
