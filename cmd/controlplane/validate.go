package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/config"
)

// verdict is what validate -o json prints.
type verdict struct {
	File     string   `json:"file"`
	Valid    bool     `json:"valid"`
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
	Pools    []string `json:"pools"`
}

func newValidate() *cobra.Command {
	var example bool
	var output string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration without starting anything",
		Long:  "Check a configuration. Every mistake is reported at once, with its line and what to do.\n" + exitCodesHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if example {
				_, err := fmt.Fprint(cmd.OutOrStdout(), config.Example)
				return err
			}
			if len(args) == 0 {
				args = []string{"spillway.yaml"}
			}
			return validate(cmd, args[0], output)
		},
	}
	cmd.Flags().BoolVar(&example, "example", false, "print a configuration with every setting, explained")
	outputFlag(cmd, &output)
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

func validate(cmd *cobra.Command, path, output string) error {
	asJSON, err := jsonWanted(output)
	if err != nil {
		return err
	}
	if !asJSON {
		cfg, err := load(cmd.ErrOrStderr(), path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d pools, %d providers, %d warnings\n",
			path, len(cfg.Pools), len(cfg.Providers), len(cfg.Warnings()))
		return err
	}
	v := verdict{File: path, Valid: true, Problems: []string{}, Warnings: []string{}, Pools: []string{}}
	cfg, invalid := config.Load(path)
	if invalid != nil {
		v.Valid, v.Problems = false, sentences(invalid)
	} else {
		for _, w := range cfg.Warnings() {
			v.Warnings = append(v.Warnings, w.String())
		}
		for i := range cfg.Pools {
			v.Pools = append(v.Pools, cfg.Pools[i].Name)
		}
	}
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(v); err != nil {
		return withCode(exitFailed, err)
	}
	if invalid != nil {
		return withCode(exitUsage, errSilent)
	}
	return nil
}
