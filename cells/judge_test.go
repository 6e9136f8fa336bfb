package cells_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
)

func TestWhatARecordTellsOfAHandedOverJob(t *testing.T) {
	const endWithin = 3 * time.Minute
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := func(state spillway.JobState, reason spillway.FailureReason, detail string, way ...spillway.JobState) *spillway.JobRecord {
		r := &spillway.JobRecord{State: state, Result: spillway.JobResult{State: state, Reason: reason, Detail: detail}}
		for _, s := range append(way, state) {
			r.Transitions = append(r.Transitions, spillway.JobTransition{State: s})
			if s == spillway.Running {
				r.StartedAt = started
			}
		}
		return r
	}
	for name, c := range map[string]struct {
		record *spillway.JobRecord
		word   cells.Word
		unsure time.Duration
	}{
		"it waits":                           {record(spillway.Pending, "", ""), cells.WordTaken, 0},
		"it is admitted, and waits":          {record(spillway.Admitted, "", ""), cells.WordTaken, 0},
		"it runs":                            {record(spillway.Running, "", "", spillway.Assigned), cells.WordRunning, 0},
		"it has ended well":                  {record(spillway.Completed, "", "", spillway.Running), cells.WordEnded, 0},
		"its script has failed":              {record(spillway.Failed, spillway.ScriptFailure, "", spillway.Running), cells.WordEnded, 0},
		"its machine was lost":               {record(spillway.Failed, spillway.RunnerSystemFailure, "", spillway.Running), cells.WordLost, endWithin / 3},
		"it waited in vain":                  {record(spillway.Failed, spillway.PendingTimeout, "", spillway.Pending), cells.WordRefused, 0},
		"a controller has refused it":        {record(spillway.Rejected, spillway.AdmissionRejected, "", spillway.Routing), cells.WordDenied, 0},
		"a controller was silent":            {record(spillway.Failed, spillway.AdmissionTimeout, "", spillway.Routing), cells.WordDenied, 0},
		"no pool can take it any more":       {record(spillway.Rejected, spillway.Unmatched, "", spillway.Pending), cells.WordRefused, 0},
		"it was taken out of the queue":      {record(spillway.Canceled, spillway.JobCanceled, "", spillway.Pending), cells.WordRefused, 0},
		"it was canceled on its machine":     {record(spillway.Canceled, spillway.JobCanceled, "", spillway.Running), cells.WordLost, endWithin},
		"its machine says that it has ended": {record(spillway.Canceled, spillway.JobCanceled, cells.EndedOnMachine+"x", spillway.Running), cells.WordLost, 0},
		"its machine was alone":              {record(spillway.Canceled, spillway.JobCanceled, cells.AloneReason+" for 30s", spillway.Running), cells.WordLost, 0},
		"it ended before it had begun":       {record(spillway.Canceled, spillway.JobCanceled, cells.EndedOnMachine+"x", spillway.Assigned), cells.WordRefused, 0},
	} {
		f := cells.Judge(c.record, endWithin)
		require.Equal(t, c.word, f.Word, name)
		require.Equal(t, c.unsure, f.Unsure, name)
		require.Equal(t, c.record.State == spillway.Pending || c.record.State == spillway.Admitted, f.Queued, name)
		require.Equal(t, c.record.State == spillway.Running, f.OnHand, name)
	}
}
