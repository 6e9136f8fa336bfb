package main

import (
	"bytes"
	"io"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// rude is what somebody may write as a tag, which is shown to whoever looks after jobs.
const rude = "\x1b]0;owned\a\x1b[2J"

func TestNothingThatOthersWroteSteersTheTerminal(t *testing.T) {
	record := &typesv1.JobRecord{
		Job: &typesv1.Job{Id: rude, Name: rude, Requirement: &typesv1.Requirement{Tags: []string{rude}}}, Pool: rude, MachineId: rude,
		State:  typesv1.JobState_JOB_STATE_FAILED,
		Result: &typesv1.JobResult{Reason: rude, Detail: rude, Output: []byte(rude)},
	}
	a := &app{}
	for name, show := range map[string]func(w io.Writer){
		"jobs list":   func(w io.Writer) { jobTable(w, &jobsv1.ListResponse{Records: []*typesv1.JobRecord{record}}) },
		"jobs show":   func(w io.Writer) { jobDetails(w, record) },
		"jobs wait":   func(w io.Writer) { newProgress(w, 1).show(record, true) },
		"why-not":     func(w io.Writer) { verdicts(w, &adminv1.WhyNotResponse{Record: record, Summary: rude}) },
		"explain-job": func(w io.Writer) { placeChoices(w, &adminv1.ExplainJobResponse{Record: record, Summary: rude}) },
		"explain": func(w io.Writer) {
			decisions(w, rude, &adminv1.ExplainResponse{Decisions: []*adminv1.Decision{{Pool: rude, Reason: rude, Action: rude, Result: rude}}})
		},
		"pools": func(w io.Writer) {
			poolTable(w, &adminv1.ListPoolsResponse{Pools: []*adminv1.PoolStatus{{Name: rude, Hold: rude, Finding: rude}}})
		},
		"plugins": func(w io.Writer) {
			a.pluginTable(w, &adminv1.ListPluginsResponse{At: at(0), Plugins: []*adminv1.Plugin{{Provider: rude, LastError: rude}}})
		},
		"cells": func(w io.Writer) { cellTables(w, &cellsv1.ListCellsResponse{Name: rude, Region: rude}) },
	} {
		var out bytes.Buffer
		show(&out)
		requireHarmless(t, name, out.String())
	}
	code, stdout, stderr := ctl(t, "", "", "import", rude)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "owned")
	requireHarmless(t, "import", stdout+stderr)
}

func requireHarmless(t *testing.T, name, text string) {
	t.Helper()
	for _, r := range text {
		require.False(t, unicode.IsControl(r) && r != '\n', "%s: %q", name, text)
	}
}
