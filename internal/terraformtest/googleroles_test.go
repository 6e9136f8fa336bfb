package terraformtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// right is a custom role and where the account has it.
type right struct {
	Permissions []string
	Projects    []string `json:",omitempty"`
	Secrets     []string `json:",omitempty"`
}

// oneSecret is what is meant by a secret that Terraform makes: its id is made up by the
// mock.
const oneSecret = "one that the module makes"

// rights are the roles of a state, by what they are for.
func rights(t *testing.T, s terraformtest.State) map[string]*right {
	t.Helper()
	all, byID := map[string]*right{}, map[string]*right{}
	for address, values := range s.Resources {
		if _, key, ok := strings.Cut(address, "google_project_iam_custom_role."); ok {
			_, key, _ = strings.Cut(strings.TrimSuffix(key, `"]`), `["`)
			r := &right{Permissions: texts(t, values["permissions"])}
			slices.Sort(r.Permissions)
			all[key], byID[values["id"].(string)] = r, r
		}
	}
	require.Len(t, byID, len(all), "two roles of one id")
	for address, values := range s.Resources {
		if !strings.Contains(address, "iam_member") {
			continue
		}
		role, _ := values["role"].(string)
		r := byID[role]
		require.NotNil(t, r, "%s: a role that is not the module's: %s", address, role)
		require.True(t, strings.HasPrefix(values["member"].(string), "serviceAccount:"), address)
		if secret, ok := values["secret_id"].(string); ok {
			if !strings.HasPrefix(secret, "projects/") {
				secret = oneSecret
			}
			r.Secrets = append(r.Secrets, secret)
			continue
		}
		r.Projects = append(r.Projects, values["project"].(string))
	}
	for _, r := range all {
		slices.Sort(r.Secrets)
	}
	return all
}

func texts(t *testing.T, list any) (found []string) {
	t.Helper()
	for _, v := range list.([]any) {
		found = append(found, v.(string))
	}
	require.NotEmpty(t, found)
	return found
}

var (
	permission = regexp.MustCompile(`^[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+$`) // in full: no pattern
	harmless   = regexp.MustCompile(`^(compute|logging)\.[a-zA-Z]+\.(get|list)$`)
)

// changing are the permissions that change something and that somebody needs. None to
// change templates, autoscalers or IAM, to make or end instances but by their group
// (T14, T15), or to act as another account.
var changing = []string{"compute.instanceGroupManagers.update", "logging.logEntries.create"}

// wrong is what is wrong with a right.
func wrong(r right) (found []string) {
	for _, p := range r.Permissions {
		switch {
		case !permission.MatchString(p):
			found = append(found, "a pattern: "+p)
		case p == "secretmanager.versions.access":
			if len(r.Projects) > 0 {
				found = append(found, "every secret of a project")
			}
		case !harmless.MatchString(p) && !slices.Contains(changing, p):
			found = append(found, "forbidden: "+p)
		case len(r.Secrets) > 0:
			found = append(found, "on a secret, where it is nothing: "+p)
		}
	}
	return found
}

func roles(t *testing.T, pools map[string]terraformtest.State, replica terraformtest.State) {
	require.Len(t, pools, 3)
	for mode, s := range pools {
		given := rights(t, s)
		for key, r := range given {
			require.Empty(t, wrong(*r), "%s %s", mode, key)
			require.NotContains(t, strings.Join(r.Permissions, " "), "compute.", "T14: an instance must not scale its group, or see others")
		}
		golden(t, "google-runner.json", given) // in each mode the same
	}
	given := rights(t, replica)
	for key, r := range given {
		require.Empty(t, wrong(*r), key)
	}
	golden(t, "google-control-plane.json", given)

	// What the plugin gets is what the documentation says that it needs.
	require.Equal(t, documented(t), given["scale"].Permissions)

	// The checks must be able to fail.
	for _, bad := range []right{
		{Permissions: []string{"compute.*"}},
		{Permissions: []string{"compute.instances.delete"}},
		{Permissions: []string{"compute.instanceGroupManagers.delete"}},
		{Permissions: []string{"compute.autoscalers.update"}},
		{Permissions: []string{"iam.serviceAccounts.actAs"}},
		{Permissions: []string{"secretmanager.versions.access"}, Projects: []string{"my-project"}},
		{Permissions: []string{"compute.instances.list"}, Secrets: []string{"projects/p/secrets/s"}},
	} {
		require.Len(t, wrong(bad), 1, "%v", bad)
	}
}

// documented is the role of docs/gcp.md, which the plugin's own list must agree with.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "gcp.md"))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(page), "```yaml\ntitle: Spillway\n")
	block, _, _ := strings.Cut(after, "```")
	var role struct {
		Permissions []string `yaml:"includedPermissions"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(block), &role))
	slices.Sort(role.Permissions)
	code, err := os.ReadFile(filepath.Join("..", "..", "providers", "gcemig", "doc.go"))
	require.NoError(t, err)
	var ofPlugin []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(compute\.\S+)`).FindAllStringSubmatch(string(code), -1) {
		ofPlugin = append(ofPlugin, m[1])
	}
	slices.Sort(ofPlugin)
	require.Equal(t, ofPlugin, role.Permissions)
	return role.Permissions
}
