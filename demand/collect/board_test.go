package collect

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

func wideBoard(classes, systems int) Board {
	b := Board{At: at(1), Runners: map[int64]RunnerState{5: {At: at(1), Whole: true, Running: 1, BySystem: map[string]int{"m": 1}}}}
	for i := range classes {
		w := Waiting{Requirement: *tagged("tag" + strconv.Itoa(i)), Pending: classes - i, Oldest: at(0)}
		for s := range MaxSample {
			w.Sample = append(w.Sample, spillway.JobID(strconv.Itoa(1_000_000+s)))
		}
		b.Classes = append(b.Classes, w)
	}
	r := b.Runners[5]
	for i := range systems {
		r.Systems = append(r.Systems, "system"+strconv.Itoa(i))
	}
	b.Runners[5] = r
	return b
}

func TestABoardThatFitsIsWrittenAsItIs(t *testing.T) {
	b := wideBoard(10, 10)
	data, err := encodeBoard(b, MaxBoardBytes)
	require.NoError(t, err)
	same, err := encodeBoard(b, len(data))
	require.NoError(t, err)
	require.Equal(t, data, same, "the limit itself is allowed")
	back, err := decodeBoard(data)
	require.NoError(t, err)
	require.Equal(t, b, back)
}

func TestABoardThatIsTooLargeLosesWhatExplainsFirst(t *testing.T) {
	b := wideBoard(10, 10)
	data, err := encodeBoard(b, MaxBoardBytes)
	require.NoError(t, err)
	data, err = encodeBoard(b, len(data)-1)
	require.NoError(t, err)
	back, err := decodeBoard(data)
	require.NoError(t, err)
	require.Len(t, back.Classes, 10)
	require.False(t, back.Partial, "all jobs are still counted")
	require.Empty(t, back.Classes[0].Sample)
	require.Nil(t, back.Runners[5].Systems)
	require.NotEmpty(t, b.Classes[0].Sample, "the board given isn't changed")
	require.NotNil(t, b.Runners[5].Systems)

	short, err := encodeBoard(b, len(data)-1)
	require.NoError(t, err)
	require.Less(t, len(short), len(data))
	back, err = decodeBoard(short)
	require.NoError(t, err)
	require.Len(t, back.Classes, 5)
	require.Equal(t, 10, back.Classes[0].Pending, "the largest classes stay")
	require.True(t, back.Partial)
	require.Contains(t, back.Why, "5 classes of jobs are left out")

	_, err = encodeBoard(b, 10)
	require.ErrorIs(t, err, errBoardTooLarge)
}

func TestABoardIsReadAsIfAnybodyHadWrittenIt(t *testing.T) {
	b := wideBoard(3, 0)
	b.Classes[0].Pending = -1
	b.Classes[1].Requirement.Tags = []string{""}
	back, err := decodeBoard(marshal(t, b))
	require.NoError(t, err)
	require.Len(t, back.Classes, 1)
	require.True(t, back.Partial)
	require.Contains(t, back.Why, "2 classes of the board make no sense")
	_, err = decodeBoard([]byte("<html>"))
	require.Error(t, err)
	_, err = decodeBoard(make([]byte, MaxBoardBytes+1))
	require.ErrorIs(t, err, errBoardTooLarge)
}

func TestABoardOfAnotherGitLabIsNotOurs(t *testing.T) {
	m := newMemory().member()
	b := wideBoard(1, 0)
	require.NoError(t, m.PutBoard(t.Context(), BoardName, 1, marshal(t, b), minBoardTTL))
	s := NewSources(SourcesOptions{Boards: m, Origin: "https://other.example"})
	_, err := s.Demand(t.Context())
	require.ErrorIs(t, err, errOtherBoard)
	_, err = s.Board(t.Context())
	require.ErrorIs(t, err, errOtherBoard)
	require.Contains(t, s.Status()[0].Err, "another GitLab")
}

// The replica that asks GitLab may have a clock that is ahead, and die: what it has shown
// gets as old as any other's.
func TestABoardFromTheFutureGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newMemory().member(), wideBoard(1, 0)
		b.At = time.Now().Add(5 * time.Minute)
		b.Runners = map[int64]RunnerState{7: {At: b.At, Whole: true}}
		require.NoError(t, m.PutBoard(t.Context(), BoardName, 1, marshal(t, b), minBoardTTL))
		s := NewSources(SourcesOptions{Boards: m, Origin: origin, Every: DefaultEvery})
		v, err := s.Demand(t.Context())
		require.NoError(t, err)
		require.False(t, v.Partial)
		read := time.Now()
		pass(s.StaleAfter() + time.Second)
		v, err = s.Demand(t.Context())
		require.NoError(t, err)
		require.True(t, v.Partial, "nobody has written since")
		shown, err := s.Board(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, read, shown.Runners[7].At, 0, "it proves no machine idle for longer either")
	})
}

// benchSnapshot is n pending jobs as GitLab lists them: in 500 classes, over 2,000
// projects.
func benchSnapshot(n int) Snapshot {
	needs := make([]*spillway.Requirement, 500)
	for i := range needs {
		needs[i] = tagged("linux", "pool-"+strconv.Itoa(i))
	}
	return Snapshot{Source: apiSource, Began: at(10), Jobs: func(yield func(Sighting) bool) {
		for i := range n {
			s := Sighting{
				Job: JobKey{Origin: origin, ID: jobID(int64(5_000_000 + i))}, State: spillway.Pending,
				Requirement: needs[i%len(needs)], Project: int64(i % 2000), Since: at(i % 600),
			}
			if !yield(s) {
				return
			}
		}
	}}
}
