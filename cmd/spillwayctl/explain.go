package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func (a *app) explainCommand() *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use: "explain POOL", Short: "Show a pool's newest decisions, step by step",
		Args: exactly("a pool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.Explain, &adminv1.ExplainRequest{Pool: args[0], Limit: limit})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { decisions(w, args[0], resp) })
			})
		},
	}
	cmd.Flags().Int32Var(&limit, "limit", 10, "how many decisions, newest first")
	return cmd
}

func decisions(w io.Writer, pool string, resp *adminv1.ExplainResponse) {
	if len(resp.GetDecisions()) == 0 {
		_, _ = fmt.Fprintf(w, "Pool %s has not decided anything yet.\n", printable(pool))
	}
	for i, d := range resp.GetDecisions() {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "%s  %s  %s  because of %s\n", clock(d.GetAt()), printable(d.GetPool()), change(d), printable(dash(d.GetReason())))
		t := newTable(w, "  STEP", "INSTANCES", "WHY")
		for _, s := range d.GetTrace() {
			t.row("  "+s.GetName(), arrow(s.GetBefore(), s.GetAfter()), s.GetWhy())
		}
		if len(d.GetTrace()) > 0 {
			t.flush()
		}
		if d.GetAction() != "" {
			_, _ = fmt.Fprintf(w, "  did %s: %s\n", printable(d.GetAction()), printable(cmp.Or(d.GetResult(), "no result known")))
		}
	}
}

func change(d *adminv1.Decision) string {
	switch d.GetDirection() {
	case "in":
		if d.GetFrom() == d.GetTo() { // what was drained before is removed now
			return fmt.Sprintf("complete the scale in to %d", d.GetTo())
		}
		return "scale in " + arrow(d.GetFrom(), d.GetTo())
	case "out":
		return "scale out " + arrow(d.GetFrom(), d.GetTo())
	default:
		return fmt.Sprintf("stay at %d", d.GetTo())
	}
}

func arrow(before, after int32) string {
	if before == after {
		return number(after)
	}
	return fmt.Sprintf("%d → %d", before, after)
}

func (a *app) whyNotCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why-not JOB", Short: "Say for each pool what keeps a job from running there",
		Args: exactly("a job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.WhyNot, &adminv1.WhyNotRequest{JobId: args[0]})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { verdicts(w, resp) })
			})
		},
	}
}

func verdicts(w io.Writer, resp *adminv1.WhyNotResponse) {
	r := resp.GetRecord()
	_, _ = fmt.Fprintf(w, "Job %s needs %s and is %s.\n%s\n\n", printable(r.GetJob().GetId()), printable(tags(r.GetJob().GetRequirement())), stateName(r.GetState()), printable(resp.GetSummary()))
	t := newTable(w, "POOL", "CAN TAKE IT", "FAILS", "WHY")
	for _, v := range resp.GetVerdicts() {
		can := "no"
		if v.GetCanTake() {
			can = "yes"
		}
		t.row(v.GetPool(), can, dash(v.GetPredicate()), v.GetDetail())
	}
	t.flush()
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of spillwayctl",
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			format := "spillwayctl %s (%s)\n"
			if a.output == "json" {
				format = "{\"version\": %q, \"go\": %q}\n"
			}
			_, err := fmt.Fprintf(a.stdout, format, version, runtime.Version())
			return err
		},
	}
}
