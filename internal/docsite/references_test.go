package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// line is the row of a table that begins with something.
func line(t *testing.T, page []byte, begins string) string {
	t.Helper()
	for l := range strings.Lines(string(page)) {
		if strings.HasPrefix(l, begins) {
			return strings.TrimSpace(l)
		}
	}
	t.Fatalf("no line begins with %s", begins)
	return ""
}

func TestSettingsHaveTheirDefaults(t *testing.T) {
	page, err := settings()
	require.NoError(t, err)
	for begins, want := range map[string]string{
		"| `tick` ":                       "| `tick` | duration | `5s` |  | how often each pool is looked at when nothing happens |",
		"| `timeouts.pending` ":           "| `timeouts.pending` | duration | `24h` |  | a job that waits longer fails |",
		"| `listen.debug` ":               "| `listen.debug` | text |  | `127.0.0.1:7705` | HTTP servers of running jobs, for holders of the role debug (HTTP). By default there is none |",
		"| `pools[].policy.idle_factor` ": "| `pools[].policy.idle_factor` | number | `0` |  | the same as a ratio of the instances in use; the larger of the two counts |",
		"| `pools[].policy.max` ":         "| `pools[].policy.max` | whole number | `10` |  | instances; also the most that a mistake can cost |",
		"| `pools[].gitlab.runner_id` ":   "| `pools[].gitlab.runner_id` | whole number |  | `42` | GitLab's number of the runner: what it takes is asked there if no capability is written |",
		"| `cells.lease` ":                "| `cells.lease` | duration | `60s` |  | our jobs there end when they have heard nothing of us for this long |",
		"| `cells.peers[].max_jobs` ":     "| `cells.peers[].max_jobs` | whole number | `100` |  | of ours there at once, for each capability |",
		"| `providers.NAME.plugin` ":      "| `providers.NAME.plugin` | text |  | `spillway-provider-ec2asg` | a path, or a name in plugin_dir |",
		"| `access[].token` ":             "| `access[].token` | secret |  | `{env: SPILLWAY_CI_TOKEN}` | or {file: PATH}, read again when it changes; at least 16 characters |",
		"| `pools[].mode` ":               "| `pools[].mode` | text | `orchestrate` |  | orchestrate (Spillway hands the jobs out) \\| observe (GitLab does) \\| route (Spillway does, GitLab's jobs) |",
	} {
		require.Equal(t, strings.ReplaceAll(want, "plugin_dir |", "plugin\\_dir |"), line(t, page, begins))
	}
	require.NotContains(t, string(page), "`providers.NAME.config.region`", "it is the plugin's")
	require.Greater(t, strings.Count(string(page), "\n| `"), 150)
}

func TestMetricsAreThoseThatAreRegistered(t *testing.T) {
	page, err := metrics()
	require.NoError(t, err)
	require.Equal(t, "| `spillway_job_wait_seconds` | `pool` | From a job's submission to its assignment. |", line(t, page, "| `spillway_job_wait_seconds`"))
	require.Equal(t, "| `spillway_jobs_finished_total` | `state`, `reason` | Jobs that have ended. |", line(t, page, "| `spillway_jobs_finished_total`"))
	line(t, page, "| `spillway_pool_desired_instances` | `pool`")
	line(t, page, "| `spillway_build_info` | `version`")
	require.NotContains(t, string(page), "| `go_")

	_, err = readMetrics(odd{})
	require.ErrorContains(t, err, "a metric is described as")
}

// odd describes what is no metric.
type odd struct{ prometheus.Collector }

func (odd) Describe(to chan<- *prometheus.Desc) { to <- &prometheus.Desc{} }

func TestCommandsAreDescribed(t *testing.T) {
	var b strings.Builder
	root := described{Name: "boat", Synopsis: "Float", Options: []option{{Name: "help"}, {Name: "flag", Shorthand: "f", Default: "blue", Usage: "its colour | none"}}}
	root.write(&b, root)
	require.Contains(t, b.String(), "\nFloat\n")
	require.Contains(t, b.String(), "| `--flag`, `-f` | `blue` | its colour \\| none |")
	require.NotContains(t, b.String(), "help")

	b.Reset()
	sail := described{
		Name: "boat sail", Usage: "boat sail HARBOUR [flags]", Description: "Goes to <HARBOUR>.\n\nExit codes:\n  0  there\n",
		Inherited: []option{root.Options[1], {Name: "knots", Default: "[]", Usage: "how fast"}},
	}
	sail.write(&b, root)
	require.Contains(t, b.String(), "```text\nboat sail HARBOUR [flags]\n```")
	require.Contains(t, b.String(), "Goes to \\<HARBOUR>.")
	require.Contains(t, b.String(), "```text\nExit codes:\n  0  there\n```")
	require.Contains(t, b.String(), "| `--knots` |  | how fast |")
	require.NotContains(t, b.String(), "--flag", "it stands at the root")
}
