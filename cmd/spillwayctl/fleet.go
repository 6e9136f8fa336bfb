package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func (a *app) poolsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Short: "List the pools: jobs, instances, and what holds them",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListPools, &adminv1.ListPoolsRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { poolTable(w, resp) })
			})
		},
	}
}

func poolTable(w io.Writer, resp *adminv1.ListPoolsResponse) {
	t := newTable(w, "POOL", "PRIO", "JOBS", "DESIRED", "SERVICE", "BOOT", "DRAIN", "LOST", "MIN-MAX", "REASON", "DECIDED", "TAKES")
	for _, p := range resp.GetPools() {
		t.row(p.GetName(), number(p.GetPriority()), fmt.Sprintf("%d+%d", p.GetRunning(), p.GetPending()),
			number(p.GetDesired()), number(p.GetInService()), number(p.GetBooting()), number(p.GetDraining()), number(p.GetLost()),
			fmt.Sprintf("%d-%d", p.GetMin(), p.GetMax()), dash(p.GetLastReason()), age(p.GetDecidedAt(), resp.GetAt().AsTime()), takes(p))
	}
	t.flush()
	for _, p := range resp.GetPools() {
		if p.GetHold() != "" {
			_, _ = fmt.Fprintf(w, "%s is held: %s\n", printable(p.GetName()), printable(p.GetHold()))
		}
		if p.GetFinding() != "" {
			_, _ = fmt.Fprintf(w, "%s: %s\n", printable(p.GetName()), printable(p.GetFinding()))
		}
	}
}

func takes(p *adminv1.PoolStatus) string {
	c := p.GetCapability()
	s := strings.Join(c.GetTags(), ",")
	if c.GetRunUntagged() {
		s += " +untagged"
	}
	if c.GetProtected() {
		s += " protected"
	}
	if c.GetType() != "" && c.GetType() != "instance" {
		s += " " + c.GetType()
	}
	return strings.TrimSpace(s)
}

func (a *app) demandCommand() *cobra.Command {
	var req adminv1.ListDemandRequest
	cmd := &cobra.Command{
		Use: "demand", Short: "List the waiting jobs by class, where they go, and the signals",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListDemand, &req)
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { demandTables(w, resp) })
			})
		},
	}
	cmd.Flags().StringVar(&req.Fingerprint, "fingerprint", "", "only what runners of this fingerprint can take; 12 or more of its hex digits")
	return cmd
}

func (a *app) sourcesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "sources", Short: "List where demand comes from, and how fresh it is",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListSources, &adminv1.ListSourcesRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { sourceTable(w, resp) })
			})
		},
	}
}

func sourceTable(w io.Writer, resp *adminv1.ListSourcesResponse) {
	t := newTable(w, "SOURCE", "EVERY", "GOOD", "CALLS", "STATE")
	for _, s := range resp.GetSources() {
		every, state := "-", "good"
		if s.GetEvery() != nil {
			every = human(s.GetEvery().AsDuration())
		}
		switch {
		case s.GetError() != "":
			state = printable(s.GetError())
		case s.GetGoodAt() == nil:
			state = "nothing heard yet"
		case s.GetPartial():
			state = "partial: a lower bound"
		}
		t.row(s.GetName(), every, age(s.GetGoodAt(), resp.GetAt().AsTime()), number(s.GetCalls()), state)
	}
	t.flush()
}

func demandTables(w io.Writer, resp *adminv1.ListDemandResponse) {
	if len(resp.GetClasses()) == 0 {
		_, _ = fmt.Fprintln(w, "No job waits.")
	} else {
		t := newTable(w, "NEEDS", "PENDING", "OLDEST", "GOES TO", "NO ROOM", "NO POOL", "JOBS")
		for _, c := range resp.GetClasses() {
			noPool := number(c.GetUnmatched())
			if c.GetUnmatched() > 0 && c.GetReason() != "" {
				noPool += " (" + c.GetReason() + ")"
			}
			t.row(tags(c.GetRequirement()), number(c.GetPending()), human(c.GetOldest().AsDuration()), goesTo(c.GetAttributed()),
				number(c.GetOverflow()), noPool, jobIDs(c))
		}
		t.flush()
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "FINGERPRINT", "JOBS", "RUNNERS", "PER RUNNER")
	for _, s := range resp.GetSignals() {
		t.row(short(s.GetFingerprint()), number(s.GetTotalJobs()), number(s.GetTotalRunners()), fmt.Sprintf("%.2f", s.GetDemandPerRunner()))
	}
	t.flush()
}

// maxJobsShown bounds the jobs that a row of the demand names.
const maxJobsShown = 3

func jobIDs(c *adminv1.ClassDemand) string {
	ids := c.GetJobIds()
	if len(ids) > maxJobsShown {
		return strings.Join(ids[:maxJobsShown], " ") + " …"
	}
	return dash(strings.Join(ids, " "))
}

func goesTo(attributed map[string]int64) string {
	var parts []string
	for _, pool := range slices.Sorted(maps.Keys(attributed)) {
		parts = append(parts, fmt.Sprintf("%s:%d", pool, attributed[pool]))
	}
	return dash(strings.Join(parts, " "))
}

func (a *app) runnersCommand() *cobra.Command {
	var req adminv1.ListRunnersRequest
	cmd := &cobra.Command{
		Use: "runners", Short: "List the machines that are registered",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListRunners, &req)
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { a.runnerTable(w, resp) })
			})
		},
	}
	cmd.Flags().StringVar(&req.Pool, "pool", "", "only those of this pool")
	cmd.Flags().StringVar(&req.Fingerprint, "fingerprint", "", "only those of this fingerprint; 12 or more of its hex digits")
	return cmd
}

func (a *app) runnerTable(w io.Writer, resp *adminv1.ListRunnersResponse) {
	t := newTable(w, "MACHINE", "INSTANCE", "POOL", "JOBS", "STATE", "HEARD", "VERSION", "FINGERPRINT")
	for _, r := range resp.GetRunners() {
		t.row(r.GetMachineId(), dash(r.GetInstanceId()), r.GetPool(), fmt.Sprintf("%d/%d", r.GetBusy(), r.GetCapacity()), runnerState(r),
			age(r.GetHeardAt(), a.asOf(resp.GetAt())), dash(r.GetVersion()), dash(short(r.GetFingerprint())))
	}
	t.flush()
}

// runnerState is what a machine does, in a word.
func runnerState(r *adminv1.Runner) string {
	switch {
	case r.GetUnhealthy() != "":
		return "unhealthy"
	case r.GetSilent():
		return "silent"
	case r.GetPaused():
		return "paused"
	case r.GetDraining():
		return "draining"
	case r.GetBusy() > 0:
		return "busy"
	default:
		return "ready"
	}
}
