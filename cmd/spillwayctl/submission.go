package main

import (
	"encoding/json"
	"fmt"
	"strings"

	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// submission is what became of the jobs that were submitted.
type submission struct {
	jobs []*submitted
	byID map[string]*submitted
}

// submitted is one job. Its fields are the output of -o json.
type submitted struct {
	ID       string `json:"id"`
	Push     string `json:"push"` // accepted | duplicate | conflict | invalid | queue_full | unavailable
	Detail   string `json:"detail,omitempty"`
	State    string `json:"state,omitempty"` // from here on with --wait only
	Reason   string `json:"reason,omitempty"`
	ExitCode *int32 `json:"exit_code,omitempty"` // of an ended job
	Pool     string `json:"pool,omitempty"`
}

// taken reports whether the control plane has the job.
func (j *submitted) taken() bool { return j.Push == "accepted" || j.Push == "duplicate" }

func (j *submitted) terminal() bool { return j.ExitCode != nil }

func newSubmission(acks []*jobsv1.PushResponse) *submission {
	s := &submission{byID: map[string]*submitted{}}
	for _, ack := range acks {
		j := &submitted{
			ID:     ack.GetJobId(),
			Push:   strings.ToLower(strings.TrimPrefix(ack.GetStatus().String(), "PUSH_STATUS_")),
			Detail: ack.GetDetail(),
		}
		s.jobs = append(s.jobs, j)
		s.byID[j.ID] = j
	}
	return s
}

// ids of the jobs that the control plane has.
func (s *submission) ids() []string {
	var ids []string
	for _, j := range s.jobs {
		if j.taken() {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// update notes a job's state; it reports whether the job has ended now.
func (s *submission) update(r *typesv1.JobRecord) (ended bool) {
	j := s.byID[r.GetJob().GetId()]
	if j == nil || j.terminal() {
		return false
	}
	j.State, j.Pool = stateName(r.GetState()), r.GetPool()
	if !terminal(r) {
		return false
	}
	code := r.GetResult().GetExitCode()
	j.ExitCode, j.Reason, j.Detail = &code, r.GetResult().GetReason(), r.GetResult().GetDetail()
	return true
}

func terminal(r *typesv1.JobRecord) bool {
	switch r.GetState() {
	case typesv1.JobState_JOB_STATE_COMPLETED, typesv1.JobState_JOB_STATE_FAILED,
		typesv1.JobState_JOB_STATE_REJECTED, typesv1.JobState_JOB_STATE_CANCELED:
		return true
	default:
		return false
	}
}

// count counts jobs by a property, in the order in which its values are given.
func (s *submission) count(of func(*submitted) string, values ...string) string {
	n := map[string]int{}
	for _, j := range s.jobs {
		n[of(j)]++
	}
	var parts []string
	for _, v := range values {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], strings.ReplaceAll(v, "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}

func (s *submission) show(a *app) error {
	if a.output == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"jobs": s.jobs})
	}
	_, _ = fmt.Fprintf(a.stdout, "%s submitted: %s\n", jobsCount(len(s.jobs)),
		s.count(func(j *submitted) string { return j.Push }, "accepted", "duplicate", "conflict", "invalid", "queue_full", "unavailable"))
	states := s.count(func(j *submitted) string { return j.State }, "completed", "failed", "rejected", "canceled", "running", "assigned", "admitted", "routing", "pending")
	if states != "" {
		_, _ = fmt.Fprintf(a.stdout, "%s: %s\n", jobsCount(len(s.ids())), states)
	}
	if len(s.jobs) == 1 && s.jobs[0].taken() && states == "" {
		_, _ = fmt.Fprintln(a.stdout, s.jobs[0].ID)
	}
	s.exceptions(a)
	return nil
}

// exceptions lists the jobs that were not taken or did not complete.
func (s *submission) exceptions(a *app) {
	var rows [][]string
	for _, j := range s.jobs {
		switch {
		case !j.taken():
			rows = append(rows, []string{j.ID, "not taken", strings.ReplaceAll(j.Push, "_", " "), j.Detail})
		case j.terminal() && j.State != "completed":
			reason := j.Reason
			if reason == "script_failure" {
				reason = fmt.Sprintf("exit code %d", *j.ExitCode)
			}
			rows = append(rows, []string{j.ID, j.State, dash(reason), j.Detail})
		}
	}
	if len(rows) == 0 {
		return
	}
	_, _ = fmt.Fprintln(a.stdout)
	t := newTable(a.stdout, "JOB", "STATE", "REASON", "DETAIL")
	for _, row := range rows {
		t.row(row...)
	}
	t.flush()
}

func jobsCount(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// verdict is the exit code's reason: what was not taken weighs more than what
// failed, since nothing can be said of it.
func (s *submission) verdict(waited bool) error {
	refused, unsure, bad := 0, 0, 0
	for _, j := range s.jobs {
		switch {
		case j.Push == "unavailable":
			unsure++
		case !j.taken():
			refused++
		case waited && j.State != "completed":
			bad++
		}
	}
	switch {
	case refused > 0:
		return refusedf("%d of %d jobs were refused", refused, len(s.jobs))
	case unsure > 0:
		return &exitError{exitUnreachable, fmt.Errorf("it is not known whether %d of %d jobs were stored; submit the same again, no job will run twice", unsure, len(s.jobs))}
	case bad > 0:
		return failedf("%d of %d jobs did not complete", bad, len(s.jobs))
	}
	return nil
}
