package frontproxy

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

func TestWordsAreRememberedWithABound(t *testing.T) {
	w, now := newWords(), time.Unix(1_000_000, 0)
	id := func(i int) spillway.JobID { return spillway.JobID(strconv.Itoa(i)) }
	for i := range maxSeats {
		w.said(id(i), now)
	}
	require.True(t, w.known(id(0)))
	w.said(id(maxSeats), now)
	require.False(t, w.known(id(0)), "the older half is forgotten")
	require.True(t, w.known(id(maxSeats/2)))
	w.drop(id(maxSeats))
	require.False(t, w.known(id(maxSeats)))
}

func TestWordsAreRepeatedNowAndThen(t *testing.T) {
	w, now := newWords(), time.Unix(1_000_000, 0)
	w.said("7", now)
	require.True(t, w.again("7", now.Add(confirmEvery-1)))
	require.Empty(t, w.waiting())
	require.True(t, w.again("7", now.Add(confirmEvery)))
	require.True(t, w.again("7", now.Add(confirmEvery)))
	require.Equal(t, []spillway.JobID{"7"}, w.waiting())
	w.drop("7")
	require.Empty(t, w.waiting(), "it is over")

	for i := range maxEnds {
		require.True(t, w.again(spillway.JobID(strconv.Itoa(i)), now))
	}
	require.False(t, w.again("one more", now))
	require.True(t, w.again("0", now), "it waits already")
	w.said("0", now)
	require.True(t, w.again("one more", now))
}
