package measure

import (
	"context"
	"fmt"
	"slices"
)

// Subject is one way to do a benchmark's work.
type Subject struct {
	Name string
	// Run does the work once and returns its figure, in the unit of the benchmark.
	Run func(ctx context.Context) (float64, error)
}

// Work is a Subject with several figures, such as the times to write and to read.
type Work struct {
	Name string
	Run  func(ctx context.Context) ([]float64, error)
}

// Series is the figures of one subject, one for each round.
type Series struct {
	Name    string
	Figures []float64
}

// Rounds lets every subject have one turn in each round, in an order that rotates,
// so that none always comes first. A warm-up round is not counted.
func Rounds(ctx context.Context, rounds int, subjects []Subject) ([]Series, error) {
	works := make([]Work, len(subjects))
	for i, s := range subjects {
		works[i] = Work{Name: s.Name, Run: func(ctx context.Context) ([]float64, error) {
			figure, err := s.Run(ctx)
			return []float64{figure}, err
		}}
	}
	all, err := RoundsOf(ctx, rounds, 1, works)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// RoundsOf is Rounds for subjects with so many figures each. It returns the series
// by figure, then by subject.
func RoundsOf(ctx context.Context, rounds, figures int, subjects []Work) ([][]Series, error) {
	all := make([][]Series, figures)
	for f := range all {
		all[f] = make([]Series, len(subjects))
		for i, s := range subjects {
			all[f][i].Name = s.Name
		}
	}
	for round := -1; round < rounds; round++ {
		for k := range subjects {
			i := (k + round + 1) % len(subjects)
			turn, err := subjects[i].Run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[i].Name, err)
			}
			if round < 0 {
				continue
			}
			for f := range all {
				all[f][i].Figures = append(all[f][i].Figures, turn[f])
			}
		}
	}
	return all, nil
}

// Spread returns the median and the band of the figures.
func (s Series) Spread() Spread { return SpreadOf(s.Figures) }

// RatioTo divides the figures by those of the same rounds of a reference.
func (s Series) RatioTo(reference Series) Spread {
	ratios := make([]float64, min(len(s.Figures), len(reference.Figures)))
	for i := range ratios {
		ratios[i] = s.Figures[i] / reference.Figures[i]
	}
	return SpreadOf(ratios)
}

// Spread is a median and the band around it.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf sums up figures. Of an even number, the upper of the two in the middle
// is the median: a figure that was measured.
func SpreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	return Spread{Median: sorted[len(sorted)/2], Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Percentile returns the smallest figure that p percent of all are not above.
func Percentile(figures []float64, p float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	rank := int(p/100*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}
