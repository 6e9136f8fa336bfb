package suite

import (
	"fmt"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

// Child runs this process in the role of a child.
func Child(args []string) error {
	roles := map[string]func([]string) error{
		machinesRole: runMachines, asynqRole: runAsynqWorkers, natsRole: runNATSWorkers, plainRole: runPlainProvider,
		steadyRole: runSteadyMachines, gitlabRunnersRole: runGitLabRunners, plainProxyRole: runPlainProxy,
		idleRunnersRole: runIdleRunners, rawRole: runRaw, ownReceiversRole: runOwnReceivers, natsReceiversRole: runNATSReceivers,
		asynqReceiversRole: runAsynqReceivers,
	}
	if len(args) == 0 || roles[args[0]] == nil {
		return fmt.Errorf("%q is no role of a %s", args, child.Command)
	}
	return roles[args[0]](args[1:])
}
