package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/controlplane"
)

func newRelease() *cobra.Command {
	var path, output string
	var pools []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "release --config FILE [--pool NAME] --yes",
		Short: "Give groups back when Spillway is uninstalled: take its protection off the instances",
		Long: `Take the protection from scale-in off the instances of the pools' groups, so that
whoever scales the groups after Spillway can remove them. No instance is ended.
Without --yes it only says what it would do.

Stop every replica first: a pool that one still scales is refused (with Redis; a
control plane with an embedded store is not seen from here).
` + exitCodesHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := jsonWanted(output)
			if err != nil {
				return err
			}
			cfg, err := load(cmd.ErrOrStderr(), path)
			if err != nil {
				return err
			}
			err = controlplane.Release(cmd.Context(), cfg, pools, !yes, func(r controlplane.Released) {
				printReleased(cmd, r, yes, asJSON)
			})
			return withCode(exitFailed, err)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "spillway.yaml", "configuration file")
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "only this pool; may be repeated")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	outputFlag(cmd, &output)
	return cmd
}

func printReleased(cmd *cobra.Command, r controlplane.Released, did, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(cmd.OutOrStdout()).Encode(r) // stdout is gone: nobody reads
		return
	}
	verb := "would be unprotected (give --yes to do it)"
	if did {
		verb = "unprotected"
	}
	if r.Note != "" {
		verb += "; " + r.Note
	}
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "pool %s, group %s: %d instances %s\n", r.Pool, r.Group, len(r.Protected), verb)
}
