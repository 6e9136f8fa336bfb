package measure_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

func TestRoundsRotateAndDropTheWarmUp(t *testing.T) {
	var order []string
	turn := 0.0
	subject := func(name string) measure.Subject {
		return measure.Subject{Name: name, Run: func(context.Context) (float64, error) {
			order = append(order, name)
			turn++
			return turn, nil
		}}
	}
	all, err := measure.Rounds(t.Context(), 2, []measure.Subject{subject("a"), subject("b"), subject("c")})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}, order)
	require.Equal(t, []measure.Series{
		{Name: "a", Figures: []float64{6, 8}},
		{Name: "b", Figures: []float64{4, 9}},
		{Name: "c", Figures: []float64{5, 7}},
	}, all)
}

func TestRoundsNameWhoFailed(t *testing.T) {
	broken := errors.New("broken")
	_, err := measure.Rounds(t.Context(), 1, []measure.Subject{
		{Name: "good", Run: func(context.Context) (float64, error) { return 1, nil }},
		{Name: "bad", Run: func(context.Context) (float64, error) { return 0, broken }},
	})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "bad")
}

func TestSeveralFiguresStayApart(t *testing.T) {
	all, err := measure.RoundsOf(t.Context(), 2, 2, []measure.Work{
		{Name: "w", Run: func(context.Context) ([]float64, error) { return []float64{1, 10}, nil }},
	})
	require.NoError(t, err)
	require.Equal(t, [][]measure.Series{
		{{Name: "w", Figures: []float64{1, 1}}}, {{Name: "w", Figures: []float64{10, 10}}},
	}, all)
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	reference := measure.Series{Figures: []float64{1, 100, 10}}
	s := measure.Series{Figures: []float64{2, 300, 40}}
	require.Equal(t, measure.Spread{Median: 3, Min: 2, Max: 4}, s.RatioTo(reference))
}

func TestSpread(t *testing.T) {
	require.Equal(t, measure.Spread{Median: 2, Min: 1, Max: 3}, measure.SpreadOf([]float64{3, 1, 2}))
	require.Equal(t, measure.Spread{}, measure.SpreadOf(nil))
	rapid.Check(t, func(t *rapid.T) {
		figures := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 20).Draw(t, "figures")
		s := measure.SpreadOf(figures)
		require.LessOrEqual(t, s.Min, s.Median)
		require.LessOrEqual(t, s.Median, s.Max)
		require.Contains(t, figures, s.Median, "a figure that was measured")
	})
}

func TestPercentile(t *testing.T) {
	figures := []float64{4, 1, 3, 2}
	for _, c := range []struct{ p, want float64 }{{0, 1}, {25, 1}, {26, 2}, {50, 2}, {75, 3}, {99, 4}, {100, 4}} {
		require.Equal(t, c.want, measure.Percentile(figures, c.p), "p%g", c.p)
	}
	require.Zero(t, measure.Percentile(nil, 50))
}
