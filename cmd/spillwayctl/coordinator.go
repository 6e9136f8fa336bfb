package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// workerPrefix is what the machine id of a worker begins with.
const workerPrefix = "worker:"

func (a *app) coordinatorCommand() *cobra.Command {
	return group("coordinator", "Show and change the pools of workers that poll",
		a.coordinatorPoolsCommand(), a.coordinatorWorkersCommand(), a.coordinatorRegisterCommand(), a.coordinatorUnregisterCommand())
}

func (a *app) coordinatorPoolsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Short: "List the pools that workers can serve: how many there are, and should be",
		Long: `List the pools that workers can serve: those of the configuration and the registered ones.

WANTED is how many workers a registered pool should have: one for each job that runs or
waits, and min_idle to spare, at most max. Whoever starts and ends its workers goes by it.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.coordinator.ListPools, &coordinatorpb.ListPoolsRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { servedPoolTable(w, resp.GetPools()...) })
			})
		},
	}
}

func servedPoolTable(w io.Writer, pools ...*coordinatorpb.Pool) {
	t := newTable(w, "POOL", "IDLE", "BUSY", "WANTED", "MIN IDLE", "MAX", "QUEUED", "COMES FROM", "TAGS")
	for _, p := range pools {
		wanted, most, from := number(p.GetWanted()), number(p.GetMax()), "registration"
		if p.GetConfigured() {
			wanted, from = "-", "configuration"
		} else if p.GetMax() == 0 {
			most = "-"
		}
		t.row(p.GetName(), number(p.GetIdle()), number(p.GetBusy()), wanted, number(p.GetMinIdle()), most,
			fmt.Sprintf("%d/%d", p.GetQueued(), p.GetMaxQueued()), from, dash(strings.Join(p.GetTags(), ",")))
	}
	t.flush()
}

func (a *app) coordinatorWorkersCommand() *cobra.Command {
	var req adminv1.ListRunnersRequest
	cmd := &cobra.Command{
		Use: "workers", Short: "List the workers that poll, at every replica",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListRunners, &req)
				if err != nil {
					return err
				}
				resp.Runners = slices.DeleteFunc(resp.Runners, func(r *adminv1.Runner) bool {
					return !strings.HasPrefix(r.GetMachineId(), workerPrefix)
				})
				for _, r := range resp.Runners { // by the name that the worker gives itself
					r.MachineId = strings.TrimPrefix(r.GetMachineId(), workerPrefix)
				}
				return a.show(resp, func(w io.Writer) { a.workerTable(w, resp) })
			})
		},
	}
	cmd.Flags().StringVar(&req.Pool, "pool", "", "only those of this pool")
	_ = cmd.RegisterFlagCompletionFunc("pool", a.completePools(func(*coordinatorpb.Pool) bool { return true }))
	return cmd
}

func (a *app) workerTable(w io.Writer, resp *adminv1.ListRunnersResponse) {
	t := newTable(w, "WORKER", "INSTANCE", "POOL", "STATE", "HEARD")
	for _, r := range resp.GetRunners() {
		t.row(r.GetMachineId(), dash(r.GetInstanceId()), r.GetPool(), runnerState(r), age(r.GetHeardAt(), a.asOf(resp.GetAt())))
	}
	t.flush()
}

func (a *app) coordinatorRegisterCommand() *cobra.Command {
	var req coordinatorpb.RegisterPoolRequest
	cmd := &cobra.Command{
		Use: "register POOL", Short: "Register a pool whose workers come by themselves",
		Long: `Register a pool whose workers come by themselves, at every replica. It stays over
restarts, until "coordinator unregister". Jobs with the tag pool:POOL run in it alone.`,
		Args: exactly("POOL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.coordinator.RegisterPool, &req)
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { servedPoolTable(w, resp.GetPool()) })
			})
		},
	}
	cmd.Flags().StringArrayVar(&req.Tags, "tag", nil, "tag of its workers; may be given several times")
	cmd.Flags().Int32Var(&req.MinIdle, "min-idle", 0, "workers that there are to be to spare")
	cmd.Flags().Int32Var(&req.Max, "max", 0, "workers at most, 0: as many as come")
	return cmd
}

func (a *app) coordinatorUnregisterCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unregister POOL", Short: "Take a registered pool away that has neither workers nor jobs",
		Args:              exactly("POOL"),
		ValidArgsFunction: a.completePools(func(p *coordinatorpb.Pool) bool { return !p.GetConfigured() }),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.coordinator.UnregisterPool, &coordinatorpb.UnregisterPoolRequest{Name: args[0]})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { _, _ = fmt.Fprintf(w, "pool %s is taken away\n", printable(args[0])) })
			})
		},
	}
}

// completePools completes the names of pools, asking the control plane. Who can't be
// asked completes nothing.
func (a *app) completePools(which func(*coordinatorpb.Pool) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil { // cobra completes without one
			ctx = context.Background()
		}
		_ = a.with(func(c client) error {
			resp, err := ask(ctx, a, c.coordinator.ListPools, &coordinatorpb.ListPoolsRequest{})
			for _, p := range resp.GetPools() {
				if which(p) {
					names = append(names, printable(p.GetName()))
				}
			}
			return err
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
