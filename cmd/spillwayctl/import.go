package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/config/runnertoml"
)

func (a *app) importCommand() *cobra.Command {
	var write string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Make pools of the autoscaling section of a GitLab Runner's config.toml",
		Long: `Read the [runners.autoscaler] sections of a GitLab Runner's config.toml (- for
standard input) and print the gitlab, providers and pools sections of a
spillway.yaml. No control plane is asked, and no token is taken over: variables
are named in their place.

Whatever has no equivalent, or needs a decision, is listed on standard error
(with -o json: as notes). What is left to fill in says CHANGE-ME. Then:

  controlplane validate spillway.yaml`,
		Args: exactly("one FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.importFile(args[0], write) },
	}
	cmd.Flags().StringVarP(&write, "write", "w", "", "write the pools to this file, which must not exist yet")
	return cmd
}

// imported is what -o json prints.
type imported struct {
	YAML  string            `json:"yaml"`
	Pools int               `json:"pools"`
	Notes []runnertoml.Note `json:"notes"`
}

func (a *app) importFile(path, write string) error {
	data, err := a.readInput(path)
	if err != nil {
		return usagef("%w", err)
	}
	got, err := runnertoml.Import(data)
	if err != nil {
		return usagef("%s: %w", path, err)
	}
	if write != "" {
		if err := writeNew(write, got.YAML); err != nil {
			return usagef("%w", err)
		}
	}
	switch {
	case a.output == "json":
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(imported{YAML: string(got.YAML), Pools: got.Pools, Notes: got.Notes})
	case write == "":
		if _, err := a.stdout.Write(got.YAML); err != nil {
			return err
		}
	}
	a.printNotes(got)
	return nil
}

func (a *app) printNotes(got *runnertoml.Result) {
	_, _ = fmt.Fprintf(a.stderr, "%d pools; %d notes\n", got.Pools, len(got.Notes)) // there is nowhere else to say it
	for _, n := range got.Notes {
		where := n.Setting
		if n.Runner != "" {
			where = n.Runner + ": " + where
		}
		_, _ = fmt.Fprintf(a.stderr, "- %s: %s\n", where, n.Text)
	}
}

// readInput reads a file, or standard input for "-", up to what an import takes.
func (a *app) readInput(path string) ([]byte, error) {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only: nothing can be lost
		in = f
	}
	return io.ReadAll(io.LimitReader(in, runnertoml.MaxFileBytes+1))
}

// writeNew writes a file that nobody else has.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already: name another file, or remove it", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
