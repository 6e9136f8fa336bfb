package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// Limits of the job service.
const (
	maxPage     = 1_000 // records of one List
	maxIDs      = 1_000 // ids of one Cancel or Watch
	defaultList = 100   // records that `jobs list` shows
)

func (a *app) jobsCommand() *cobra.Command {
	return group("jobs", "List, show, submit, cancel and retry jobs",
		a.jobsListCommand(), a.jobsShowCommand(), a.jobsSubmitCommand(), a.jobsCancelCommand(), a.jobsRetryCommand())
}

func (a *app) jobsListCommand() *cobra.Command {
	var names []string
	var limit int
	var quarantined bool
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d: use 1 or more", limit)
			}
			states, err := parseStates(names)
			if err != nil {
				return err
			}
			if quarantined && len(states) > 0 {
				return usagef("--quarantined and --state: a job in quarantine has failed; leave --state out")
			}
			return a.with(func(c client) error {
				resp, err := a.list(cmd, c, &jobsv1.ListRequest{States: states, Quarantined: quarantined}, limit)
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { jobTable(w, resp) })
			})
		},
	}
	cmd.Flags().StringSliceVar(&names, "state", nil, "only jobs in these states (pending, running, failed …)")
	cmd.Flags().IntVar(&limit, "limit", defaultList, "how many jobs")
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "only jobs that lost too many machines and wait for your word (jobs retry)")
	return cmd
}

// list reads pages until there are enough records.
func (a *app) list(cmd *cobra.Command, c client, of *jobsv1.ListRequest, limit int) (*jobsv1.ListResponse, error) {
	all := &jobsv1.ListResponse{}
	for {
		of.PageSize, of.PageToken = int32(min(limit-len(all.GetRecords()), maxPage)), all.GetNextPageToken()
		resp, err := ask(cmd.Context(), a, c.jobs.List, of)
		if err != nil {
			return nil, err
		}
		all.Records = append(all.Records, resp.GetRecords()...)
		all.At, all.NextPageToken = resp.GetAt(), resp.GetNextPageToken()
		if all.GetNextPageToken() == "" || len(all.GetRecords()) >= limit {
			all.Records = all.Records[:min(len(all.GetRecords()), limit)]
			return all, nil
		}
	}
}

func parseStates(names []string) ([]typesv1.JobState, error) {
	var states []typesv1.JobState
	for _, name := range names {
		value, ok := typesv1.JobState_value["JOB_STATE_"+strings.ToUpper(name)]
		if !ok || value == 0 {
			return nil, usagef("--state %q: use %s", name, strings.Join(stateNames(), ", "))
		}
		states = append(states, typesv1.JobState(value))
	}
	return states, nil
}

func stateNames() []string {
	var names []string
	for value := range typesv1.JobState_name {
		if value != 0 {
			names = append(names, stateName(typesv1.JobState(value)))
		}
	}
	slices.Sort(names)
	return names
}

func jobTable(w io.Writer, resp *jobsv1.ListResponse) {
	t := newTable(w, "JOB", "NAME", "NEEDS", "STATE", "POOL", "MACHINE", "SUBMITTED", "WAITED", "RAN", "FINGERPRINT", "RESULT")
	now := resp.GetAt().AsTime()
	for _, r := range resp.GetRecords() {
		j := r.GetJob()
		t.row(j.GetId(), dash(j.GetName()), tags(j.GetRequirement()), stateName(r.GetState()), dash(r.GetPool()), dash(r.GetMachineId()),
			age(j.GetSubmittedAt(), now), between(j.GetSubmittedAt(), r.GetStartedAt()), between(r.GetStartedAt(), r.GetFinishedAt()),
			dash(short(r.GetCapabilityFingerprint())), result(r))
	}
	t.flush()
	if resp.GetNextPageToken() != "" {
		_, _ = fmt.Fprintln(w, "There are more: use --limit.")
	}
}

func result(r *typesv1.JobRecord) string {
	res := r.GetResult()
	switch {
	case res == nil:
		return "-"
	case res.GetReason() == "script_failure":
		return fmt.Sprintf("exit code %d", res.GetExitCode())
	case res.GetReason() != "":
		return res.GetReason()
	default:
		return "ok"
	}
}

func (a *app) jobsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show one job, with the end of its output",
		Args: exactly("a job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.jobs.Get, &jobsv1.GetRequest{JobId: args[0]})
				if err != nil {
					return err
				}
				return a.show(resp.GetRecord(), func(w io.Writer) { jobDetails(w, resp.GetRecord()) })
			})
		},
	}
}

func jobDetails(w io.Writer, r *typesv1.JobRecord) {
	j, res := r.GetJob(), r.GetResult()
	t := newTable(w, "job", j.GetId())
	line := func(name, value string) {
		if value != "" && value != "-" {
			t.row(name, value)
		}
	}
	line("name", j.GetName())
	line("needs", tags(j.GetRequirement()))
	line("state", stateName(r.GetState()))
	if res != nil {
		line("result", result(r))
		if res.GetDetail() != result(r) {
			line("detail", res.GetDetail())
		}
	}
	line("priority", number(j.GetPriority()))
	line("attempt", number(r.GetAttempt()))
	if r.GetLost() > 0 {
		line("lost machines", number(r.GetLost()))
	}
	if r.GetQuarantined() {
		line("quarantined", "yes; have it tried again with: spillwayctl jobs retry "+j.GetId())
	}
	line("pool", r.GetPool())
	line("machine", r.GetMachineId())
	line("submitted", clock(j.GetSubmittedAt()))
	line("claimed", clock(r.GetClaimedAt()))
	line("started", clock(r.GetStartedAt()))
	line("finished", clock(r.GetFinishedAt()))
	line("waited", between(j.GetSubmittedAt(), r.GetStartedAt()))
	line("ran", between(r.GetStartedAt(), r.GetFinishedAt()))
	if timeout := j.GetTimeout(); timeout != nil {
		line("time limit", human(timeout.AsDuration()))
	}
	line("fingerprint", short(r.GetCapabilityFingerprint()))
	line("job class", r.GetJobClass())
	t.flush()
	timeline(w, r.GetTransitions())
	if out := bytes.TrimRight(res.GetOutput(), "\n"); len(out) > 0 {
		_, _ = fmt.Fprintf(w, "\n%s\n", output(out))
	}
}

// output is the words of somebody else, of a job above all: lines stay, and nothing of
// it steers the terminal.
func output(b []byte) string {
	lines := strings.Split(strings.ToValidUTF8(string(b), "�"), "\n")
	for i, l := range lines {
		lines[i] = printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// timeline shows a job's way, and how long it was in each state.
func timeline(w io.Writer, list []*typesv1.JobTransition) {
	if len(list) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := newTable(w, "#", "AT", "STATE", "FOR", "ATTEMPT", "POOL", "MACHINE", "REASON")
	for i, tr := range list {
		stay := "-"
		if i+1 < len(list) {
			stay = between(tr.GetAt(), list[i+1].GetAt())
		}
		t.row(number(tr.GetSequence()), clock(tr.GetAt()), stateName(tr.GetState()), stay, number(tr.GetAttempt()),
			dash(tr.GetPool()), dash(tr.GetMachineId()), dash(tr.GetReason()))
	}
	t.flush()
}

func (a *app) jobsRetryCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "retry JOB", Short: "Take a job out of quarantine and have it tried again",
		Long: `retry takes a job out of quarantine and puts it back to its place in the queue, as if
it had lost no machine yet. It keeps its id and goes on with its next attempt.

A job is in quarantine when it has lost max_attempts machines: it may be what breaks
them. Only such a job can be tried again; any other is left as it is.`,
		Args: exactly("a job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.jobs.Retry, &jobsv1.RetryRequest{JobId: args[0], Reason: reason})
				if err != nil {
					return err
				}
				return a.show(resp.GetRecord(), func(w io.Writer) { jobDetails(w, resp.GetRecord()) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "retried with spillwayctl", "why, for whoever looks at the job")
	return cmd
}

func (a *app) jobsCancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel JOB …", Short: "Take jobs back, in any state; a job that has ended stays as it is",
		Args: atLeastOne("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				all := &jobsv1.CancelResponse{}
				for ids := range slices.Chunk(args, maxIDs) {
					resp, err := ask(cmd.Context(), a, c.jobs.Cancel, &jobsv1.CancelRequest{JobIds: ids, Reason: reason})
					if err != nil {
						return err
					}
					all.Results = append(all.Results, resp.GetResults()...)
				}
				if err := a.show(all, func(w io.Writer) { cancelTable(w, all) }); err != nil {
					return err
				}
				return allFound(all)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "canceled with spillwayctl", "why, for whoever looks at the job")
	return cmd
}

func cancelTable(w io.Writer, resp *jobsv1.CancelResponse) {
	t := newTable(w, "JOB", "STATE")
	for _, r := range resp.GetResults() {
		state := stateName(r.GetState())
		if !r.GetFound() {
			state = "not found"
		}
		t.row(r.GetJobId(), state)
	}
	t.flush()
}

func allFound(resp *jobsv1.CancelResponse) error {
	missing := 0
	for _, r := range resp.GetResults() {
		if !r.GetFound() {
			missing++
		}
	}
	if missing > 0 {
		return failedf("%d of %d jobs do not exist: never accepted, or ended long ago", missing, len(resp.GetResults()))
	}
	return nil
}
