package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
)

// checkOptions are the flags of plugin check.
type checkOptions struct {
	config, group, metric string
	instances             int
	settle                time.Duration
	env                   []string
}

func (a *app) pluginCheckCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use: "check BIN --config FILE --group GROUP", Short: "Hold a plugin to the provider contract, in whatever language it is written",
		Long: `Run the conformance suite against the plugin BIN over the wire. It launches and
removes real instances in GROUP, which must exist, be empty and belong to nobody
else; at most --instances at a time. What it launched it removes, also after a
failure or an interrupt.

Each check is a promise of the contract. It passed, failed, was skipped (the
plugin doesn't declare the capability), or deviates as the plugin declares.
Exit code 0: no check failed.`,
		Example: "  spillwayctl plugin check ./my-provider --config my.yaml --group test-group",
		Args:    exactly("BIN"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.checkPlugin(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "the plugin's configuration, a YAML or JSON file; none: {}")
	f.StringVar(&o.group, "group", "", "the group to launch and remove instances in")
	f.StringVar(&o.metric, "metric", "", "a metric of the configuration that has a value, for a plugin that can count")
	f.IntVar(&o.instances, "instances", 2, "how many instances may exist at a time, 2 to 20")
	f.DurationVar(&o.settle, "settle", 5*time.Minute, "how long the cloud may take until what it accepted is seen")
	f.StringArrayVar(&o.env, "env", nil, "a variable of this environment that the plugin may see, such as AWS_PROFILE; it sees no other")
	_ = cmd.MarkFlagRequired("group")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	return cmd
}

func (a *app) checkPlugin(ctx context.Context, path string, o checkOptions) error {
	if o.instances < 2 || o.instances > 20 {
		return usagef("--instances %d: use 2 to 20", o.instances)
	}
	if o.settle <= 0 {
		return usagef("--settle %s: use a duration above 0, such as 5m", o.settle)
	}
	config, err := readPluginConfig(o.config)
	if err != nil {
		return err
	}
	var env []string
	for _, name := range o.env {
		value, ok := os.LookupEnv(name)
		if !ok {
			return usagef("--env %s: there is no such variable", name)
		}
		env = append(env, name+"="+value)
	}
	p, stop, err := launchPlugin(path, env, a.stderr)
	if err != nil {
		return err
	}
	defer stop()
	return a.reportCheck(ctx, providertest.Subject{
		Provider: p, Config: config, Group: o.group, MaxInstances: o.instances, Settle: o.settle, Metric: o.metric,
	})
}

// readPluginConfig turns a file into the JSON object that Configure takes.
func readPluginConfig(path string) ([]byte, error) {
	if path == "" {
		return []byte("{}"), nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--config: %w", err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(raw, &object); err != nil { // JSON is YAML
		return nil, usagef("--config %s: %w", path, err)
	}
	config, err := json.Marshal(object)
	if err != nil {
		return nil, usagef("--config %s can't be written as JSON: %w", path, err)
	}
	return config, nil
}

// checkReport is what plugin check -o json prints.
type checkReport struct {
	OK      bool           `json:"ok"`
	Counts  map[string]int `json:"counts"`
	Results []checkResult  `json:"results"`
}

type checkResult struct {
	Check   string  `json:"check"`
	Outcome string  `json:"outcome"`
	Promise string  `json:"promise"`
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"`
}

// reportCheck prints each result as it comes: a check on a real cloud takes minutes.
func (a *app) reportCheck(ctx context.Context, s providertest.Subject) error {
	report := checkReport{Counts: map[string]int{}}
	report.OK = providertest.Check(ctx, s, func(r providertest.Result) {
		report.Counts[string(r.Outcome)]++
		report.Results = append(report.Results, checkResult{
			Check: r.Check, Outcome: string(r.Outcome), Promise: r.Promise, Detail: r.Detail, Seconds: r.Took.Seconds(),
		})
		if a.output != "json" {
			_, _ = fmt.Fprintln(a.stdout, printable(r.String()))
		}
	})
	if a.output == "json" {
		if err := writeIndented(a.stdout, report); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(a.stdout, "\n%d passed, %d failed, %d skipped, %d declared deviations\n", report.Counts["passed"],
			report.Counts["failed"], report.Counts["skipped"], report.Counts["deviates"])
	}
	if !report.OK {
		return &exitError{exitFailed, errors.New("")} // the report says it all
	}
	return nil
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the answer as JSON: %w", err)
	}
	return nil
}
