package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// TestEveryCourierTakesEachJobOnce runs every subject with real processes.
func TestEveryCourierTakesEachJobOnce(t *testing.T) {
	const runners, jobs = 10, 50
	for name, make := range map[string]func(context.Context, int) (courier, error){
		"own": newOwnCourier, "asynq": newAsynqCourier, "nats": newNATSCourier,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := make(ctx, runners)
			needRedis(t, err)
			defer c.close()
			s := &latencySubject{name: name, courier: c}
			for round := range 2 {
				figures, err := s.round(ctx, 1+round*jobs, jobs)
				require.NoError(t, err)
				require.Positive(t, figures[0])
				require.GreaterOrEqual(t, figures[1], figures[0])
			}
			require.Equal(t, flaws{}, s.flaws)
			require.Positive(t, s.most)
		})
	}
}

// TestArrivalsTellHowLongEachWas: also of jobs that come twice, and of those that don't.
func TestArrivalsTellHowLongEachWas(t *testing.T) {
	a := newArrivals(10, 3)
	require.NoError(t, a.got(10, stamped(time.Now().Add(-time.Second))))
	require.NoError(t, a.got(11, stamped(time.Now().Add(-time.Minute))))
	require.NoError(t, a.got(10, stamped(time.Now().Add(-time.Hour))))
	require.Error(t, a.got(12, payload))
	require.Len(t, stamped(time.Now()), payloadBytes)
	s := a.sum()
	require.Equal(t, flaws{lost: 1, repeated: 1}, s.flaws)
	require.GreaterOrEqual(t, s.p50, 1_000.0)
	require.GreaterOrEqual(t, s.most, 60_000.0)
	require.Less(t, s.most, 3_600_000.0, "the second time doesn't count")
}

// TestLatencyRowsHoldTheTargets: each of them can be missed, and a peer that is not here
// is said so.
func TestLatencyRowsHoldTheTargets(t *testing.T) {
	series := func(p50, p99 float64) [][]measure.Series {
		return [][]measure.Series{
			{{Name: "nats", Figures: []float64{1}}, {Name: "own", Figures: []float64{p50}}},
			{{Name: "nats", Figures: []float64{2}}, {Name: "own", Figures: []float64{p99}}},
		}
	}
	verdicts := func(p50, p99 float64, f flaws) map[string]measure.Verdict {
		all := []*latencySubject{{name: "nats"}, {name: "own", flaws: f}, {name: "asynq", skipped: errors.New("not installed")}}
		b := &bench{table: &measure.Table{}}
		addLatencyRows(b, all, all[:2], series(p50, p99), measure.Series{Name: "acknowledged", Figures: []float64{1}})
		out := map[string]measure.Verdict{}
		for _, r := range b.table.Rows {
			out[r.Subject] = r.Verdict
		}
		return out
	}
	good := verdicts(2.5, 5, flaws{})
	require.Equal(t, measure.Met, good["own, p50"])
	require.Equal(t, measure.Met, good["own, p99"])
	require.Equal(t, measure.Skipped, good["asynq, p50"])
	bad := verdicts(2.6, 5.1, flaws{lost: 1, repeated: 1})
	require.Equal(t, measure.Missed, bad["own, p50"])
	require.Equal(t, measure.Missed, bad["own, p99"])
	require.Equal(t, measure.Wrong, bad["jobs that came more than once, own"])
	require.Equal(t, measure.Wrong, bad["jobs lost, own"])
}
