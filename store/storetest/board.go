package storetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

var boardContract = []contract{
	{"the newest holder's is shown", store.Options{}, func(t *testing.T, s *store.Store) {
		const epoch = 1 << 52
		_, found, err := s.Board(t.Context(), "gitlab")
		require.NoError(t, err)
		require.False(t, found)
		require.NoError(t, s.PutBoard(t.Context(), "gitlab", epoch, []byte("one\x00"), time.Minute))
		require.NoError(t, s.PutBoard(t.Context(), "gitlab", epoch+1, []byte("two"), time.Minute))
		require.ErrorIs(t, s.PutBoard(t.Context(), "gitlab", epoch, []byte("old"), time.Minute), store.ErrStaleEpoch)
		require.NoError(t, s.PutBoard(t.Context(), "other", 1, nil, time.Minute))
		data, found, err := s.Board(t.Context(), "gitlab")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "two", string(data))
		data, found, err = s.Board(t.Context(), "other")
		require.NoError(t, err)
		require.True(t, found)
		require.Empty(t, data)
	}},
	{"until its time has passed, and an old holder is refused afterwards", store.Options{}, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.PutBoard(t.Context(), "gitlab", 7, []byte("x"), 50*time.Millisecond))
		require.Eventually(t, func() bool {
			_, found, err := s.Board(t.Context(), "gitlab")
			require.NoError(t, err)
			return !found
		}, within, every)
		require.ErrorIs(t, s.PutBoard(t.Context(), "gitlab", 6, []byte("old"), time.Minute), store.ErrStaleEpoch)
		require.NoError(t, s.PutBoard(t.Context(), "gitlab", 7, []byte("y"), time.Minute))
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		large := make([]byte, store.MaxBoardBytes)
		long := strings.Repeat("n", 128)
		require.NoError(t, s.PutBoard(t.Context(), long, 1, large, store.MaxBoardTTL))
		data, _, err := s.Board(t.Context(), long)
		require.NoError(t, err)
		require.True(t, bytes.Equal(large, data))
		require.ErrorIs(t, s.PutBoard(t.Context(), "b", 1, append(large, 0), time.Minute), spillway.ErrInvalid)
		require.ErrorIs(t, s.PutBoard(t.Context(), "b", 1, nil, 0), spillway.ErrInvalid)
		require.ErrorIs(t, s.PutBoard(t.Context(), "b", 1, nil, store.MaxBoardTTL+1), spillway.ErrInvalid)
		for _, name := range []string{"", "a b", "{a}", long + "n"} {
			require.ErrorIs(t, s.PutBoard(t.Context(), name, 1, nil, time.Minute), spillway.ErrInvalid)
			_, _, err := s.Board(t.Context(), name)
			require.ErrorIs(t, err, spillway.ErrInvalid)
		}
	}},
}

var factContract = []contract{
	{"each replica hears each fact of a topic", store.Options{}, func(t *testing.T, s *store.Store) {
		one, err := s.Facts(t.Context(), "gitlab/jobs")
		require.NoError(t, err)
		two, err := s.Facts(t.Context(), "gitlab/jobs")
		require.NoError(t, err)
		largest := bytes.Repeat([]byte{0xff}, store.MaxFactBytes)
		require.NoError(t, s.PublishFact(t.Context(), "other", []byte("no")))
		for _, data := range [][]byte{[]byte("a"), {}, largest} {
			require.NoError(t, s.PublishFact(t.Context(), "gitlab/jobs", data))
			for _, c := range []<-chan []byte{one, two} {
				require.True(t, bytes.Equal(data, receive(t, c)))
			}
		}
		require.ErrorIs(t, s.PublishFact(t.Context(), "gitlab/jobs", append(largest, 0)), spillway.ErrInvalid)
		require.ErrorIs(t, s.PublishFact(t.Context(), "{x}", nil), spillway.ErrInvalid)
		_, err = s.Facts(t.Context(), "")
		require.ErrorIs(t, err, spillway.ErrInvalid)
		require.NoError(t, s.Close())
		closes(t, one)
		closes(t, two)
	}},
	{"a poke wakes as a push does", store.Options{}, func(t *testing.T, s *store.Store) {
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.PublishPoke(t.Context()))
		receive(t, pokes)
	}},
}
