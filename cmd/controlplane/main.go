// Command controlplane is Spillway's control plane: serve, validate, simulate and
// demo.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// The exit codes. They are part of the interface.
const (
	exitOK          = 0
	exitFailed      = 1   // it ran and failed, or an expectation was false
	exitUsage       = 2   // wrong flags, an invalid file, or a violated invariant in simulate
	exitUnavailable = 3   // something that it needs is not there: a port, Redis, a plugin
	exitInterrupted = 130 // ended by a signal before it was done
)

const exitCodesHelp = `
Exit codes: 0 fine, 1 failed, 2 wrong usage or file (simulate: an invariant was violated),
3 something needed is not there (a port, Redis, a plugin), 130 interrupted.`

// codeError carries an exit code with an error.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// errSilent ends a command whose output has said everything.
var errSilent = errors.New("")

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code, err}
}

func main() {
	// Nobody takes the signals back: a second one, in the last moment, would kill what has
	// ended in order.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	os.Exit(runRoot(ctx, newRoot(), os.Args[1:]))
}

// runRoot runs one command and returns its exit code.
func runRoot(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var coded *codeError
	if !errors.As(err, &coded) {
		coded = &codeError{exitUsage, err} // cobra's own: flags and arguments
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(root.ErrOrStderr(), text)
	}
	return coded.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "controlplane",
		Short: "Spillway: scales CI runner fleets on the jobs that really wait and run",
		Long: `Spillway looks at the CI jobs that really wait and run, decides how many instances each
pool needs, and makes it so through provider plugins.` + "\n" + exitCodesHelp,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServe(), newValidate(), newSimulate(), newDemo(), newRelease())
	return root
}
