package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

func TestTheExamplesRules(t *testing.T) {
	text, err := os.ReadFile("rules.yaml")
	require.NoError(t, err)
	r, err := parse(text)
	require.NoError(t, err)
	for _, c := range []struct {
		job  *admissionv1.ReviewedJob
		want string
	}{
		{&admissionv1.ReviewedJob{}, ""},
		{&admissionv1.ReviewedJob{Image: "registry.example.com/a:1", Timeout: durationpb.New(time.Hour)}, ""},
		{&admissionv1.ReviewedJob{Image: "ruby"}, "images come from registry.example.com only (rule registry)"},
		{&admissionv1.ReviewedJob{Requirement: &typesv1.Requirement{Tags: []string{"deploy"}}}, "deployments run on protected refs only (rule protected-tags)"},
		{&admissionv1.ReviewedJob{Requirement: &typesv1.Requirement{Tags: []string{"deploy"}, Protected: true}}, ""},
		{&admissionv1.ReviewedJob{Timeout: durationpb.New(3 * time.Hour)}, "a job may take two hours (rule short)"},
		{&admissionv1.ReviewedJob{Services: []string{"a", "miner:1"}}, "that service is not wanted here (rule no-miners)"},
	} {
		ok, reason := r.judge(c.job)
		require.Equal(t, c.want, reason)
		require.Equal(t, c.want == "", ok)
	}
}

func TestMistakesInRules(t *testing.T) {
	for text, want := range map[string]string{
		"rules: []":          "0 rules",
		"ruels: []":          "field ruels not found",
		"rules: [{name: a}]": "a rule needs a name and a reason",
		"rules: [{name: a, reason: r, allow: job.nmae == \"\"}]":                              "undefined field 'nmae'",
		"rules: [{name: a, reason: r, allow: job.name}]":                                      "is not a condition, but of type string",
		"rules: [{name: a, reason: r, when: \"1 +\", allow: \"true\"}]":                       "when: ",
		"rules: [" + strings.Repeat("{name: a, reason: r, allow: 'true'},", maxRules+1) + "]": "1001 rules",
	} {
		_, err := parse([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

// What can't be worked out is no consent, and takes bounded time.
func TestARuleThatFailsRefuses(t *testing.T) {
	r, err := parse([]byte(`rules: [{name: a, reason: r, allow: 'job.services[3] == ""'}]`))
	require.NoError(t, err)
	ok, reason := r.judge(&admissionv1.ReviewedJob{})
	require.False(t, ok)
	require.Equal(t, `rule "a" can't be worked out for this job`, reason)

	r, err = parse([]byte(`rules: [{name: a, reason: r, allow: 'job.services.all(x, job.services.all(y, job.services.all(z, x + y + z != "abc")))'}]`))
	require.NoError(t, err)
	ok, reason = r.judge(&admissionv1.ReviewedJob{Services: make([]string, 1_000)})
	require.False(t, ok)
	require.Contains(t, reason, "can't be worked out")
}
