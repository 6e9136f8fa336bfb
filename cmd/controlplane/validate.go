package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/plugin-sdk"
)

// verdict is what validate -o json prints.
type verdict struct {
	File     string                 `json:"file"`
	Valid    bool                   `json:"valid"`
	Problems []string               `json:"problems"`
	Warnings []string               `json:"warnings"`
	Findings []controlplane.Finding `json:"findings"`
	Pools    []string               `json:"pools"`

	providers int
}

// validateOptions are the flags of validate.
type validateOptions struct {
	output         string
	online, strict bool
}

func newValidate() *cobra.Command {
	var example bool
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration, and with --online what it names too",
		Long: `Check a configuration. Every mistake is reported at once, with its line and what to do.
The plugins that are on this machine are started for a moment, to hold their
configurations to their schemas, and the certificates and tokens of the access section
that are on it are read. With --online they also ask their clouds: whether the
groups are there, and which of their settings work against Spillway. GitLab, runners'
metrics and Prometheus servers that the configuration names are asked too, with the
secrets that it names: whether they answer, and agree with it. Nothing is changed
anywhere.

What is found is a warning or an error; with --strict a warning is an error.
` + exitCodesHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if example {
				_, err := fmt.Fprint(cmd.OutOrStdout(), config.Example)
				return err
			}
			if len(args) == 0 {
				args = []string{"spillway.yaml"}
			}
			return validate(cmd, args[0], o)
		},
	}
	cmd.Flags().BoolVar(&example, "example", false, "print a configuration with every setting, explained")
	cmd.Flags().BoolVar(&o.online, "online", false, "ask the clouds about the groups, and GitLab, metrics and Prometheus too")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "take warnings and findings for errors")
	outputFlag(cmd, &o.output)
	return cmd
}

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// jsonWanted checks the value of -o.
func jsonWanted(output string) (bool, error) {
	switch output {
	case "text":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, withCode(exitUsage, fmt.Errorf("-o %q: use text or json", output))
	}
}

// sentences lists the problems of an invalid file.
func sentences(err error) []string {
	var invalid *config.Error
	if !errors.As(err, &invalid) {
		return []string{err.Error()}
	}
	out := make([]string, len(invalid.Problems))
	for i, p := range invalid.Problems {
		out[i] = p.String()
	}
	return out
}

func validate(cmd *cobra.Command, path string, o validateOptions) error {
	asJSON, err := jsonWanted(o.output)
	if err != nil {
		return err
	}
	v, invalid := judge(cmd.Context(), path, o)
	if asJSON {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(v); err != nil {
			return withCode(exitFailed, err)
		}
		if !v.Valid {
			return withCode(exitUsage, errSilent)
		}
		return nil
	}
	if invalid != nil {
		return invalid
	}
	for _, w := range v.Warnings {
		cmd.PrintErrln("warning:", w)
	}
	for _, f := range v.Findings {
		cmd.PrintErrln(f)
	}
	if !v.Valid {
		return withCode(exitUsage, fmt.Errorf("%s: %d warnings, %d findings", path, len(v.Warnings), len(v.Findings)))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d pools, %d providers, %d warnings, %d findings\n",
		path, len(v.Pools), v.providers, len(v.Warnings), len(v.Findings))
	return err
}

// judge looks at the file and, if that is valid, at its plugins. The error is about
// the file.
func judge(ctx context.Context, path string, o validateOptions) (verdict, error) {
	v := verdict{File: path, Problems: []string{}, Warnings: []string{}, Findings: []controlplane.Finding{}, Pools: []string{}}
	cfg, err := read(path)
	if err != nil {
		v.Problems = sentences(err)
		return v, err
	}
	v.Valid, v.providers = true, len(cfg.Providers)
	for _, w := range cfg.Warnings() {
		v.Warnings = append(v.Warnings, w.String())
	}
	for i := range cfg.Pools {
		v.Pools = append(v.Pools, cfg.Pools[i].Name)
	}
	found, err := controlplane.Inspect(ctx, cfg, o.online)
	if err != nil {
		v.Valid, v.Problems = false, []string{err.Error()}
		return v, withCode(exitFailed, err)
	}
	v.Findings = append(v.Findings, found...)
	for _, f := range found {
		v.Valid = v.Valid && f.Severity != pluginsdk.FindingError
	}
	if o.strict && len(v.Warnings)+len(v.Findings) > 0 {
		v.Valid = false
	}
	return v, nil
}
