package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/router"
)

// gitlab is a file with a gitlab section and one pool, both completed by the test.
func gitlab(section, pool string) string {
	return "gitlab: {url: 'https://gitlab.example.com/'" + section + "}\nproviders: {mine: {plugin: ./plugin}}\npools:\n  - name: a\n    provider: mine\n    " +
		strings.ReplaceAll(pool, "\n", "\n    ") + "\n"
}

const token = ", api_token: {env: T}"

func TestGitLabDefaults(t *testing.T) {
	c, err := config.Parse("f", []byte(gitlab(token+", route: {server_url: 'grpc://a:1'}", "mode: route\ngitlab: {runner_id: 7, token: {env: R}}")))
	require.NoError(t, err)
	require.Equal(t, "https://gitlab.example.com", c.GitLab.URL)
	require.Equal(t, config.GitLabJobs{Scope: "instance", Every: 10 * time.Second, PerMin: 300}, c.GitLab.Jobs)
	require.Equal(t, config.Route{ServerURL: "grpc://a:1", LongPoll: 50 * time.Second, HoldPerToken: 1, RatePerToken: 33}, *c.GitLab.Route)
	require.Equal(t, config.DefaultGitLab, c.Listen.GitLab)
	require.Equal(t, config.DefaultJobRouter, c.Listen.JobRouter)
	require.True(t, c.Pools[0].CapabilityFromGitLab())
	asked := c.SpillwayPools()[0].Capability
	require.Equal(t, c.GitLab.URL, asked.Origin)
	require.NoError(t, asked.Validate())
	require.False(t, router.Match(&asked, &spillway.Requirement{Origin: c.GitLab.URL, Project: 1}).OK(), "nothing goes there before it is known what it takes")
	require.Equal(t, "none", c.Pools[0].Observe.Drain)

	c, err = config.Parse("f", []byte(gitlab("", "mode: observe\ncapability: {tags: [x]}\nobserve: {metrics: {}}")))
	require.NoError(t, err)
	require.Equal(t, "none", c.GitLab.Jobs.Scope, "without a token nothing can be listed")
	require.Empty(t, c.Listen.GitLab, "nobody calls us")
	require.Equal(t, config.RunnerMetrics{Port: 9252, Path: "/metrics", Every: 15 * time.Second}, *c.Pools[0].Observe.Metrics)

	c, err = config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Empty(t, c.SpillwayPools()[0].Capability.Origin)
}

func TestGitLabMistakes(t *testing.T) {
	const observe = "mode: observe\ncapability: {tags: [x]}"
	const route = "mode: route\ncapability: {tags: [x]}\ngitlab: {token: {env: R}}"
	for _, c := range []struct{ name, text, want string }{
		{"url", strings.Replace(gitlab("", observe), "https://gitlab.example.com/", "gitlab.example.com", 1), `gitlab.url: "gitlab.example.com": write the address of GitLab`},
		{"a name that no job may carry", strings.Replace(gitlab("", observe), "gitlab.example.com", "gitläb.example.com", 1), "gitlab.url: \"https://gitläb.example.com\": write it in ASCII and without blanks"},
		{"a blank in the url", strings.Replace(gitlab("", observe), "example.com/", "example.com/a b", 1), "gitlab.url: \"https://gitlab.example.com/a b\": write it in ASCII and without blanks"},
		{"password in the url", strings.Replace(gitlab("", observe), "https://", "https://u:hunter2@", 1), "gitlab.url: "},
		{"token value", gitlab(", api_token: glpat-notASecret000000000", observe), "gitlab.api_token: a secret must not stand in this file"},
		{"scope", gitlab(token+", jobs: {scope: all}", observe), `gitlab.jobs.scope: "all": use instance, groups, projects, none`},
		{"scope without token", gitlab(", jobs: {scope: instance}", observe), "gitlab.jobs.scope: GitLab lists jobs for a token only"},
		{"groups not named", gitlab(token+", jobs: {scope: groups}", observe), "gitlab.jobs.groups: name the full paths of groups here if, and only if, scope is groups"},
		{"groups for nothing", gitlab(token+", jobs: {groups: [a]}", observe), "gitlab.jobs.groups: name the full paths"},
		{"path", gitlab(token+", jobs: {scope: projects, projects: [/a/]}", observe), `gitlab.jobs.projects[0]: "/a/": write the full path`},
		{"every", gitlab(token+", jobs: {every: 100ms}", observe), "gitlab.jobs.every: 100ms is out of range"},
		{"budget", gitlab(token+", jobs: {requests_per_minute: 0}", observe), "gitlab.jobs.requests_per_minute: 0 is out of range"},
		{"webhook without secret", gitlab(", webhook: {}", observe), "gitlab.webhook.secret: anybody could tell us of jobs"},
		{"server url", gitlab(", route: {server_url: 'https://a'}", route), `gitlab.route.server_url: "https://a": write what the runners connect to`},
		{"server url with a path", gitlab(", route: {server_url: 'grpc://a/b'}", route), "a gRPC address has no path"},
		{"advertise", gitlab(", route: {server_url: 'grpc://a:1', advertise: host}", route), `gitlab.route.advertise: "host": write HOST:PORT`},
		{"advertise a URL", gitlab(", route: {server_url: 'grpc://a:1', advertise: 'grpc://a:1'}", route), `gitlab.route.advertise: "grpc://a:1": write HOST:PORT`},
		{"long poll", gitlab(", route: {server_url: 'grpc://a:1', long_poll: 1h}", route), "gitlab.route.long_poll: 1h0m0s is out of range"},
		{"hold", gitlab(", route: {server_url: 'grpc://a:1', hold_per_token: 65}", route), "hold_per_token: 65 is out of range; use 0 to 64"},
		{"rate", gitlab(", route: {server_url: 'grpc://a:1', rate_per_token: 0}", route), "rate_per_token: 0 is out of range"},
		{"webhook that nobody can complete", gitlab(", webhook: {secret: {env: S}}", observe), "gitlab.webhook: a webhook does not say which tags a job has"},
		{"job router without route", "listen: {job_router: '127.0.0.1:1'}\n" + gitlab("", observe), "listen.job_router: there is no gitlab.route"},
		{"listener without use", "listen: {gitlab: '127.0.0.1:1'}\n" + gitlab("", observe), "listen.gitlab: there is neither gitlab.route nor gitlab.webhook"},
		{"mode", gitlab("", "mode: watch\ncapability: {tags: [x]}"), `pools[0].mode: "watch": use orchestrate, observe, route`},
		{"route without route", gitlab("", route), "pools[0].mode: mode route needs gitlab.route"},
		{"route without a token", gitlab(", route: {server_url: 'grpc://a:1'}", "mode: route\ncapability: {tags: [x]}"), "pools[0].gitlab.token: jobs are asked for with the runners' own token"},
		{"observe without gitlab", pool("mode: observe"), "pools[0].mode: mode observe needs a gitlab section"},
		{"listener for nothing", "listen: {gitlab: '127.0.0.1:1'}\n" + minimal, "listen.gitlab: there is no gitlab section"},
		{"gitlab in our own pool", pool("gitlab: {runner_id: 1}"), "pools[0].gitlab: is for pools whose jobs come from GitLab"},
		{"observe in our own pool", pool("observe: {}"), "pools[0].observe: is for pools that GitLab serves"},
		{"runner id", gitlab("", observe+"\ngitlab: {runner_id: -1}"), "pools[0].gitlab.runner_id: -1 is negative"},
		{"drain", gitlab("", observe+"\nobserve: {drain: signal}"), `pools[0].observe.drain: "signal": use sidecar, hook, none`},
		{"sidecar without token", gitlab("", observe+"\nobserve: {drain: sidecar}"), "pools[0].observe.drain: sidecars register with the pool's runner_token"},
		{"targets twice", gitlab("", observe+"\nobserve: {metrics: {targets: {i: 'h:1'}, targets_file: f}}"), "targets_file: targets are set too"},
		{"target", gitlab("", observe+"\nobserve: {metrics: {targets: {i: h}}}"), `targets.i: "h": write HOST:PORT`},
		{"target without a port", gitlab("", observe+"\nobserve: {metrics: {targets: {i: 'h:0'}}}"), `targets.i: "h:0": write HOST:PORT`},
		{"metrics path that is none", gitlab("", observe+"\nobserve: {metrics: {path: /%zz}}"), `metrics.path: "/%zz": write a path`},
		{"metrics path", gitlab("", observe+"\nobserve: {metrics: {path: metrics}}"), "write a path that begins with /"},
		{"metrics CA", gitlab("", observe+"\nobserve: {metrics: {ca_file: f}}"), "ca_file: is for TLS"},
		{"metrics every", gitlab("", observe+"\nobserve: {metrics: {every: 10m}}"), "metrics.every: 10m0s is out of range"},
		{"prometheus url", gitlab("", observe+"\ncount: {prometheus: {url: prom, query: up}}"), `count.prometheus.url: "prom": write the address`},
		{"prometheus query", gitlab("", observe+"\ncount: {prometheus: {url: 'http://p'}}"), "count.prometheus.query: write a query"},
		{"two counts", gitlab("", observe+"\ncount: {metric: m, prometheus: {url: 'http://p', query: up}}"), "keep one of them"},
		{"means", gitlab("", observe+"\ncount: {means: load, prometheus: {url: 'http://p', query: up}}"), `count.means: "load": use jobs, instances`},
		{"capability from nowhere", gitlab("", "mode: observe\ngitlab: {runner_id: 3}"), "what runner 3 takes must be asked of GitLab, and there is no gitlab.api_token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(c.text))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// What a pool can't do is said before it is missed.
func TestC20_BlindPoolsAreNamed(t *testing.T) {
	for _, c := range []struct{ name, section, pool, want string }{
		{"seldom heard", token, "gitlab: {runner_id: 1}\nobserve: {drain: hook, metrics: {every: 45s}}", "a runner that is asked every 45s counts as silent for a part of that time, since timeouts.silent is 45s"},
		{"no drain", token, "gitlab: {runner_id: 1}\nobserve: {metrics: {}}", "cannot_drain: nothing can tell a runner of this pool to stop"},
		{"no proof", token, "observe: {drain: hook}", "cannot_drain: nothing proves that an instance is idle"},
		{"half a proof", token, "observe: {drain: hook, metrics: {}}", "cannot_drain: metrics alone don't prove"},
		{"no demand", "", "observe: {drain: sidecar}\nrunner_token: {env: A}", "will never scale out by itself"},
		{"no uses", token, "gitlab: {runner_id: 1}\nobserve: {drain: sidecar}\nrunner_token: {env: A}\npolicy: {max_uses: 1}", "has no effect: GitLab hands this pool's jobs out, and nothing counts them by instance"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed, err := config.Parse("f", []byte(gitlab(c.section, "mode: observe\ncapability: {tags: [x]}\n"+c.pool)))
			require.NoError(t, err)
			var texts []string
			for _, w := range parsed.Warnings() {
				texts = append(texts, w.Text)
			}
			require.Contains(t, strings.Join(texts, "\n"), c.want)
		})
	}
}

// A capability that GitLab is asked for has no settings beside it that nobody reads.
func TestWhatIsLeftToGitLabIsNotSetInVain(t *testing.T) {
	for setting, warned := range map[string]string{
		"protected: true":            "pools[0].capability.protected",
		"type: group":                "pools[0].capability.type",
		"groups: [1]":                "pools[0].capability.groups",
		"projects: [1]":              "pools[0].capability.projects",
		"resources: {milli_cpu: 1}":  "pools[0].capability.resources",
		"type: instance":             "",
		"protected: true, tags: [x]": "",
	} {
		c, err := config.Parse("f", []byte(gitlab(token, "mode: observe\nobserve: {drain: sidecar}\nrunner_token: {env: A}\ngitlab: {runner_id: 7}\ncapability: {"+setting+"}")))
		require.NoError(t, err, setting)
		var paths []string
		for _, w := range c.Warnings() {
			if strings.Contains(w.Text, "has no effect: without tags and run_untagged GitLab is asked what runner 7 takes") {
				paths = append(paths, w.Path)
			}
		}
		require.Equal(t, warned, strings.Join(paths, " "), setting)
	}
}

// Where GitLab hands the jobs out nobody counts the uses of an instance: the setting
// makes it no smaller either.
func TestMaxUsesIsOfModesThatCount(t *testing.T) {
	const pool = "capability: {tags: [x]}\nobserve: {drain: sidecar}\nrunner_token: {env: A}\ngitlab: {runner_id: 1, token: {env: B}}\ncapacity_per_instance: 4\npolicy: {max_uses: 2}"
	for mode, want := range map[string]struct{ uses, capacity int }{"observe": {0, 4}, "route": {2, 2}} {
		c, err := config.Parse("f", []byte(gitlab(token+", route: {server_url: 'grpc://127.0.0.1:1'}", "mode: "+mode+"\n"+pool)))
		require.NoError(t, err)
		p := c.SpillwayPools()[0]
		require.Equal(t, want.uses, p.MaxUses, mode)
		rules, life := c.RulesOf(p.Name)
		require.Equal(t, want.uses, life.MaxUses, mode)
		require.Equal(t, want.capacity, p.CapacityPerInstance, mode)
		require.Equal(t, want.capacity, rules.CapacityPerInstance, mode)
		warned := 0
		for _, w := range c.Warnings() {
			if strings.Contains(w.Text, "nothing counts them by instance") {
				warned++
			}
		}
		require.Equal(t, want.uses == 0, warned == 1, mode)
	}
}
