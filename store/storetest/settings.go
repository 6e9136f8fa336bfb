package storetest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

var settingContract = []contract{
	{"what is set stays, by kind, until it is dropped", store.Options{}, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.PutSetting(t.Context(), "priority", "linux", []byte("1")))
		require.NoError(t, s.PutSetting(t.Context(), "priority", "linux", []byte("2\x00")))
		require.NoError(t, s.PutSetting(t.Context(), "pool", "linux", nil))
		kept, err := s.Settings(t.Context(), "priority")
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"linux": []byte("2\x00")}, kept)

		dropped, err := s.DropSetting(t.Context(), "priority", "linux")
		require.NoError(t, err)
		require.True(t, dropped)
		dropped, err = s.DropSetting(t.Context(), "priority", "linux")
		require.NoError(t, err)
		require.False(t, dropped)
		kept, err = s.Settings(t.Context(), "priority")
		require.NoError(t, err)
		require.Empty(t, kept)
		kept, err = s.Settings(t.Context(), "pool")
		require.NoError(t, err)
		require.Len(t, kept, 1)
	}},
	{"a name is created once", store.Options{}, func(t *testing.T, s *store.Store) {
		created, err := s.CreateSetting(t.Context(), "pool", "linux", []byte("first"))
		require.NoError(t, err)
		require.True(t, created)
		created, err = s.CreateSetting(t.Context(), "pool", "linux", []byte("second"))
		require.NoError(t, err)
		require.False(t, created)
		kept, err := s.Settings(t.Context(), "pool")
		require.NoError(t, err)
		require.Equal(t, "first", string(kept["linux"]))
	}},
	{"a setting is swapped by whoever has seen it last", store.Options{}, func(t *testing.T, s *store.Store) {
		swap := func(was, data []byte) bool {
			swapped, err := s.SwapSetting(t.Context(), "pool", "linux", was, data)
			require.NoError(t, err)
			return swapped
		}
		require.False(t, swap([]byte("first"), []byte("second")), "there is none")
		require.True(t, swap(nil, []byte("first\x00")))
		require.False(t, swap(nil, []byte("second")), "the name is not free")
		require.False(t, swap([]byte("first"), []byte("second")))
		require.True(t, swap([]byte("first\x00"), []byte{}))
		require.True(t, swap([]byte{}, []byte("third")), "an empty one is one")
		kept, err := s.Settings(t.Context(), "pool")
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"linux": []byte("third")}, kept)

		// Of several at once, one comes through.
		won := make(chan bool, 8)
		for i := range cap(won) {
			go func() {
				swapped, err := s.SwapSetting(t.Context(), "pool", "linux", []byte("third"), []byte(strconv.Itoa(i)))
				won <- swapped && err == nil
			}()
		}
		winners := 0
		for range cap(won) {
			if <-won {
				winners++
			}
		}
		require.Equal(t, 1, winners)
	}},
	{"every change is told", store.Options{}, func(t *testing.T, s *store.Store) {
		pokes, err := s.SettingPokes(t.Context(), "priority")
		require.NoError(t, err)
		require.NoError(t, s.PutSetting(t.Context(), "pool", "linux", nil))
		require.NoError(t, s.PutSetting(t.Context(), "priority", "linux", nil))
		receive(t, pokes)
		_, err = s.DropSetting(t.Context(), "priority", "linux")
		require.NoError(t, err)
		receive(t, pokes)
		require.NoError(t, s.Close())
		closes(t, pokes)
	}},
	{"bad ones, and too many, are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		large := make([]byte, store.MaxSettingBytes)
		require.NoError(t, s.PutSetting(t.Context(), "k", "0", large))
		require.ErrorIs(t, s.PutSetting(t.Context(), "k", "n", append(large, 0)), spillway.ErrInvalid)
		for _, name := range []string{"", "a b", strings.Repeat("n", 129)} {
			require.ErrorIs(t, s.PutSetting(t.Context(), "k", name, nil), spillway.ErrInvalid)
			require.ErrorIs(t, s.PutSetting(t.Context(), name, "n", nil), spillway.ErrInvalid)
		}
		for i := 1; i < store.MaxSettings; i++ {
			require.NoError(t, s.PutSetting(t.Context(), "k", strconv.Itoa(i), nil))
		}
		require.ErrorIs(t, s.PutSetting(t.Context(), "k", "another", nil), store.ErrTooMany)
		_, err := s.SwapSetting(t.Context(), "k", "another", nil, nil)
		require.ErrorIs(t, err, store.ErrTooMany)
		require.NoError(t, s.PutSetting(t.Context(), "k", "7", []byte("known")))
	}},
}
