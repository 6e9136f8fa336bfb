package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/config"
)

func TestAdmissionPolicy(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal+`
admission:
  controllers:
    - {name: p, scope: project, projects: [7], dry_run: true}
    - {name: a}
    - {name: g, scope: group, groups: [3], deadline: 1m, batch: 4, send: {script: true, env: [CI_REF]}}
`))
	require.NoError(t, err)
	p := c.AdmissionPolicy()
	require.Equal(t, []admission.Controller{
		{Name: "a", Scope: admission.Instance, Deadline: 30 * time.Second, Batch: 32},
		{Name: "g", Scope: admission.Group, Groups: []int64{3}, Deadline: time.Minute, Batch: 4, Send: admission.Send{Script: true, Env: []string{"CI_REF"}}},
		{Name: "p", Scope: admission.Project, Projects: []int64{7}, Deadline: 30 * time.Second, Batch: 32, DryRun: true},
	}, p.Controllers())
	require.True(t, p.Needs(&spillway.Requirement{}))

	none, err := config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Empty(t, none.AdmissionPolicy().Controllers())
}

func TestAdmissionMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"{name: A b}":                           `admission.controllers[0].name: "A b" can't name a controller; use 1 to 63 of a-z, 0-9, - and _`,
		"{scope: instance}":                     `admission.controllers[0].name: "" can't name a controller`,
		"{name: a, scope: all}":                 "admission.controllers[0].scope: ",
		"{name: a, scope: group}":               "admission.controllers[0].groups: name the ids of groups here if, and only if, scope is group",
		"{name: a, projects: [1]}":              "admission.controllers[0].projects: name the ids of projects here if, and only if, scope is project",
		"{name: a, scope: group, groups: [0]}":  "admission.controllers[0].groups[0]: 0 is no id",
		"{name: a, deadline: 1ms}":              "admission.controllers[0].deadline: 1ms is out of range; use 100ms to 1h0m0s",
		"{name: a, batch: 257}":                 "admission.controllers[0].batch: ",
		"{name: a, send: {env: [A-B]}}":         `admission.controllers[0].send.env[0]: "A-B" can't name a variable; use letters, digits and _`,
		"{name: a, dryrun: true}":               "admission.controllers[0].dryrun: unknown setting; did you mean dry_run?",
		"{name: a}, {name: a, scope: instance}": "admission.controllers[1].name: a is the name of admission.controllers[0] already; each controller needs its own",
	} {
		_, err := config.Parse("f", []byte(minimal+"\nadmission: {controllers: ["+text+"]}\n"))
		require.ErrorContains(t, err, want)
	}
}
