package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
)

// probeName is the file name under which this program is a fleeting plugin that only
// learns how it is started.
const probeName = "fleeting-plugin-probe"

// arguments are those of the command line; installed as a plugin, which gets none,
// the program is `spillwayctl fleeting probe`.
func arguments(args []string) []string {
	if filepath.Base(args[0]) == probeName {
		return append([]string{"fleeting", "probe"}, args[1:]...)
	}
	return args[1:]
}

func (a *app) fleetingCommand() *cobra.Command {
	return group("fleeting", "Learn how a fleeting plugin of GitLab Runner is spoken to", a.fleetingProbeCommand(), a.fleetingInspectCommand())
}
