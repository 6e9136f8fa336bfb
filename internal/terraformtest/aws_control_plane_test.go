package terraformtest_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/peertest"
)

// The control plane from nothing, and back: apply, what AWS then has, a plan that has
// nothing to change, a replica's boot with the configuration and secret that it reads
// there, and destroy.
func TestAWSControlPlaneFromNothingOnMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform and moto_server")
	}
	cache, endpoint := completeMoto(t, startMoto(t))
	env := []string{"AWS_ENDPOINT_URL=" + endpoint, "AWS_ACCESS_KEY_ID=terraform", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true"}
	w := aws(t, env...)
	text, err := os.ReadFile(filepath.Join("testdata", "aws-control-plane", "main.tf"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(w.Path("e2e"), 0o700))
	require.NoError(t, os.WriteFile(w.Path("e2e", "main.tf"), text, 0o600))
	run := func(args ...string) string { return w.Run("e2e", append(args, "-no-color", "-input=false")...) }
	w.Init("e2e")
	run("apply", "-auto-approve")
	require.Empty(t, cache.failures())
	require.Equal(t, map[string]string{"maxmemory-policy": "noeviction"}, cache.parameters("spillway-redis"))

	run("plan", "-out=plan")
	require.Equal(t, motoForgets, wanted(t, w.Run("e2e", "show", "-json", "plan")), "a second plan has something to change, or moto has got better")

	script := w.Run("e2e", "output", "-raw", "user_data")
	c := client{t, peertest.Program(t, "aws", "what moto has was not looked at"), append(env, "AWS_DEFAULT_REGION=us-east-1", "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())}
	requireReplicas(c, script)
	requireRedis(c)
	requireRights(c)
	t.Run("boot", func(t *testing.T) { bootAWSReplica(t, script, c) })

	run("destroy", "-auto-approve")
	require.Empty(t, replicaGroups(c))
	groups, subnets := cache.ended()
	require.Zero(t, groups)
	require.Equal(t, []string{"spillway-redis"}, subnets)
}

// motoForgets are the attributes, by resource type, that a second plan wants to change
// because moto does not say of them what it was told: descriptions of rules between
// groups, their group without the account, and most of a replication group.
var motoForgets = []string{
	"aws_elasticache_replication_group at_rest_encryption_enabled",
	"aws_elasticache_replication_group num_cache_clusters",
	"aws_elasticache_replication_group security_group_ids",
	"aws_vpc_security_group_egress_rule description",
	"aws_vpc_security_group_egress_rule referenced_security_group_id",
	"aws_vpc_security_group_ingress_rule description",
	"aws_vpc_security_group_ingress_rule referenced_security_group_id",
}

// wanted are the types and attributes to which a plan gives another value that it knows.
// https://developer.hashicorp.com/terraform/internals/json-format#change-representation
func wanted(t *testing.T, shown string) (found []string) {
	t.Helper()
	var plan struct {
		Resources []struct {
			Address, Type string
			Change        struct {
				Actions       []string
				Before, After map[string]any
			}
		} `json:"resource_changes"`
	}
	require.NoError(t, json.Unmarshal([]byte(shown), &plan))
	require.NotEmpty(t, plan.Resources)
	for _, r := range plan.Resources {
		require.NotNil(t, r.Change.Before, "%s is to be made, again", r.Address)
		require.NotNil(t, r.Change.After, "%s is to be removed", r.Address)
		for name, after := range r.Change.After {
			if after != nil && !reflect.DeepEqual(r.Change.Before[name], after) {
				found = append(found, r.Type+" "+name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// client is AWS's own, which asks moto.
type client struct {
	t       *testing.T
	program string
	env     []string
}

// ask reads the answer to a command into what it points to.
func (c client) ask(answer any, words ...string) {
	c.t.Helper()
	cmd := exec.Command(c.program, append(words, "--output", "json")...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	require.NoError(c.t, json.Unmarshal(out, answer), "%s", out)
}

type replicaGroup struct {
	MinSize, MaxSize, DesiredCapacity int
	TargetGroupARNs                   []string
	Instances                         []struct{ InstanceID string }
}

func replicaGroups(c client) []replicaGroup {
	c.t.Helper()
	var groups struct{ AutoScalingGroups []replicaGroup }
	c.ask(&groups, "autoscaling", "describe-auto-scaling-groups")
	return groups.AutoScalingGroups
}

// requireReplicas holds the group, its template and its load balancer to the README.
func requireReplicas(c client, script string) {
	c.t.Helper()
	groups := replicaGroups(c)
	require.Len(c.t, groups, 1)
	require.Len(c.t, groups[0].Instances, 2)
	require.Len(c.t, groups[0].TargetGroupARNs, 4, "one for each port")
	var templates struct {
		Versions []struct {
			Data struct {
				UserData        string
				MetadataOptions struct {
					Tokens   string `json:"HttpTokens"`
					HopLimit int    `json:"HttpPutResponseHopLimit"`
				}
			} `json:"LaunchTemplateData"`
		} `json:"LaunchTemplateVersions"`
	}
	c.ask(&templates, "ec2", "describe-launch-template-versions", "--launch-template-name", "spillway-control-plane")
	require.Len(c.t, templates.Versions, 1)
	data := templates.Versions[0].Data
	require.Equal(c.t, "required", data.MetadataOptions.Tokens)
	require.Equal(c.t, 1, data.MetadataOptions.HopLimit)
	given, err := base64.StdEncoding.DecodeString(data.UserData)
	require.NoError(c.t, err)
	require.Equal(c.t, script, string(given))
	var balancers struct {
		LoadBalancers []struct{ Type, Scheme string }
	}
	c.ask(&balancers, "elbv2", "describe-load-balancers")
	require.Equal(c.t, []struct{ Type, Scheme string }{{"network", "internal"}}, balancers.LoadBalancers)
}

func requireRedis(c client) {
	c.t.Helper()
	type redis struct {
		TransitEncryptionEnabled, AuthTokenEnabled bool
		AutomaticFailover, MultiAZ                 string
	}
	var all struct{ ReplicationGroups []redis }
	c.ask(&all, "elasticache", "describe-replication-groups")
	require.Equal(c.t, []redis{{true, true, "enabled", "enabled"}}, all.ReplicationGroups)
}

// requireRights reads the policies back (T15), and that there are no others.
func requireRights(c client) {
	c.t.Helper()
	const role = "spillway-control-plane-us-east-1"
	var names struct{ PolicyNames []string }
	c.ask(&names, "iam", "list-role-policies", "--role-name", role)
	require.ElementsMatch(c.t, []string{"replica", "scale"}, names.PolicyNames)
	var attached struct{ AttachedPolicies []any }
	c.ask(&attached, "iam", "list-attached-role-policies", "--role-name", role)
	require.Empty(c.t, attached.AttachedPolicies)
	for _, name := range names.PolicyNames {
		var document struct{ PolicyDocument policy }
		c.ask(&document, "iam", "get-role-policy", "--role-name", role, "--policy-name", name)
		require.NotEmpty(c.t, document.PolicyDocument.Statement)
		require.Empty(c.t, faults(document.PolicyDocument))
	}
}

// T15 holds whatever the variables are: with a key of one's own, another owner, no queue.
// And what is kept as the configuration is one.
func TestT15_PoliciesOfEveryControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform")
	}
	w := aws(t)
	const folder = "modules/aws-control-plane"
	w.Init(folder)
	states := w.States(folder, "tests/control_plane.tftest.hcl")
	for _, run := range []string{"control_plane", "replicas_reach_each_other", "own_key_and_no_queue"} {
		for name, p := range policies(t, states[run]) {
			require.Empty(t, faults(p), "%s %s", run, name)
		}
		text, ok := states[run].Resources["aws_ssm_parameter.config"]["value"].(string)
		require.True(t, ok, run)
		_, err := config.Parse(run, []byte(text))
		require.NoError(t, err, "what the module makes of a configuration is none:\n%s", text)
	}
	s := states["own_key_and_no_queue"]
	given := policies(t, s)
	scale := statementNamed(t, given, "Scale")
	require.Equal(t, "ci", scale.Condition["StringEquals"]["autoscaling:ResourceTag/spillway-owner"])
	require.Equal(t, []string{"arn:aws:autoscaling:eu-central-1:111122223333:autoScalingGroup:*:autoScalingGroupName/ci-linux"}, scale.Resource, "its own groups, by their names")
	require.Equal(t, statement{
		Sid: "DecryptSecret", Effect: "Allow", Action: []string{"kms:Decrypt"}, Resource: []string{"arn:aws:kms:eu-central-1:111122223333:key/a"},
		Condition: map[string]map[string]string{"StringEquals": {"kms:ViaService": "secretsmanager.eu-central-1.amazonaws.com"}},
	}, statementNamed(t, given, "DecryptSecret"))
	for _, p := range given {
		require.False(t, slices.ContainsFunc(p.Statement, func(s statement) bool { return s.Sid == "Notices" }), "no queue, no right")
	}
}

func statementNamed(t *testing.T, all map[string]policy, sid string) statement {
	t.Helper()
	for _, p := range all {
		for _, s := range p.Statement {
			if s.Sid == sid {
				return s
			}
		}
	}
	t.Fatalf("no policy has a statement %s", sid)
	return statement{}
}

// requireValidConfiguration asks the real control plane, and returns what it says.
func requireValidConfiguration(t *testing.T, file string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "controlplane")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/spillway-ci/spillway/cmd/controlplane").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(bin, "validate", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
