package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func (a *app) explainJobCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain-job JOB", Short: "Show how the router would choose a place for a job now",
		Long: `Show how the router would choose a place for a job now: what each pool has for it, in
the order in which pools are considered, what comes of it, and how the machines of a
pool with places compare. What speaks against a machine is added up; the least is best.

The control plane that is asked answers for its own machines; what other replicas have
free is in the column ELSEWHERE.`,
		Args: exactly("a job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ExplainJob, &adminv1.ExplainJobRequest{JobId: args[0]})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { placeChoices(w, resp) })
			})
		},
	}
}

func placeChoices(w io.Writer, resp *adminv1.ExplainJobResponse) {
	r := resp.GetRecord()
	_, _ = fmt.Fprintf(w, "Job %s needs %s and is %s.\n%s\n", printable(r.GetJob().GetId()), printable(tags(r.GetJob().GetRequirement())), stateName(r.GetState()), printable(resp.GetSummary()))
	_, _ = fmt.Fprintf(w, "Of its class %d wait, %d of them for admission; its project has %d running; %d jobs of other classes come before the class's first.\n\n",
		resp.GetWaiting()+resp.GetUnadmitted(), resp.GetUnadmitted(), resp.GetProjectRunning(), resp.GetServedBefore())
	t := newTable(w, "POOL", "PRIORITY", "COST", "FREE", "ELSEWHERE", "ROOM", "OUTCOME", "WHY")
	for _, p := range resp.GetPools() {
		t.row(p.GetPool(), number(p.GetPriority()), fmt.Sprintf("%g", p.GetCostPerJob()), number(p.GetFree()), number(p.GetElsewhere()),
			number(p.GetRoom()), dash(p.GetOutcome()), p.GetDetail())
	}
	t.flush()
	for _, p := range resp.GetPools() {
		if len(p.GetMachines()) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "\nMachines of %s, the best first:\n", printable(p.GetPool()))
		t := newTable(w, "  MACHINE", "AGAINST IT", "COST", "HISTORY", "AFFINITY", "ANTI-AFFINITY", "TOPOLOGY")
		for _, m := range p.GetMachines() {
			t.row("  "+m.GetMachineId(), weight(m.GetSum()), weight(m.GetCost()), weight(m.GetHistory()), weight(m.GetAffinity()),
				weight(m.GetAntiAffinity()), weight(m.GetTopology()))
		}
		t.flush()
	}
}

func weight(x float64) string { return fmt.Sprintf("%.2f", x) }
