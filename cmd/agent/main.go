package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spillway-ci/spillway/agent"
)

// version is set when a release is linked.
var version = "dev"

// Exit codes, as sysexits.h has them where it has one.
const (
	exitLeft    = 0  // left in order
	exitFailed  = 1  // could not begin
	exitUsage   = 64 // a flag is missing or wrong
	exitCut     = 75 // left in time, but jobs were cut short; the router has them run elsewhere
	exitRefused = 77 // the router refused the runner token: give it another one before trying again
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func main() {
	keepEnvironmentToOurselves()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command := newCommand()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "spillway-agent:", err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitLeft
	case errors.Is(err, errUsage), errors.Is(err, agent.ErrOptions):
		return exitUsage
	case errors.Is(err, agent.ErrUnauthenticated):
		return exitRefused
	case errors.Is(err, agent.ErrDrainTimeout), errors.Is(err, errCutBySignal):
		return exitCut
	default:
		return exitFailed
	}
}
