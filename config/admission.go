package config

import (
	"fmt"
	"regexp"
	"time"

	"github.com/spillway-ci/spillway/admission"
)

// Admission says who has to approve jobs before they are given to a machine.
type Admission struct {
	Controllers []AdmissionController `yaml:"controllers,omitempty"`
}

// AdmissionController is admission.Controller.
type AdmissionController struct {
	Name     string        `yaml:"name"`
	Scope    string        `yaml:"scope"` // instance | group | project
	Groups   []int64       `yaml:"groups,omitempty"`
	Projects []int64       `yaml:"projects,omitempty"`
	Deadline time.Duration `yaml:"deadline"`
	DryRun   bool          `yaml:"dry_run,omitempty"`
	Batch    int           `yaml:"batch"` // jobs
	Send     AdmissionSend `yaml:"send,omitempty"`
}

// AdmissionSend is admission.Send.
type AdmissionSend struct {
	Script bool     `yaml:"script,omitempty"`
	Env    []string `yaml:"env,omitempty"`
}

func (c *AdmissionController) setDefaults() {
	c.Scope, c.Deadline, c.Batch = string(admission.Instance), admission.DefaultDeadline, admission.DefaultBatch
}

// AdmissionPolicy is the policy of the file. It can't fail: the file has been validated.
func (c *Config) AdmissionPolicy() admission.Policy {
	p, _ := admission.NewPolicy(c.admissionControllers())
	return p
}

func (c *Config) admissionControllers() []admission.Controller {
	list := make([]admission.Controller, len(c.Admission.Controllers))
	for i := range c.Admission.Controllers {
		list[i] = c.Admission.Controllers[i].controller()
	}
	return list
}

func (c *AdmissionController) controller() admission.Controller {
	return admission.Controller{
		Name: c.Name, Scope: admission.Scope(c.Scope), Groups: c.Groups, Projects: c.Projects,
		Deadline: c.Deadline, DryRun: c.DryRun, Batch: c.Batch, Send: admission.Send{Script: c.Send.Script, Env: c.Send.Env},
	}
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

func (v *validator) admission() {
	list := v.config.Admission.Controllers
	v.need(len(list) <= admission.MaxControllers, "admission.controllers", "%d controllers, at most %d are allowed", len(list), admission.MaxControllers)
	first := map[string]int{}
	for i := range list {
		c, at := &list[i], fmt.Sprintf("admission.controllers[%d]", i)
		v.admissionController(c, at)
		if k, taken := first[c.Name]; taken {
			v.need(false, at+".name", "%s is the name of admission.controllers[%d] already; each controller needs its own", c.Name, k)
		} else {
			first[c.Name] = i
		}
	}
}

func (v *validator) admissionController(c *AdmissionController, at string) {
	v.need(admission.ValidName(c.Name), at+".name", "%s can't name a controller; use 1 to %d of a-z, 0-9, - and _", quote(c.Name), admission.MaxNameBytes)
	v.oneOf(c.Scope, at+".scope", string(admission.Instance), string(admission.Group), string(admission.Project))
	for _, list := range []struct {
		name, scope string
		ids         []int64
	}{{"groups", string(admission.Group), c.Groups}, {"projects", string(admission.Project), c.Projects}} {
		path := at + "." + list.name
		v.need((len(list.ids) > 0) == (c.Scope == list.scope), path, "name the ids of %s here if, and only if, scope is %s", list.name, list.scope)
		v.need(len(list.ids) <= admission.MaxScopeIDs, path, "%d ids, at most %d are allowed", len(list.ids), admission.MaxScopeIDs)
		for k, id := range list.ids {
			v.need(id > 0, fmt.Sprintf("%s[%d]", path, k), "%d is no id; use the number that GitLab shows", id)
		}
	}
	v.between(c.Deadline, admission.MinDeadline, admission.MaxDeadline, at+".deadline")
	v.intBetween(c.Batch, 1, admission.MaxBatch, at+".batch")
	v.need(len(c.Send.Env) <= admission.MaxEnvNames, at+".send.env", "%d variables, at most %d are allowed", len(c.Send.Env), admission.MaxEnvNames)
	for k, name := range c.Send.Env {
		v.need(variableName.MatchString(name), fmt.Sprintf("%s.send.env[%d]", at, k), "%s can't name a variable; use letters, digits and _", quote(name))
	}
}
