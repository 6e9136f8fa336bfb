package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/agent/sidecar"
)

const sidecarHelp = `With --sidecar it takes no jobs. It runs beside a gitlab-runner and tells the router
how many jobs that one has, which it reads from the runner's metrics; an order to
drain becomes a SIGQUIT to the runner: no new jobs, and the end of its process when
those that run have ended. Taken back, the runner is started again by
--restart-command, or, with --exec, by the same command; else it goes for good. The
runner's process is found by its pid file, by its systemd unit, or is started here:

  spillway-agent --sidecar --router HOST:PORT --token-file FILE --runner-unit gitlab-runner
  spillway-agent --sidecar --router HOST:PORT --token-file FILE --exec -- gitlab-runner run

A runner whose metrics can't be read is taken for busy, and after a while for broken.
--capacity bounds what the runner's own concurrent and limit say.`

// sidecarFlags are those of --sidecar.
type sidecarFlags struct {
	on, exec bool
	argv     []string // behind --
	options  sidecar.Options
}

// needsSidecar are the flags that mean nothing without --sidecar; onlyAgent those that
// mean nothing with it.
var (
	needsSidecar = []string{"runner-metrics", "runner-metrics-every", "runner-pid", "runner-unit", "exec", "restart-command"}
	onlyAgent    = []string{"job-logs"}
)

func (s *sidecarFlags) declare(command *cobra.Command) {
	set := command.Flags()
	set.BoolVar(&s.on, "sidecar", false, "take no jobs: speak for the gitlab-runner beside this")
	set.StringVar(&s.options.Metrics, "runner-metrics", sidecar.DefaultMetrics, "where it answers with its metrics; a loopback address")
	set.DurationVar(&s.options.Every, "runner-metrics-every", sidecar.DefaultEvery, "time between two looks at it")
	set.StringVar(&s.options.PIDFile, "runner-pid", "", "file with its process id")
	set.StringVar(&s.options.Unit, "runner-unit", "", "its systemd unit")
	set.BoolVar(&s.exec, "exec", false, "start it: the command line behind --")
	set.StringVar(&s.options.Restart, "restart-command", "", "command that starts it again when a drain is taken back, for /bin/sh")
}

// args takes what stands behind the flags: nothing, or the command line of --exec.
func (s *sidecarFlags) args(command *cobra.Command, args []string) error {
	behind := command.ArgsLenAtDash()
	if behind < 0 {
		behind = len(args)
	}
	if behind > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, args[0])
	}
	s.argv = slices.Clone(args)
	return nil
}

// complete checks how the flags go together.
func (s *sidecarFlags) complete(command *cobra.Command, o *agent.Options) error {
	changed := command.Flags().Changed
	if s.exec != (len(s.argv) > 0) {
		return fmt.Errorf("%w: --exec needs the runner's command line behind --, and nothing else does", errUsage)
	}
	if !s.on {
		for _, name := range needsSidecar {
			if changed(name) {
				return fmt.Errorf("%w: --%s needs --sidecar", errUsage, name)
			}
		}
		return nil
	}
	for _, name := range onlyAgent {
		if changed(name) {
			return fmt.Errorf("%w: --%s means nothing with --sidecar: it takes no jobs", errUsage, name)
		}
	}
	if !changed("capacity") {
		o.Capacity = 0 // as the runner says
	}
	s.options.Exec = s.argv
	s.options.StopGrace = o.StopGrace
	return nil
}

// speakFor has the agent speak for the runner beside it until ctx ends.
func (s *sidecarFlags) speakFor(ctx context.Context, o *agent.Options, watching *sync.WaitGroup) error {
	if !s.on {
		return nil
	}
	options := s.options
	options.Log = o.Log
	watch, err := sidecar.Open(options)
	if err != nil {
		return fmt.Errorf("%w: --sidecar: %w", errUsage, err)
	}
	o.Beside = watch
	watching.Go(func() { watch.Run(ctx) })
	return nil
}
