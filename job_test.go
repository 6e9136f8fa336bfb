package spillway_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
)

func TestRequirementLimitsAtTheirEdges(t *testing.T) {
	tests := []struct {
		name    string
		r       spillway.Requirement
		problem string
	}{
		{"nothing asked for", spillway.Requirement{}, ""},
		{"C16 49 tags", spillway.Requirement{Tags: names(spillway.MaxJobTags - 1)}, ""},
		{"C16 50 tags", spillway.Requirement{Tags: names(spillway.MaxJobTags)}, "50 tags"},
		{"longest tag", spillway.Requirement{Tags: []string{strings.Repeat("x", spillway.MaxTagBytes)}}, ""},
		{"one byte more", spillway.Requirement{Tags: []string{strings.Repeat("x", spillway.MaxTagBytes+1)}}, "tag of 256 bytes"},
		{"empty tag", spillway.Requirement{Tags: []string{""}}, "an empty tag"},
		{"negative project", spillway.Requirement{Project: -1}, "project -1"},
		{"deepest project", spillway.Requirement{Groups: ids(spillway.MaxScopeEntries)}, ""},
		{"one group more", spillway.Requirement{Groups: ids(spillway.MaxScopeEntries + 1)}, "10001 ancestor groups"},
		{"group 0", spillway.Requirement{Groups: []int64{0}}, "group id 0"},
		{"most features", spillway.Requirement{Resources: spillway.Resources{Features: names(spillway.MaxFeatures)}}, ""},
		{"one feature more", spillway.Requirement{Resources: spillway.Resources{Features: names(spillway.MaxFeatures + 1)}}, "65 features"},
		{"negative memory", spillway.Requirement{Resources: spillway.Resources{MemoryMiB: -1}}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireProblem(t, tt.r.Validate(), tt.problem)
		})
	}
}

func TestJobLimitsAtTheirEdges(t *testing.T) {
	env := func(n, bytes int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m["V"+strconv.Itoa(1000+i)] = strings.Repeat("v", bytes)
		}
		return m
	}
	const nameBytes = len("V1000")
	tests := []struct {
		name    string
		change  func(*spillway.Job)
		problem string
	}{
		{"least", func(*spillway.Job) {}, ""},
		{"no id", func(j *spillway.Job) { j.ID = "" }, "needs an id"},
		{"longest id", func(j *spillway.Job) { j.ID = spillway.JobID(strings.Repeat("i", spillway.MaxJobIDBytes)) }, ""},
		{"id too long", func(j *spillway.Job) { j.ID = spillway.JobID(strings.Repeat("i", spillway.MaxJobIDBytes+1)) }, "job id of 129 bytes"},
		{"id with a blank", func(j *spillway.Job) { j.ID = "a b" }, "printable ASCII"},
		{"id with a line break", func(j *spillway.Job) { j.ID = "a\nb" }, "printable ASCII"},
		{"id beyond ASCII", func(j *spillway.Job) { j.ID = "é" }, "printable ASCII"},
		{"id with a delete", func(j *spillway.Job) { j.ID = "a\x7f" }, "printable ASCII"},
		{"longest name", func(j *spillway.Job) { j.Name = strings.Repeat("n", spillway.MaxJobNameBytes) }, ""},
		{"name too long", func(j *spillway.Job) { j.Name = strings.Repeat("n", spillway.MaxJobNameBytes+1) }, "job name of 256 bytes"},
		{"no script", func(j *spillway.Job) { j.Script = "" }, "needs a script"},
		{"longest script", func(j *spillway.Job) { j.Script = strings.Repeat("s", spillway.MaxScriptBytes) }, ""},
		{"script too long", func(j *spillway.Job) { j.Script = strings.Repeat("s", spillway.MaxScriptBytes+1) }, "script of 131073 bytes"},
		{"most variables", func(j *spillway.Job) { j.Env = env(spillway.MaxEnvVars, 1) }, ""},
		{"one variable more", func(j *spillway.Job) { j.Env = env(spillway.MaxEnvVars+1, 1) }, "257 environment variables"},
		{"largest environment", func(j *spillway.Job) { j.Env = env(1, spillway.MaxEnvBytes-nameBytes) }, ""},
		{"environment too large", func(j *spillway.Job) { j.Env = env(1, spillway.MaxEnvBytes-nameBytes+1) }, "environment of 65537 bytes"},
		{"variable names", func(j *spillway.Job) { j.Env = map[string]string{"_a9": "", "A": ""} }, ""},
		{"variable without a name", func(j *spillway.Job) { j.Env = map[string]string{"": "x"} }, "variable name"},
		{"variable with a digit first", func(j *spillway.Job) { j.Env = map[string]string{"9a": "x"} }, "variable name"},
		{"variable with =", func(j *spillway.Job) { j.Env = map[string]string{"A=B": "x"} }, "variable name"},
		{"variable with a zero byte", func(j *spillway.Job) { j.Env = map[string]string{"A": "x\x00y"} }, "zero byte"},
		{"least urgent", func(j *spillway.Job) { j.Priority = spillway.MaxJobPriority }, ""},
		{"less urgent than that", func(j *spillway.Job) { j.Priority = spillway.MaxJobPriority + 1 }, "priority 10"},
		{"negative priority", func(j *spillway.Job) { j.Priority = -1 }, "priority -1"},
		{"longest timeout", func(j *spillway.Job) { j.Timeout = spillway.MaxJobTimeout }, ""},
		{"timeout too long", func(j *spillway.Job) { j.Timeout = spillway.MaxJobTimeout + 1 }, "timeout"},
		{"negative timeout", func(j *spillway.Job) { j.Timeout = -1 }, "timeout"},
		{"most attempts", func(j *spillway.Job) { j.MaxAttempts = spillway.MaxJobAttempts }, ""},
		{"one attempt more", func(j *spillway.Job) { j.MaxAttempts = spillway.MaxJobAttempts + 1 }, "max_attempts 101"},
		{"negative attempts", func(j *spillway.Job) { j.MaxAttempts = -1 }, "max_attempts -1"},
		{"bad requirement", func(j *spillway.Job) { j.Requirement.Project = -1 }, "project -1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := spillway.Job{ID: "1", Script: "true"}
			tt.change(&j)
			requireProblem(t, j.Validate(), tt.problem)
		})
	}
}

func TestI12_ValidationNamesNoSecret(t *testing.T) {
	const secret = "hunter2-hunter2"
	j := spillway.Job{
		ID: "bad id", Script: strings.Repeat(secret, spillway.MaxScriptBytes),
		Env: map[string]string{"A": secret + "\x00", "B": strings.Repeat(secret, spillway.MaxEnvBytes), "9": secret},
	}
	err := j.Validate()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestJobDefaults(t *testing.T) {
	var j spillway.Job
	require.Equal(t, time.Hour, j.EffectiveTimeout())
	require.Equal(t, 3, j.EffectiveMaxAttempts())
	j = spillway.Job{Timeout: time.Minute, MaxAttempts: 7}
	require.Equal(t, time.Minute, j.EffectiveTimeout())
	require.Equal(t, 7, j.EffectiveMaxAttempts())
	j.NoRetry = true
	require.Equal(t, 1, j.EffectiveMaxAttempts())
}

func TestJobIDNumeric(t *testing.T) {
	notNumbers := []spillway.JobID{
		"", "-1", "+1", "01", "00", "1 ", " 1", "1_000", "0x1", "1e3", "1.0", "١",
		"9223372036854775808", "99999999999999999999",
	}
	for _, id := range notNumbers {
		n, ok := id.Numeric()
		require.False(t, ok, "%q", id)
		require.Zero(t, n)
	}
	n, ok := spillway.JobID("9223372036854775807").Numeric()
	require.True(t, ok)
	require.EqualValues(t, math.MaxInt64, n)
}

// An id that is a number is exactly what the number prints as: stored as a number
// it comes back as itself.
func TestJobIDNumericRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		got, ok := spillway.JobID(strconv.FormatInt(n, 10)).Numeric()
		require.True(t, ok)
		require.Equal(t, n, got)

		id := spillway.JobID(rapid.StringMatching(`[-+0-9 _.]{0,21}`).Draw(t, "id"))
		if got, ok := id.Numeric(); ok {
			require.Equal(t, string(id), strconv.FormatInt(got, 10))
		}
	})
}

func TestJobStateTerminal(t *testing.T) {
	terminal := map[spillway.JobState]bool{
		spillway.Pending: false, spillway.Routing: false, spillway.Admitted: false, spillway.Assigned: false, spillway.Running: false,
		spillway.Completed: true, spillway.Failed: true, spillway.Rejected: true, spillway.Canceled: true,
		"": false,
	}
	for state, want := range terminal {
		require.Equal(t, want, state.Terminal(), state)
	}
}
