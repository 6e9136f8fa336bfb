// Command minirunnerd is one gitlab-runner process for tests: package minirunner
// behind flags and signals.
//
// SIGQUIT: no new jobs, and it ends when the last one has (0). SIGTERM and SIGINT cut
// jobs short (75 if there were any, 0 otherwise). It logs to stderr, and never a
// token.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
)

// Exit codes, as sysexits.h has them where it has one.
const (
	exitLeft   = 0
	exitFailed = 1
	exitUsage  = 64
	exitCut    = 75
)

// tokenVariable holds the runner token when --token doesn't: the command line can be
// read by everybody.
const tokenVariable = "GITLAB_RUNNER_TOKEN"

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "minirunnerd:", err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	c.options.Log = log
	r, err := minirunner.New(c.options)
	if err != nil {
		fmt.Fprintln(stderr, "minirunnerd:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		<-quit
		log.Info("no new jobs from now on")
		r.Quit()
	}()
	end, err := serveMetrics(c.metrics, r.Metrics(), log)
	if err != nil {
		fmt.Fprintln(stderr, "minirunnerd:", err)
		return exitFailed
	}
	defer end()
	log.Info("runner begins", "system_id", r.SystemID(), "concurrent", max(c.options.Concurrent, 1), "router", c.options.Router)
	err = r.Run(ctx)
	log.Info("runner ends", "error", err)
	switch {
	case err == nil:
		return exitLeft
	case errors.Is(err, minirunner.ErrCut):
		return exitCut
	default:
		return exitFailed
	}
}

type command struct {
	options minirunner.Options
	metrics string
}

func parse(args []string, stderr io.Writer) (command, error) {
	c := command{}
	o := &c.options
	flags := flag.NewFlagSet("minirunnerd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.URL, "url", "", "GitLab's `URL`, or that of what stands before it")
	flags.StringVar(&o.Token, "token", "", "the runner's authentication `token`; better in "+tokenVariable)
	flags.StringVar(&o.SystemID, "system-id", "", "the machine's `id`; random by default")
	flags.StringVar(&o.Name, "name", "minirunner", "the runner's `name`")
	flags.StringVar(&o.Version, "runner-version", "", "the `version` that it says it has")
	flags.IntVar(&o.Concurrent, "concurrent", 1, "the most jobs at once")
	flags.IntVar(&o.RequestConcurrency, "request-concurrency", 1, "the most requests for a job at once")
	labels := flags.String("labels", "", "labels, `k=v,…`")
	flags.StringVar(&c.metrics, "listen-metrics", "", "the `address` to serve metrics on")
	check := flags.Duration("check-interval", 0, "the `time` between two requests for a job")
	scale := flags.Float64("time-scale", 1, "multiply all of gitlab-runner's times")
	flags.BoolVar(&o.Router, "router", false, "FF_USE_JOB_ROUTER")
	flags.BoolVar(&o.Legacy, "legacy", false, "do not say two_phase_job_commit")
	flags.StringVar(&o.CAFile, "ca-file", "", "a `file` of certificates to trust")
	flags.StringVar(&o.WorkDir, "work-dir", "", "the `directory` for the jobs' files")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("what is %q?", flags.Arg(0))
	}
	if *scale <= 0 {
		return c, errors.New("--time-scale must be more than 0")
	}
	o.Times = minirunner.GitLabTimes().Scaled(*scale)
	if *check > 0 {
		o.Times.Check = *check
	}
	if o.Token == "" {
		o.Token = os.Getenv(tokenVariable)
	}
	// A job must not find it there.
	if err := os.Unsetenv(tokenVariable); err != nil {
		return c, err
	}
	return c, parseLabels(*labels, o)
}

func parseLabels(text string, o *minirunner.Options) error {
	if text == "" {
		return nil
	}
	o.Labels = map[string]string{}
	for label := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(label, "=")
		if !found || key == "" {
			return fmt.Errorf("--labels: %q is not key=value", label)
		}
		o.Labels[key] = value
	}
	return nil
}

// serveMetrics serves metrics until end is called; without an address it does
// nothing.
func serveMetrics(address string, metrics http.Handler, log *slog.Logger) (end func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	log.Info("metrics", "address", listener.Addr())
	return func() { _ = server.Close() }, nil
}
