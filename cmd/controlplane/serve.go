package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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
		Long:  "Run one replica of the control plane until it gets SIGINT or SIGTERM.\n" + exitCodesHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.ErrOrStderr(), path)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cmd.ErrOrStderr(), cfg)
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

func serve(ctx context.Context, stderr io.Writer, cfg *config.Config) error {
	if os.Getenv("GOGC") == "" {
		tuning, stop := context.WithCancel(ctx)
		defer stop()
		go tuneGC(tuning)
	}
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
	err = cp.Run(ctx)
	log.Info("stopped")
	return withCode(exitFailed, err)
}
