package terraformtest_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/terraformtest"
)

var update = flag.Bool("update", false, "write the golden policies; look at the difference before you keep it")

// statement is one of a policy. Action and Resource are a text or a list in the
// language; the modules write lists.
type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string]string `json:",omitempty"`
}

type policy struct {
	Version   string
	Statement []statement
}

// forbidden are rights that nobody in Spillway has (T14, T15): to change groups, to end
// instances but by their group, to act as another role.
var forbidden = regexp.MustCompile(`(?i)^(autoscaling:(Update|Create|Delete|Put|Attach|Detach|Start|Suspend|Resume)|ec2:(Terminate|Run|Stop|Start|Create|Modify)|iam:|sts:)`)

var (
	reads = regexp.MustCompile(`^[a-z0-9-]+:(Describe|Get|List)[A-Za-z]+$`)
	whole = regexp.MustCompile(`^[a-z0-9-]+:[A-Z][A-Za-z]+$`)
)

// faults are what is wrong with a policy.
func faults(p policy) (found []string) {
	for _, s := range p.Statement {
		for _, action := range s.Action {
			switch {
			case !whole.MatchString(action):
				found = append(found, s.Sid+": a pattern of actions: "+action)
			case forbidden.MatchString(action):
				found = append(found, s.Sid+": forbidden: "+action)
			case slices.Contains(s.Resource, "*") && !reads.MatchString(action):
				found = append(found, s.Sid+": a write to everything: "+action)
			case strings.HasPrefix(action, "autoscaling:") && !reads.MatchString(action) && s.Condition["StringEquals"]["autoscaling:ResourceTag/spillway-owner"] == "":
				found = append(found, s.Sid+": a write without the owner's tag: "+action)
			}
		}
	}
	return found
}

func policies(t *testing.T, s terraformtest.State) map[string]policy {
	t.Helper()
	all := map[string]policy{}
	for address, values := range s.Resources {
		if !strings.HasPrefix(address, "aws_iam_role_policy.") {
			continue
		}
		text, ok := values["policy"].(string)
		require.True(t, ok, address)
		var p policy
		require.NoError(t, json.Unmarshal([]byte(text), &p), "%s", text)
		all[strings.TrimPrefix(address, "aws_iam_role_policy.")] = p
	}
	return all
}

// The instances' role has no right on any group, and the control plane's only those that
// its calls need.
func TestPolicies(t *testing.T) {
	states := pools(t)
	states["control-plane"] = controlPlaneState(t)
	for name, s := range states {
		for of, p := range policies(t, s) {
			require.Empty(t, faults(p), "%s %s", name, of)
			golden(t, name+"-"+of+".json", p)
			for _, st := range p.Statement {
				if name != "control-plane" {
					require.NotContains(t, strings.Join(st.Action, " "), "autoscaling:", "T14: an instance must not scale its group")
				}
			}
		}
	}
	// The check must be able to fail.
	for _, bad := range []statement{
		{Action: []string{"autoscaling:*"}},
		{Action: []string{"autoscaling:UpdateAutoScalingGroup"}},
		{Action: []string{"ec2:TerminateInstances"}},
		{Action: []string{"iam:PassRole"}},
		{Action: []string{"sqs:DeleteMessage"}, Resource: []string{"*"}},
		{Action: []string{"autoscaling:SetDesiredCapacity"}, Resource: []string{"arn"}},
	} {
		require.Len(t, faults(policy{Statement: []statement{bad}}), 1, "%v", bad)
	}
}

// What the module gives the plugin is what the documentation says that it needs.
func TestPolicyIsTheDocumentedOne(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws.md"))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(page), "```json\n{\"Version\"")
	block, _, _ := strings.Cut(after, "```")
	var said struct{ Statement []struct{ Action []string } }
	require.NoError(t, json.Unmarshal([]byte(`{"Version"`+block), &said))
	text, err := os.ReadFile(filepath.Join("testdata", "control-plane-scale.json"))
	require.NoError(t, err)
	var given policy
	require.NoError(t, json.Unmarshal(text, &given))
	require.Len(t, given.Statement, len(said.Statement))
	for i := range given.Statement {
		require.ElementsMatch(t, said.Statement[i].Action, given.Statement[i].Action)
	}
}

func golden(t *testing.T, name string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	require.NoError(t, err)
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "%s: run with -update and look at the difference", path)
}

// C33, C31, C27: what no account can show of the modules is in their text.
func TestC33_ModulesLeaveDesiredAlone(t *testing.T) {
	for _, file := range []string{"aws-runner-pool/group.tf"} {
		text, err := os.ReadFile(filepath.Join(source, "modules", file))
		require.NoError(t, err)
		require.Contains(t, string(text), "ignore_changes = [desired_capacity]")
		require.NotRegexp(t, `ignore_changes\s*=\s*\[[^\]]*(min_size|max_size)`, string(text))
	}
	files, err := filepath.Glob(filepath.Join(source, "modules", "aws-runner-pool", "*.tf"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `resource "aws_autoscaling_(policy|schedule)"|instance_refresh \{|resource "aws_key_pair"|key_name\s*=`, string(text), file)
	}
}
