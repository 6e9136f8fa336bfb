package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
)

func (a *app) cellsCommand() *cobra.Command {
	return group("cells", "Show the other cells", a.cellsListCommand())
}

func (a *app) cellsListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the cells that jobs are handed over to, and those that hand us theirs",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.cells.ListCells, &cellsv1.ListCellsRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { cellTables(w, resp) })
			})
		},
	}
}

func cellTables(w io.Writer, r *cellsv1.ListCellsResponse) {
	if r.GetName() == "" {
		_, _ = fmt.Fprintln(w, "This control plane is no cell: its configuration has no cells section.")
		return
	}
	_, _ = fmt.Fprintf(w, "This is cell %s.\n\n", printable(strings.TrimSpace(r.GetName()+" "+r.GetRegion())))
	t := newTable(w, "PEER", "REGION", "STATE", "SINCE", "POOL", "TAGS", "FREE", "GROWTH", "COST", "OURS", "DETAIL")
	for _, p := range r.GetPeers() {
		if len(p.GetPools()) == 0 {
			t.row(p.GetName(), dash(p.GetRegion()), p.GetState(), lasted(p.GetSince()), "-", "-", "-", "-", "-", number(p.GetHandedOver()), dash(p.GetDetail()))
		}
		for _, pool := range p.GetPools() {
			t.row(p.GetName(), dash(p.GetRegion()), p.GetState(), lasted(p.GetSince()), pool.GetPool(), dash(strings.Join(pool.GetCapability().GetTags(), ",")),
				number(pool.GetFree()), number(pool.GetGrowth()), fmt.Sprintf("%g", pool.GetCostPerJob()), number(pool.GetHandedOver()), dash(p.GetDetail()))
		}
	}
	t.flush()
	_, _ = fmt.Fprintln(w)
	t = newTable(w, "ORIGIN", "REGION", "STATE", "SINCE", "THEIRS")
	for _, o := range r.GetOrigins() {
		t.row(o.GetName(), dash(o.GetRegion()), o.GetState(), lasted(o.GetSince()), number(o.GetJobs()))
	}
	t.flush()
}

func lasted(d *durationpb.Duration) string { return d.AsDuration().Truncate(time.Second).String() }
