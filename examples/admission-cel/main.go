// An admission controller whose rules stand in a file: nobody has to program for
// simple policies.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spillway-ci/spillway/admission/controller"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func main() {
	o := controller.Options{Controller: "cel", Version: "example", Told: told}
	file := flag.String("rules", "", "file with the rules (see rules.yaml); read again on SIGHUP")
	check := flag.Bool("check", false, "read the rules, say what is wrong with them, and end")
	o.Flags(flag.CommandLine)
	flag.Parse()
	if err := run(o, *file, *check); err != nil {
		slog.Error("not started", "error", err)
		os.Exit(1)
	}
}

func run(o controller.Options, file string, check bool) error {
	first, err := load(file)
	if err != nil || check {
		return err
	}
	var current atomic.Pointer[rules]
	current.Store(&first)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	go reload(again, file, &current)
	return controller.Run(ctx, o, func(_ context.Context, job *admissionv1.ReviewedJob) (bool, string) { return current.Load().judge(job) })
}

// reload takes over a file that can be read; another one changes nothing.
func reload(again <-chan os.Signal, file string, current *atomic.Pointer[rules]) {
	for range again {
		next, err := load(file)
		if err != nil {
			slog.Warn("the rules stay as they are", "error", err)
			continue
		}
		current.Store(&next)
		slog.Info("other rules are in force", "rules", len(next))
	}
}

func load(file string) (rules, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--rules: %w", err)
	}
	r, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func told(addr string, err error) {
	if err == nil {
		slog.Info("connected to a control plane", "addr", addr)
	} else {
		slog.Warn("connecting again", "addr", addr, "error", err)
	}
}
