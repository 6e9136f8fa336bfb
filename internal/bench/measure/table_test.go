package measure_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

var (
	limit = measure.Series{Name: "limit", Figures: []float64{100, 200}}
	fast  = measure.Series{Name: "fast", Figures: []float64{90, 190}}
	slow  = measure.Series{Name: "slow", Figures: []float64{10, 20}}
)

func row(s measure.Series, t measure.Target) measure.Row {
	return measure.RowOf(s, "jobs/s").Against(s, limit).Judged(t)
}

func TestTargets(t *testing.T) {
	require.Equal(t, measure.Met, row(fast, measure.RatioAtLeast(0.9)).Verdict)
	require.Equal(t, measure.Missed, row(slow, measure.RatioAtLeast(0.9)).Verdict)
	require.Equal(t, measure.Met, row(slow, measure.RatioAtMost(0.1)).Verdict, "the bound itself is met")
	require.Equal(t, measure.Missed, row(fast, measure.RatioAtMost(0.1)).Verdict)
	require.Equal(t, measure.Met, row(slow, measure.ValueAtMost(20)).Verdict)
	require.Equal(t, measure.Missed, row(slow, measure.ValueAtMost(19)).Verdict)
	require.Equal(t, "≥ 0.90 ×", row(fast, measure.RatioAtLeast(0.9)).Target)
	require.Equal(t, "≤ 19 jobs/s", row(slow, measure.ValueAtMost(19)).Target)
}

func TestNoiseExcusesTimesAndNothingElse(t *testing.T) {
	timed := func() *measure.Table {
		size := measure.RowOf(slow, "B").Judged(measure.ValueAtMost(1))
		size.Exact = true
		return &measure.Table{Rows: []measure.Row{
			measure.ReferenceRow(limit, "jobs/s"), row(fast, measure.RatioAtLeast(0.9)), row(slow, measure.RatioAtLeast(0.9)),
			size, measure.Exactly("duplicates", "jobs", 1, 0), measure.Exactly("lost", "jobs", 0, 0), measure.SkippedRow("peer", "not installed"),
		}}
	}
	verdicts := func(table *measure.Table) (all []measure.Verdict) {
		table.Disturbed()
		for _, r := range table.Rows {
			all = append(all, r.Verdict)
		}
		return all
	}
	undisturbed := []measure.Verdict{
		measure.Reference, measure.Met, measure.Missed, measure.Missed, measure.Wrong, measure.Met, measure.Skipped,
	}
	quiet := timed()
	quiet.Noise = measure.Noise{Pressure: measure.MaxDisturbance, Others: -1}
	require.Equal(t, undisturbed, verdicts(quiet), "at the limit, and unknown, is quiet")

	disturbed := []measure.Verdict{
		measure.Reference, measure.Noisy, measure.Noisy, measure.Missed, measure.Wrong, measure.Met, measure.Skipped,
	}
	for _, noise := range []measure.Noise{{Pressure: 0.21}, {Others: 0.21}} {
		noisy := timed()
		noisy.Noise = noise
		require.Equal(t, disturbed, verdicts(noisy))
		require.True(t, noisy.Broken(), "a duplicate is never excused")
	}
}

func TestOnlyErrorsAndWrongCountersBreak(t *testing.T) {
	missed := &measure.Table{Rows: []measure.Row{row(slow, measure.RatioAtLeast(0.9)), measure.SkippedRow("peer", "not installed")}}
	require.False(t, missed.Broken())
	require.True(t, (&measure.Table{Err: "no server"}).Broken())
	require.True(t, (&measure.Table{Rows: []measure.Row{measure.NoMoreThan("calls", "calls", 2, 1)}}).Broken())
	require.False(t, (&measure.Table{Rows: []measure.Row{measure.NoMoreThan("calls", "calls", 1, 1)}}).Broken())
}

func TestWriteText(t *testing.T) {
	table := &measure.Table{
		Name: "router/throughput", What: "jobs to machines", Noise: measure.Noise{Pressure: 0.03, Others: -1},
		Rows: []measure.Row{
			measure.ReferenceRow(limit, "jobs/s"), row(slow, measure.RatioAtLeast(0.6)),
			measure.Exactly("duplicates", "jobs", 0, 0), measure.SkippedRow("peer", "not installed"),
		},
		Notes: []string{"unlike work is not quoted as like"},
		Err:   "the server ended",
	}
	var b bytes.Buffer
	require.NoError(t, table.WriteText(&b))
	require.Equal(t, `
## router/throughput: jobs to machines
   pressure on the CPUs before: 3 %, others' share of the CPUs during: unknown
subject     median [min..max]      ratio [min..max]  target    verdict
limit       200 jobs/s [100..200]  1                           reference
slow        20 jobs/s [10..20]     0.10              ≥ 0.60 ×  MISSED
duplicates  0 jobs                                   = 0       met
peer                                                           SKIPPED
   SKIPPED peer: not installed
   unlike work is not quoted as like
   BROKEN: the server ended
`, b.String())
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, measure.WriteJSON(&b, []*measure.Table{{Name: "a/b", Rows: []measure.Row{row(fast, measure.RatioAtLeast(0.6))}}}))
	var back struct {
		Benchmarks []measure.Table `json:"benchmarks"`
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, measure.Met, back.Benchmarks[0].Rows[0].Verdict)
	require.Equal(t, 0.95, back.Benchmarks[0].Rows[0].Ratio.Median)
}
