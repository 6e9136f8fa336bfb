package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func (a *app) priorityCommand() *cobra.Command {
	return group("priority", "Show and change in which order pools take jobs",
		a.priorityListCommand(), a.prioritySetCommand(), a.priorityClearCommand())
}

func (a *app) priorityListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the pools of each fingerprint in the order in which they take jobs",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListPriorities, &adminv1.ListPrioritiesRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { priorityTable(w, resp.GetPools()...) })
			})
		},
	}
}

func (a *app) prioritySetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "set POOL PRIORITY", Short: "Give a pool another priority, at every replica and at once; 0 takes jobs first",
		Long: `Give a pool another priority than its configuration does, at every replica and at once.
It stays over restarts, until "priority clear", and lapses when the pool's runners come
to take something else.`,
		Args: exactly("POOL", "PRIORITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil {
				return usagef("PRIORITY %q: use a whole number, 0 takes jobs first", args[1])
			}
			return a.setPriority(cmd, &adminv1.SetPriorityRequest{Pool: args[0], Priority: int32(n)})
		},
	}
}

func (a *app) priorityClearCommand() *cobra.Command {
	return &cobra.Command{
		Use: "clear POOL", Short: "Go back to the priority that the configuration gives to a pool",
		Args: exactly("POOL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setPriority(cmd, &adminv1.SetPriorityRequest{Pool: args[0], Clear: true})
		},
	}
}

func (a *app) setPriority(cmd *cobra.Command, req *adminv1.SetPriorityRequest) error {
	return a.with(func(c client) error {
		resp, err := ask(cmd.Context(), a, c.admin.SetPriority, req)
		if err != nil {
			return err
		}
		return a.show(resp, func(w io.Writer) { priorityTable(w, resp.GetPool()) })
	})
}

func priorityTable(w io.Writer, pools ...*adminv1.PoolPriority) {
	t := newTable(w, "FINGERPRINT", "PRIO", "POOL", "CONFIGURED", "SET BY", "SET AT")
	for _, p := range pools {
		setAt := ""
		if p.GetSetAt() != nil {
			setAt = p.GetSetAt().AsTime().Format("2006-01-02 15:04:05Z")
		}
		t.row(fmt.Sprintf("%.12s", p.GetFingerprint()), number(p.GetPriority()), p.GetPool(), number(p.GetConfigured()), dash(printable(p.GetSetBy())), dash(setAt))
	}
	t.flush()
}
