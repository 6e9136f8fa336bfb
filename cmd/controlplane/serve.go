package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/server"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a control plane",
		Long: `Run one replica of the control plane until it gets SIGINT or SIGTERM.

On SIGHUP the configuration is read again: policies, priorities, costs and capabilities
of the pools that there are change at once; what needs a restart is logged. A file that
is not valid changes nothing.
` + exitCodesHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.ErrOrStderr(), path)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cmd.ErrOrStderr(), path, cfg)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "spillway.yaml", "configuration file; see validate --example")
	return cmd
}

// read reads a configuration.
func read(path string) (*config.Config, error) {
	cfg, err := config.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w\nmake one from `controlplane validate --example`, or name yours with --config", err)
	}
	return cfg, withCode(exitUsage, err)
}

// load reads a configuration and prints its warnings.
func load(stderr io.Writer, path string) (*config.Config, error) {
	cfg, err := read(path)
	if err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintln(stderr, "warning:", w)
	}
	return cfg, nil
}

func serve(ctx context.Context, stderr io.Writer, path string, cfg *config.Config) error {
	if os.Getenv("GOGC") == "" {
		tuning, stop := context.WithCancel(ctx)
		defer stop()
		go tuneGC(tuning)
	}
	hangups := make(chan os.Signal, 1) // one that comes while it starts is looked at then
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	log, err := server.NewLogger(stderr, cfg.Log)
	if err != nil {
		return withCode(exitUsage, err)
	}
	cp, err := controlplane.New(ctx, cfg, controlplane.Options{Log: log, Version: version})
	if err != nil {
		return withCode(exitUnavailable, err)
	}
	at := []any{
		"version", version, "replica", cfg.ReplicaName(), "runners", cp.Addr(controlplane.Runners),
		"api", cp.Addr(controlplane.API), "metrics", cp.Addr(controlplane.Metrics),
	}
	if cfg.Listen.GitLab != "" {
		at = append(at, "gitlab", cp.Addr(controlplane.GitLab))
	}
	if cfg.Listen.JobRouter != "" {
		at = append(at, "job_router", cp.Addr(controlplane.JobRouter))
	}
	log.Info("serving", at...)
	stopReloading := reloadOnHangup(hangups, log, path, cp)
	err = cp.Run(ctx)
	stopReloading()
	log.Info("stopped")
	return withCode(exitFailed, err)
}

// reloadOnHangup reads the configuration again at each SIGHUP, until stop.
func reloadOnHangup(hangups chan os.Signal, log *slog.Logger, path string, cp *controlplane.ControlPlane) (stop func()) {
	var running sync.WaitGroup
	running.Go(func() {
		for range hangups {
			reload(log, path, cp)
		}
	})
	return func() {
		signal.Ignore(syscall.SIGHUP) // it comes too late, and must not kill what ends in order
		close(hangups)
		running.Wait()
	}
}

func reload(log *slog.Logger, path string, cp *controlplane.ControlPlane) {
	cfg, err := read(path)
	if err != nil {
		log.Error("the configuration is not valid: everything stays as it was", "file", path, "error", err)
		return
	}
	for _, w := range cfg.Warnings() {
		log.Warn("configuration", "warning", w.String())
	}
	r, err := cp.Reload(cfg)
	if err != nil {
		log.Error("the configuration can't be taken over: everything stays as it was", "file", path, "error", err)
		return
	}
	log.Info("configuration read again", "file", path, "pools_changed", r.Pools)
	if len(r.Restart) > 0 {
		log.Warn("these settings differ and take effect with a restart only", "settings", r.Restart)
	}
}
