// Command bench measures Spillway beside the limits of its work and beside peers,
// and prints one table for each benchmark. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-ci/spillway/internal/bench/child"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/suite"
)

const usage = `Usage: bench [-run REGEX] [-rounds N] [-short] [-o text|json]

Each benchmark runs its subjects in rotated rounds and prints medians with their
bands, ratios to a reference of the same round, and whether targets are met. A
target that is missed is only printed; a row is called noisy, and neither met nor
missed, when others use more than a fifth of the machine.

Everything runs on this machine, with servers of its own that end with it.

Exit codes: 0 measured; 1 something broke, or an exact counter is wrong; 2 usage;
130 interrupted.

`

const (
	exitBroken      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == child.Command {
		if err := suite.Child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(exitBroken)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	suite.Settings

	pattern string
	json    bool
}

func run(ctx context.Context, args []string, out, log io.Writer) int {
	o, flags, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(out, flags)
		return 0
	case err != nil:
		fmt.Fprintln(log, "bench:", err)
		return exitUsage
	}
	selected, err := suite.Select(o.pattern)
	if err != nil {
		fmt.Fprintln(log, "bench:", err)
		return exitUsage
	}
	var tables []*measure.Table
	suite.Run(ctx, selected, o.Settings, log, func(t *measure.Table) {
		tables = append(tables, t)
		if !o.json {
			err = errors.Join(err, t.WriteText(out))
		}
	})
	if o.json {
		err = measure.WriteJSON(out, tables)
	}
	return exitCode(ctx, tables, err)
}

func exitCode(ctx context.Context, tables []*measure.Table, err error) int {
	if ctx.Err() != nil {
		return exitInterrupted
	}
	if err != nil {
		return exitBroken
	}
	for _, t := range tables {
		if t.Broken() {
			return exitBroken
		}
	}
	return 0
}

func parse(args []string) (options, *flag.FlagSet, error) {
	var o options
	var output string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // errors are returned, help is asked for
	f.StringVar(&o.pattern, "run", "", "only benchmarks whose name matches this regular `expression`")
	f.IntVar(&o.Rounds, "rounds", 0, fmt.Sprintf("`number` of rounds of each benchmark (default %d, with -short %d)", suite.DefaultRounds, suite.ShortRounds))
	f.BoolVar(&o.Short, "short", false, "less work, for CI")
	f.StringVar(&output, "o", "text", "output `format`: text or json")
	if err := f.Parse(args); err != nil {
		return o, f, err
	}
	switch {
	case f.NArg() > 0:
		return o, f, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case output != "text" && output != "json":
		return o, f, fmt.Errorf("-o %q: use text or json", output)
	case o.Rounds < 0:
		return o, f, fmt.Errorf("-rounds %d: use 1 or more", o.Rounds)
	}
	o.json = output == "json"
	switch {
	case o.Rounds > 0:
	case o.Short:
		o.Rounds = suite.ShortRounds
	default:
		o.Rounds = suite.DefaultRounds
	}
	return o, f, nil
}

func help(out io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(out, usage)
	flags.SetOutput(out)
	flags.PrintDefaults()
	fmt.Fprintln(out, "\nBenchmarks:")
	for _, b := range suite.All() {
		fmt.Fprintf(out, "  %-18s %s\n", b.Name, b.What)
	}
}
