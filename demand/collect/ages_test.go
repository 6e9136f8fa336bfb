package collect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/demand"
)

// A board says how many jobs have waited for the times that are asked for: as many as a
// look at each would find, and never fewer for a shorter time.
func TestPropertyABoardCountsByAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(Limits{})
		since := map[int]int{}
		for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			since[i] = rapid.IntRange(0, 60).Draw(t, "since")
			j := pending(i, since[i], "a")
			j.Since = at(since[i])
			b.Saw(j)
		}
		ages := []time.Duration{10 * time.Second, 30 * time.Second, time.Minute}
		w := b.Board(at(60), ages...).Classes[0]
		require.Len(t, w.Waited, len(ages))
		last := w.Pending
		for i, age := range ages {
			old := 0
			for _, s := range since {
				if at(60).Sub(at(s)) >= age {
					old++
				}
			}
			require.Equal(t, demand.Waited{For: age, Jobs: old}, w.Waited[i])
			require.LessOrEqual(t, old, last)
			last = old
		}
		require.Nil(t, b.Board(at(60)).Classes[0].Waited, "nobody has asked")
	})
}

// What makes no sense about ages is as if nobody had counted.
func TestABoardsAgesAreCheckedAsIfAnybodyHadWrittenThem(t *testing.T) {
	for _, c := range []struct {
		waited []demand.Waited
		kept   bool
	}{
		{[]demand.Waited{{For: time.Second, Jobs: 1}, {For: time.Minute}}, true},
		{[]demand.Waited{{For: time.Minute}, {For: time.Second, Jobs: 1}}, false},
		{make([]demand.Waited, MaxAges), true},
		{make([]demand.Waited, MaxAges+1), false},
	} {
		data, err := encodeBoard(Board{At: at(0), Classes: []Waiting{{Requirement: *pending(1, 0, "a").Requirement, Pending: 2, Oldest: at(0), Waited: c.waited}}}, MaxBoardBytes)
		require.NoError(t, err)
		board, err := decodeBoard(data)
		require.NoError(t, err)
		require.False(t, board.Partial)
		if c.kept {
			require.Equal(t, c.waited, board.Classes[0].Waited)
			require.Equal(t, c.waited, classes(board)[0].Waited)
		} else {
			require.Nil(t, board.Classes[0].Waited)
		}
	}
}
