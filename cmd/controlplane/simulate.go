package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

func newSimulate() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "simulate FILE.yaml",
		Short: "Play a scenario on a virtual clock",
		Long: `Play a scenario on a virtual clock, through the very decision code that serve runs; only time,
the cloud and the runners are simulated. The same file gives the same output, byte for byte.
` + exitCodesHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := jsonWanted(output)
			if err != nil {
				return err
			}
			s, err := scenario.Load(args[0])
			if err != nil {
				return withCode(exitUsage, err)
			}
			result, err := sim.Run(cmd.Context(), s)
			if err != nil {
				return withCode(exitFailed, fmt.Errorf("%s: %w", args[0], err))
			}
			write := sim.WriteText
			if asJSON {
				write = sim.WriteJSON
			}
			if err := write(cmd.OutOrStdout(), result); err != nil {
				return withCode(exitFailed, err)
			}
			if code := result.ExitCode(); code != exitOK {
				return withCode(code, errSilent)
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	return cmd
}
