package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

const (
	defaultAddr  = "127.0.0.1:7701"
	addrVariable = "SPILLWAY_ADDR"
	// tokenFileVariable names the file with the token when no flag does.
	tokenFileVariable = "SPILLWAY_TOKEN_FILE"
	defaultTimeout    = 10 * time.Second
)

// app is one invocation.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time // ages in tables are relative to it

	addr              string
	caFile            string
	certFile, keyFile string
	tokenFile         string
	plaintext         bool
	output            string
	timeout           time.Duration
}

// run executes one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		_, _ = fmt.Fprintln(a.stderr, "spillwayctl:", output([]byte(text))) // there is nowhere else to say it
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag") {
		return exitUsage // cobra's own, which have no type
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillwayctl",
		Short: "Ask and command a running Spillway control plane",
		Long: `spillwayctl asks a running control plane what it sees and why it decided, and
submits and cancels jobs.

It talks to the api address of the control plane (listen.api): in plaintext on a
loopback address, otherwise with TLS. Where that has an access section, --token-file
or a client certificate says who asks.

` + exitCodesHelp,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.checkFlags() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	flags := root.PersistentFlags()
	flags.StringVar(&a.addr, "addr", cmp.Or(a.getenv(addrVariable), defaultAddr), "api address of the control plane, HOST:PORT (env "+addrVariable+")")
	flags.StringVar(&a.caFile, "ca-file", "", "trust certificates of this authority instead of the system's")
	flags.StringVar(&a.certFile, "cert-file", "", "client certificate, where the control plane wants one")
	flags.StringVar(&a.keyFile, "key-file", "", "key of the client certificate")
	flags.StringVar(&a.tokenFile, "token-file", a.getenv(tokenFileVariable), "file with the token of an entry of the control plane's access section (env "+tokenFileVariable+")")
	flags.BoolVar(&a.plaintext, "plaintext", false, "no TLS, whatever the address")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long one request may take")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		a.poolsCommand(), a.demandCommand(), a.jobsCommand(), a.jobCommand(), a.runnersCommand(), a.sourcesCommand(), a.explainCommand(),
		a.whyNotCommand(), a.explainJobCommand(), a.priorityCommand(), a.admissionCommand(), a.cellsCommand(), a.coordinatorCommand(), a.pluginCommand(), a.fleetingCommand(), a.importCommand(), a.versionCommand(),
	)
	return root
}

func (a *app) checkFlags() error {
	switch {
	case a.output != "table" && a.output != "json":
		return usagef("--output %q: use table or json", a.output)
	case a.timeout <= 0:
		return usagef("--timeout %s: use a duration above 0, such as 10s", a.timeout)
	case a.plaintext && (a.caFile != "" || a.certFile != ""):
		return usagef("--plaintext is without TLS: leave --ca-file and --cert-file out, or --plaintext")
	case a.plaintext && a.tokenFile != "" && !tlsfiles.Loopback(a.addr):
		return usagef("--plaintext to %s would show the token to everybody on the way: use TLS, or leave --token-file and %s out", a.addr, tokenFileVariable)
	case (a.certFile == "") != (a.keyFile == ""):
		return usagef("--cert-file and --key-file belong together: set both or neither")
	case !strings.Contains(a.addr, ":"):
		return usagef("--addr %q: write HOST:PORT, such as %s", a.addr, defaultAddr)
	}
	return nil
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, sub := range c.Commands() {
				names = append(names, sub.Name())
			}
			return usagef("there is no command %q; %s has %s", nameOf(c)+" "+args[0], nameOf(c), strings.Join(names, ", "))
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// nameOf is a command as it is typed after the program's own name.
func nameOf(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// exactly takes a fixed list of arguments, named in what it says otherwise.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usagef("%s takes no argument, got %q", nameOf(c), args[0])
		}
		return usagef("%s takes %s, got %d arguments", nameOf(c), strings.Join(names, " and "), len(args))
	}
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s takes at least one %s", nameOf(c), name)
		}
		return nil
	}
}
