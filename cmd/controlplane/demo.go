package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/examples/laptop"
	"github.com/spillway-ci/spillway/jobfile"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
)

// demoTimeout bounds the whole demo: the example takes a quarter of it.
const demoTimeout = 4 * time.Minute

// pollEvery is how often the demo looks at jobs and pools.
const pollEvery = 200 * time.Millisecond

func newDemo() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job on this machine: real jobs, real processes, no services",
		Long: `Start a control plane with its embedded store and the local provider, push real shell jobs for
three pools, show how the pools follow them, and print a summary when all is done.
` + exitCodesHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out, d.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.jobsPath, "jobs", "", "file with one job a line (default: the built-in examples/laptop/jobs.jsonl)")
	cmd.Flags().StringVar(&d.configPath, "config", "", "configuration (default: the built-in examples/laptop/spillway.yaml)")
	cmd.Flags().StringVar(&d.binDir, "bin", "", "folder of spillway-agent and plugins/ (default: where this program is)")
	cmd.Flags().BoolVarP(&d.verbose, "verbose", "v", false, "log what the control plane does, to standard error")
	outputFlag(cmd, &d.output)
	return cmd
}

// demo is one run of the demo.
type demo struct {
	jobsPath, configPath, binDir, output string
	verbose                              bool
	out, err                             io.Writer

	dir   string // private, removed at the end
	jobs  []spillway.Job
	cfg   *config.Config
	cp    *controlplane.ControlPlane
	tally *tally
}

func (d *demo) run(ctx context.Context) (err error) {
	asJSON, err := jsonWanted(d.output)
	if err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "spillway-demo-"); err != nil {
		return withCode(exitUnavailable, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if err := d.prepare(); err != nil {
		return withCode(exitUsage, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, demoTimeout, fmt.Errorf("the demo was not done after %s", demoTimeout))
	defer cancel()
	if err := d.start(ctx); err != nil {
		return withCode(exitUnavailable, err)
	}
	s, err := d.play(ctx, asJSON)
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		fmt.Fprintln(d.err, "interrupted: everything that the demo had started is stopped")
		return withCode(exitInterrupted, errSilent)
	case err != nil:
		return withCode(exitFailed, err)
	case asJSON:
		return withCode(exitFailed, s.writeJSON(d.out))
	default:
		return withCode(exitFailed, s.writeText(d.out))
	}
}

// prepare reads jobs and configuration, and fills in what only this run knows:
// free ports, paths and fresh tokens.
func (d *demo) prepare() (err error) {
	jobs, jobsName := laptop.Jobs, "examples/laptop/jobs.jsonl"
	if d.jobsPath != "" {
		jobsName = d.jobsPath
		if jobs, err = os.ReadFile(d.jobsPath); err != nil {
			return err
		}
	}
	if d.jobs, err = jobfile.Parse(jobsName, bytes.NewReader(jobs)); err != nil {
		return err
	}
	text, name := laptop.Config, "examples/laptop/spillway.yaml"
	if d.configPath != "" {
		name = d.configPath
		if text, err = os.ReadFile(d.configPath); err != nil {
			return err
		}
	}
	if d.binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		d.binDir = filepath.Dir(self)
	}
	if d.cfg, err = config.Parse(name, text); err != nil {
		return err
	}
	d.cfg.Listen.Runners, d.cfg.Listen.API, d.cfg.Listen.Metrics = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	d.cfg.PluginDir = filepath.Join(d.binDir, "plugins")
	return d.writeTokens()
}

// writeTokens gives each pool a fresh token, in a file that only we can read.
func (d *demo) writeTokens() error {
	for i := range d.cfg.Pools {
		path := d.tokenFile(d.cfg.Pools[i].Group)
		if err := os.WriteFile(path, []byte(rand.Text()), 0o600); err != nil {
			return err
		}
		d.cfg.Pools[i].RunnerToken = config.SecretSource{File: path}
	}
	return nil
}

func (d *demo) tokenFile(group string) string { return filepath.Join(d.dir, "token-"+group) }

// providerConfig completes the local provider's settings of the example.
func (d *demo) providerConfig(_ string, configured []byte, runners string) ([]byte, error) {
	settings := map[string]any{}
	if err := json.Unmarshal(configured, &settings); err != nil {
		return nil, err
	}
	settings["agent"] = filepath.Join(d.binDir, "spillway-agent")
	settings["router"] = runners
	settings["plaintext"] = true
	settings["work_dir"] = d.dir
	groups, _ := settings["groups"].([]any)
	for _, g := range groups {
		if group, ok := g.(map[string]any); ok {
			group["token_file"] = d.tokenFile(fmt.Sprint(group["name"]))
		}
	}
	return json.Marshal(settings)
}

func (d *demo) start(ctx context.Context) (err error) {
	log := slog.New(slog.DiscardHandler)
	if d.verbose {
		if log, err = server.NewLogger(d.err, d.cfg.Log); err != nil {
			return err
		}
	}
	d.tally = newTally()
	d.cp, err = controlplane.New(ctx, d.cfg, controlplane.Options{
		Log: log, Version: version, ProviderConfig: d.providerConfig,
		Scaler:  scaler.Events{Decided: d.tally.decided, Called: d.tally.called, Changed: d.tally.changed},
		Session: session.Events{MachineConnected: d.tally.connected, JobLost: d.tally.lost},
	})
	return err
}

// play runs the control plane and, beside it, the story.
func (d *demo) play(ctx context.Context, quiet bool) (s *summary, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.cp.Run(ctx) })
	g.Go(func() error {
		defer cancel()
		var err error
		s, err = d.story(ctx, quiet)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// story pushes the jobs, waits until all have ended and the pools are back at
// their minimum, and adds up.
func (d *demo) story(ctx context.Context, quiet bool) (*summary, error) {
	conn, err := grpc.NewClient("passthrough:///"+d.cp.Addr(controlplane.API), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	pusher := &pusher{conn: conn}
	d.tally.begin(time.Now())
	if err := pusher.push(ctx, d.jobs); err != nil {
		return nil, err
	}
	view := newView(d.out, quiet, len(d.jobs))
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		records, err := pusher.records(ctx)
		if err != nil {
			return nil, err
		}
		pools := d.cp.Pools()
		view.show(pools, records)
		if allEnded(records, len(d.jobs)) && atMinimum(pools) {
			view.end()
			return d.tally.summarize(time.Now(), records, finalDesired(pools)), nil
		}
		select {
		case <-ctx.Done():
			view.end()
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func allEnded(records []*typesv1.JobRecord, want int) bool {
	ended := 0
	for i := range records {
		if terminal(records[i]) {
			ended++
		}
	}
	return ended >= want
}

func atMinimum(pools []server.PoolStatus) bool {
	for i := range pools {
		p := &pools[i]
		if p.Desired != p.Min || p.InService+p.Booting > p.Min || p.Draining+p.Lost > 0 {
			return false
		}
	}
	return true
}

func finalDesired(pools []server.PoolStatus) map[string]int {
	out := make(map[string]int, len(pools))
	for i := range pools {
		out[pools[i].Pool.Name] = pools[i].Desired
	}
	return out
}
