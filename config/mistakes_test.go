package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

func TestTenMistakesAreTenProblems(t *testing.T) {
	_, err := config.Parse("spillway.yaml", []byte(`tick: 5
listen:
  runners: 0.0.0.0:7700
providers:
  aws: {plugin: ./ec2asg, sha256: abc}
pools:
  - name: linux
    capability: {tags: [docker]}
    provider: aws
    polices: {max: 3}
  - name: linux
    capability:
      tags: []
    provider: asw
    capacity_per_instance: "2"
    policy:
      min: 7
      max: 0
      idle_time: -1s
    runner_token: glrt-notActuallyASecret00
`))
	require.Equal(t, []string{
		`spillway.yaml:1: tick: "5" is not a duration; write a number with its unit, such as 30s, 10m or 1h30m`,
		`spillway.yaml:3: listen.runners: 0.0.0.0:7700 can be reached from other machines and would be plaintext; set listen.tls.cert_file and listen.tls.key_file, or use a loopback address such as 127.0.0.1:7700`,
		`spillway.yaml:5: providers.aws.sha256: must be 64 hex digits, as sha256sum prints them`,
		`spillway.yaml:10: pools[0].polices: unknown setting; did you mean policy?`,
		`spillway.yaml:11: pools[1].name: linux is the name of pools[0] already (line 7); each pool needs its own`,
		`spillway.yaml:13: pools[1].capability: a runner without tags must take untagged jobs, else it can take no job at all: add a tag or set run_untagged`,
		`spillway.yaml:14: pools[1].provider: there is no provider "asw"; did you mean aws?`,
		`spillway.yaml:15: pools[1].capacity_per_instance: "2" is not a whole number`,
		`spillway.yaml:18: pools[1].policy.max: 0 would never start anything; set 1 or more`,
		`spillway.yaml:19: pools[1].policy.idle_time: -1s is out of range; use 0s to 744h0m0s`,
		`spillway.yaml:20: pools[1].runner_token: a secret must not stand in this file; write {env: NAME} or {file: PATH}`,
	}, problems(t, err))
	require.NotContains(t, err.Error(), "notActually")
}

// pool is a file with one pool that has one more line, the eighth.
func pool(line string) string {
	return "providers:\n  mine: {plugin: ./plugin}\npools:\n  - name: a\n    group: g\n    capability: {tags: [x]}\n    provider: mine\n    " + line + "\n"
}

func TestMistakes(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f: the file is empty; name at least one pool"},
		{"only a comment", "# nothing\n", "f: the file is empty"},
		{"not YAML", "a: [", "f:1: not YAML: did not find expected node content"},
		{"not settings", "- a", "f:1: must be settings (key: value), not a list"},
		{"two documents", minimal + "---\na: 1\n", "f: there is more after the first YAML document"},
		{"no pool", "tick: 1s", "f:1: pools: there is no pool"},
		{"repeated key", "tick: 1s\ntick: 2s\n" + minimal, "f:2: tick: is set a second time (first in line 1)"},
		{"merge key", "x: &x {}\n" + pool("policy: {<<: *x}"), "f:9: pools[0].policy.<<: merging with << is not supported"},
		{"null value", pool("priority:"), "f:8: pools[0].priority: must be a whole number, not nothing"},
		{"float for a count", pool("priority: 1.5"), `f:8: pools[0].priority: "1.5" is not a whole number`},
		{"NaN", pool("cost_per_job: .nan"), `f:8: pools[0].cost_per_job: ".nan" is not a number`},
		{"number for a name", pool("runner_token: {env: 5}"), "f:8: pools[0].runner_token.env: must be the name of a variable"},
		{"number for text", "replica: 5\n" + minimal, `f:1: replica: "5" is not text here; put it in quotes`},
		{"text for bool", "listen: {insecure_loopback: maybe}\n" + minimal, `f:1: listen.insecure_loopback: "maybe" is not true or false`},
		{"section for a value", pool("priority: {a: 1}"), "must be a whole number, not settings (key: value)"},
		{"value for a list", pool("policy: [1]"), "f:8: pools[0].policy: must be settings (key: value), not a list"},
		{"tick too short", "tick: 99ms\n" + minimal, "f:1: tick: 99ms is out of range; use 100ms to 5m0s"},
		{"debounce", "debounce: 6s\n" + minimal, "f:1: debounce: 6s is out of range"},
		{"replica", "replica: a b\n" + minimal, `f:1: replica: "a b" cannot name a replica`},
		{"log level", "log: {level: loud}\n" + minimal, `f:1: log.level: "loud": use debug, info, warn, error`},
		{"listen without port", "listen: {api: localhost}\n" + minimal, `f:1: listen.api: "localhost": write HOST:PORT`},
		{"listen on a name", "listen: {api: 'example.org:1'}\n" + minimal, "write an IP address and a port"},
		{"listen twice by name", "listen: {api: 'localhost:7700'}\n" + minimal, "f:1: listen.api: localhost:7700 is already used by listen.runners"},
		{"listen twice in IPv6", "listen: {api: '[::ffff:127.0.0.1]:7700'}\n" + minimal, "already used by listen.runners"},
		{"listen on all and on one", "listen: {api: ':7700', tls: {cert_file: a, key_file: b}}\n" + minimal, "f:1: listen.api: :7700 is already used by listen.runners"},
		{"listen on all twice", "listen: {runners: '[::]:1', api: ':1', tls: {cert_file: a, key_file: b}}\n" + minimal, "listen.api: :1 is already used by listen.runners"},
		{"listen twice", "listen: {api: '127.0.0.1:7700'}\n" + minimal, "f:1: listen.api: 127.0.0.1:7700 is already used by listen.runners"},
		{"no plaintext at all", "listen: {insecure_loopback: false}\n" + minimal, "f:1: listen.runners: would be plaintext"},
		{"half TLS", "listen: {tls: {cert_file: a}}\n" + minimal, "f:1: listen.tls: cert_file and key_file belong together"},
		{"client CA alone", "listen: {tls: {ca_file: a}}\n" + minimal, "f:1: listen.tls.ca_file: client certificates need TLS"},
		{"redis without address", "store: {redis: {}}\n" + minimal, "f:1: store.redis.addrs: name at least one server"},
		{"redis address", "store: {redis: {addrs: [redis]}}\n" + minimal, `f:1: store.redis.addrs[0]: "redis": write HOST:PORT`},
		{"redis URL", "store: {redis: {addrs: ['redis://r:6379']}}\n" + minimal, `f:1: store.redis.addrs[0]: "redis://r:6379": write HOST:PORT`},
		{"redis port", "store: {redis: {addrs: ['r:0']}}\n" + minimal, `f:1: store.redis.addrs[0]: "r:0": write HOST:PORT`},
		{"redis IPv6", "store: {redis: {addrs: ['fd00::1:6379']}}\n" + minimal, `f:1: store.redis.addrs[0]: "fd00::1:6379": write HOST:PORT`},
		{"debug advertise", "debug: {advertise: 'h:0'}\n" + minimal, `f:1: debug.advertise: "h:0": write HOST:PORT`},
		{"redis password", "store: {redis: {addrs: ['r:1'], password: hunter2}}\n" + minimal, "f:1: store.redis.password: unknown setting, and a secret must not stand in this file; there are addrs, cluster, database, password_env, password_file, sentinel, tls, username"},
		{"redis two passwords", "store: {redis: {addrs: ['r:1'], password_file: a, password_env: B}}\n" + minimal, "keep one of them"},
		{"redis several", "store: {redis: {addrs: ['r:1', 'r:2']}}\n" + minimal, "several addresses need sentinel.master_name or cluster: true"},
		{"redis both", "store: {redis: {addrs: ['r:1'], cluster: true, sentinel: {master_name: m}}}\n" + minimal, "a Cluster has no Sentinels"},
		{"sentinel", "store: {redis: {addrs: ['r:1'], sentinel: {}}}\n" + minimal, "must name the master"},
		{"sentinel passwords", "store: {redis: {addrs: ['r:1'], sentinel: {master_name: m, password_file: f, password_env: E}}}\n" + minimal, "store.redis.sentinel.password_env: password_file is set too"},
		{"silent", "timeouts: {silent: 20s}\n" + minimal, "f:1: timeouts.silent: 20s is less than 2 heartbeats of 15s"},
		{"bare plugin", "providers: {m: {plugin: ec2}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]", "f:1: providers.m.plugin: \"ec2\" is a bare name, so plugin_dir must say where it is"},
		{"no plugin", "providers: {m: {}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]", "providers.m.plugin: must be the plugin's file"},
		{"env with a value", "providers: {m: {plugin: ./p, env: ['A=b']}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]", "providers.m.env[0]: must be the name of a variable only"},
		{"secret in plugin config", "providers: {m: {plugin: ./p, config: {a: [{api-key: hunter2}]}}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]", "f:1: providers.m.config.a[0].api-key: a secret must not stand in this file"},
		{"secret by shape", "providers: {m: {plugin: ./p, config: {x: AKIAABCDEFGHIJKLMNOP}}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]", "providers.m.config.x: a secret must not stand in this file"},
		{"pool name", strings.Replace(minimal, "name: linux", "name: Linux", 1), `f:4: pools[0].name: "Linux" cannot name a pool`},
		{"pool name too long", strings.Replace(minimal, "name: linux", "name: "+long, 1), "cannot name a pool; use 1 to 63"},
		{"no name", strings.Replace(minimal, "name: linux", "group: g", 1), "f:4: pools[0].name: a pool needs a name"},
		{"type", pool("capability: {type: shared}"), "is set a second time"},
		{"capacity", pool("capacity_per_instance: 0"), "f:8: pools[0].capacity_per_instance: 0 is out of range; use 1 to 1000"},
		{"max over limit", pool("policy: {max: 10001}"), "f:8: pools[0].policy.max: 10001 instances, at most 10000 are allowed"},
		{"min over max", pool("policy: {min: 3, max: 2}"), "f:8: pools[0].policy.min: 3 is more than max (2); lower min or raise max"},
		{"percent", pool("policy: {scale_in: {percent_budget: 0}}"), "percent_budget: 0 is out of range; use 1 to 100"},
		{"need", pool("policy: {need: cpu}"), `pools[0].policy.need: "cpu": use queue, step`},
		{"silent timeout", pool("policy: {silent_timeout: 30s}"), "30s is shorter than timeouts.silent (45s)"},
		{"two secrets", pool("runner_token: {env: A, file: b}"), "f:8: pools[0].runner_token: names both a file and a variable"},
		{"token value", pool("runner_token: {value: hunter2}"), "runner_token.value: unknown setting; a secret is named by env or file"},
		{"same group", pool("policy: {}\n  - name: b\n    group: g\n    capability: {run_untagged: true}\n    provider: mine"), "f:10: pools[1].group: group g of provider mine belongs to pool a already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(c.text))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// A setting that can't be read must not be followed by complaints about the
// default in its place.
func TestNoFollowUpProblems(t *testing.T) {
	_, err := config.Parse("f", []byte(pool("policy: {min: 20, max: many}")))
	require.Equal(t, []string{`f:8: pools[0].policy.max: "many" is not a whole number`}, problems(t, err))

	_, err = config.Parse("f", []byte(strings.Replace(minimal, "tags: [docker]", "tags: docker", 1)))
	require.Equal(t, []string{`f:5: pools[0].capability.tags: must be a list ([a, b] or lines that begin with -), not a single value`}, problems(t, err))
}

func TestAliasesShareSettings(t *testing.T) {
	c, err := config.Parse("f", []byte(`providers: {m: {plugin: ./p}}
pools:
  - name: a
    capability: {tags: [x]}
    provider: m
    policy: &p {max: 3}
  - name: b
    capability: {tags: [y]}
    provider: m
    policy: *p
`))
	require.NoError(t, err)
	require.Equal(t, 3, c.Pools[1].Policy.Max)
}

// An alias that multiplies itself must end in an error, soon and small.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("providers:\n  m:\n    plugin: ./p\n    config:\n      a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "      a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i, i)
	}
	_, err := config.Parse("f", []byte(b.String()))
	require.ErrorContains(t, err, "too large or too deep")

	_, err = config.Parse("f", []byte("pools: &p\n  - name: a\n    capability: *p\n"))
	require.Error(t, err, "an alias within its own anchor")
	_, err = config.Parse("f", []byte("providers:\n  m:\n    config: &c\n      a: *c\n"))
	require.ErrorContains(t, err, "too large or too deep")
}
