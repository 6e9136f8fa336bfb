package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/agent/health"
	"github.com/spillway-ci/spillway/agent/notices"
)

// tokenVariable holds the runner token when no file does.
const tokenVariable = "SPILLWAY_RUNNER_TOKEN"

// debugVariable says whether sessions with jobs are allowed, when no flag does.
const debugVariable = "SPILLWAY_DEBUG"

// cloudVariable names the cloud when no flag does: an image may know it.
const cloudVariable = "SPILLWAY_CLOUD"

const longHelp = `Takes jobs from a Spillway router and runs their scripts with /bin/sh.

The runner token says which pool this machine belongs to. It comes from
--token-file, which is read again at each connection, or from the environment
variable ` + tokenVariable + `.

With --debug on, holders of the control plane's role "debug" may look into the jobs that
run here, over the connection that this machine has opened: it listens on nothing. They
can do what the jobs can. It is off unless this machine's owner says otherwise.

With --cloud the machine asks its cloud's metadata service which instance it is and
whether that is about to be taken away (a spot notice, maintenance, a terminating
hook of its group). It tells the router, takes no more jobs, and goes on with those
that run. "auto" asks the link-local address once who answers there; where you know
the cloud, name it.

` + sidecarHelp + `

Signals:
  SIGTERM, SIGINT   take no more jobs, wait for those that run (--drain-timeout), leave;
                    a second one cuts them short. With --sidecar a runner that was
                    not started here goes on
  SIGHUP            cut the jobs short and leave: whoever started this machine is gone

Exit codes:
  0    left in order
  1    could not begin
  64   a flag is missing or wrong
  75   left, but jobs were cut short; the router has them run elsewhere
  77   the router refused the runner token: give it another one before trying again`

// flags are the command line's.
type flags struct {
	tokenFile, workDir, logLevel string
	ca, cert, key                string
	plaintext                    bool
	cloud, metadataEndpoint      string
	debug                        string
	check                        health.Check
	sidecar                      sidecarFlags
	options                      agent.Options
}

func newCommand() *cobra.Command {
	var f flags
	command := &cobra.Command{
		Use:           "spillway-agent --router HOST:PORT --capacity JOBS",
		Short:         "Run jobs for a Spillway router",
		Long:          longHelp,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          f.sidecar.args,
		RunE: func(command *cobra.Command, _ []string) error {
			options, err := f.complete(command)
			if err != nil {
				return err
			}
			var watching sync.WaitGroup
			defer watching.Wait()
			ctx, drain, stop := followSignals(command.Context())
			defer stop()
			options.Drain = drain
			if err := f.listenToItself(ctx, &options, &watching); err != nil {
				return err
			}
			if err := f.sidecar.speakFor(ctx, &options, &watching); err != nil {
				return err
			}
			return agent.Run(ctx, options)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	f.declare(command)
	return command
}

func (f *flags) declare(command *cobra.Command) {
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&f.options.Router, "router", "", "address of the router, host:port")
	set.StringVar(&f.tokenFile, "token-file", "", "file with the runner token (else $"+tokenVariable+")")
	set.StringVar(&f.options.InstanceID, "instance-id", "", "the provider's id of the instance this runs on (default what the cloud's metadata service says)")
	set.StringVar(&f.cloud, "cloud", cmp.Or(os.Getenv(cloudVariable), string(notices.NoCloud)), "whose metadata service to ask: aws, gce, auto or none (else $"+cloudVariable+")")
	set.StringVar(&f.metadataEndpoint, "metadata-endpoint", notices.DefaultEndpoint, "where it answers; a loopback or link-local address")
	set.StringVar(&f.check.Command, "health-check", "", "command that fails when this machine is broken, for /bin/sh")
	set.DurationVar(&f.check.Every, "health-check-every", health.DefaultEvery, "time between two runs of it")
	set.IntVar(&f.check.Failures, "health-check-failures", health.DefaultFailures, "failures in a row until it is believed")
	set.StringVar(&f.options.MachineID, "machine-id", "", "id of this process (default random)")
	set.IntVar(&f.options.Capacity, "capacity", 1, "jobs at once")
	set.StringToStringVar(&f.options.Labels, "label", nil, "where this machine is, for the choice of machines: zone=NAME, distance=NUMBER; may be repeated")
	set.StringVar(&f.workDir, "work-dir", "", "directory for the jobs' private ones, made if absent (default the system's temporary one)")
	set.BoolVar(&f.options.JobLogs, "job-logs", false, "keep each job's whole output in output.log of its directory while it runs")
	set.StringVar(&f.debug, "debug", cmp.Or(os.Getenv(debugVariable), "off"), "on: whom the control plane gives the role debug may run commands as the jobs' user, and reach the jobs' sockets and this machine's loopback (else $"+debugVariable+")")
	set.DurationVar(&f.options.DrainTimeout, "drain-timeout", agent.DefaultDrainTimeout, "how long jobs may go on after SIGTERM")
	set.DurationVar(&f.options.StopGrace, "stop-grace", agent.DefaultStopGrace, "how long a job that is to end gets between SIGTERM and SIGKILL")
	set.BoolVar(&f.plaintext, "plaintext", false, "no TLS; for a router on a loopback address only")
	set.StringVar(&f.ca, "ca-file", "", "PEM file of the authorities that may vouch for the router (default the system's); read again when it changes")
	set.StringVar(&f.cert, "cert", "", "PEM file of this machine's certificate, for mutual TLS; read again when it changes")
	set.StringVar(&f.key, "key", "", "PEM file of its key")
	f.sidecar.declare(command)
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// complete turns the command line into options.
func (f *flags) complete(command *cobra.Command) (agent.Options, error) {
	o := f.options
	o.Version = version
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return o, fmt.Errorf("%w: --log-level %q: use debug, info, warn or error", errUsage, f.logLevel)
	}
	o.Log = slog.New(slog.NewTextHandler(command.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	if o.DrainTimeout <= 0 || o.StopGrace <= 0 {
		return o, fmt.Errorf("%w: --drain-timeout and --stop-grace must be more than 0", errUsage)
	}
	if f.debug != "on" && f.debug != "off" {
		return o, fmt.Errorf("%w: --debug %q: use on or off", errUsage, f.debug)
	}
	o.Debug = f.debug == "on"
	if err := f.checkSelf(); err != nil {
		return o, err
	}
	if err := f.sidecar.complete(command, &o); err != nil {
		return o, err
	}
	if err := f.credentials(&o); err != nil {
		return o, err
	}
	if f.workDir != "" {
		if err := os.MkdirAll(f.workDir, 0o700); err != nil {
			return o, fmt.Errorf("make the work directory: %w", err)
		}
		o.WorkDir = f.workDir
	}
	return o, nil
}

// credentials are read once here, so that a wrong path ends the program at once;
// later a file that is just being replaced is no reason to.
func (f *flags) credentials(o *agent.Options) error {
	token, inVariable := os.LookupEnv(tokenVariable)
	_ = os.Unsetenv(tokenVariable)
	switch {
	case f.tokenFile != "":
		o.Token = agent.TokenFile(f.tokenFile)
	case inVariable:
		o.Token = agent.StaticToken(token)
	default:
		return fmt.Errorf("%w: no runner token: use --token-file or $%s", errUsage, tokenVariable)
	}
	if _, err := o.Token(); err != nil {
		return err
	}
	if f.plaintext {
		if f.ca+f.cert+f.key != "" {
			return fmt.Errorf("%w: --plaintext uses no --ca-file, --cert and --key", errUsage)
		}
		return nil
	}
	var err error
	o.TLS, err = agent.LoadTLS(f.ca, f.cert, f.key, func(err error) {
		o.Log.Warn("certificates on disk are of no use; the ones before stay in use", "error", err)
	})
	return err
}
