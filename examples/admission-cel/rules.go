package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"go.yaml.in/yaml/v3"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

const (
	// maxRules bounds the rules of a file.
	maxRules = 1_000
	// maxCost bounds the evaluation of one rule [CEL's units, about an operation each]: a
	// rule over a long script must not keep the controller from the next job.
	maxCost = 1_000_000
)

// rules are the rules of a file, in its order. The first that applies and is not met
// refuses the job.
type rules []rule

type rule struct {
	Name   string `yaml:"name"`
	When   string `yaml:"when"`   // applies to these jobs; empty: to all
	Allow  string `yaml:"allow"`  // must be true
	Reason string `yaml:"reason"` // for the job's owner

	when, allow cel.Program // when: nil, to all
}

// parse reads a file and reports every mistake in it, joined.
func parse(text []byte) (rules, error) {
	var file struct {
		Rules rules `yaml:"rules"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if len(file.Rules) == 0 || len(file.Rules) > maxRules {
		return nil, fmt.Errorf("%d rules: write 1 to %d", len(file.Rules), maxRules)
	}
	env, err := cel.NewEnv(
		cel.Types(&admissionv1.ReviewedJob{}),
		cel.Variable("job", cel.ObjectType("spillway.admission.v1.ReviewedJob")),
	)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range file.Rules {
		if err := file.Rules[i].compile(env); err != nil {
			errs = append(errs, fmt.Errorf("rules[%d] %q: %w", i, file.Rules[i].Name, err))
		}
	}
	return file.Rules, errors.Join(errs...)
}

func (r *rule) compile(env *cel.Env) (err error) {
	if r.Name == "" || r.Reason == "" {
		return errors.New("a rule needs a name and a reason")
	}
	if r.When != "" {
		if r.when, err = program(env, r.When); err != nil {
			return fmt.Errorf("when: %w", err)
		}
	}
	if r.allow, err = program(env, r.Allow); err != nil {
		return fmt.Errorf("allow: %w", err)
	}
	return nil
}

func program(env *cel.Env, text string) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("%s is not a condition, but of type %s", text, ast.OutputType())
	}
	return env.Program(ast, cel.CostLimit(maxCost))
}

// judge refuses a job also if a rule can't be worked out for it: that is no consent.
func (r rules) judge(job *admissionv1.ReviewedJob) (bool, string) {
	for i := range r {
		if r[i].when != nil {
			applies, err := holds(r[i].when, job)
			if err != nil {
				return false, fmt.Sprintf("rule %q can't be worked out for this job", r[i].Name)
			}
			if !applies {
				continue
			}
		}
		switch ok, err := holds(r[i].allow, job); {
		case err != nil:
			return false, fmt.Sprintf("rule %q can't be worked out for this job", r[i].Name)
		case !ok:
			return false, fmt.Sprintf("%s (rule %s)", r[i].Reason, r[i].Name)
		}
	}
	return true, ""
}

func holds(p cel.Program, job *admissionv1.ReviewedJob) (bool, error) {
	out, _, err := p.Eval(map[string]any{"job": job})
	if err != nil {
		return false, err
	}
	ok, is := out.Value().(bool)
	if !is {
		return false, errors.New("not a condition")
	}
	return ok, nil
}
