package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// What stands on the channel is advice: whoever wrote it, a reader gets notices or
// nothing.
func TestWhatIsNoNoticeIsDropped(t *testing.T) {
	t.Parallel()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	closeAtEnd(t, s)
	notices, err := s.Notices(t.Context())
	require.NoError(t, err)
	for _, payload := range []string{
		"", "spot", "{}", `[]`, `{"pool":"p","instance":"i","kind":"holiday"}`, `{"pool":"p","instance":"i\n","kind":"spot"}`,
		`{"pool":"../p","instance":"i","kind":"spot"}`, `{"pool":"p","instance":"i","kind":"spot","x":"` + strings.Repeat("x", 1024) + `"}`,
	} {
		store.PublishRaw(t, s, payload)
	}
	last := store.Notice{Pool: "p", Instance: "i-last", Kind: router.InterruptionSpot}
	require.NoError(t, s.PublishNotice(t.Context(), last))
	select {
	case n := <-notices:
		require.Equal(t, last, n)
	case <-time.After(soon):
		require.FailNow(t, "nothing came")
	}
}

// Two control planes have a connection each.
func TestNoticesReachAnotherReplicaOverRedis(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	open := func() *store.Store {
		s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: patiently})
		require.NoError(t, err)
		return closeAtEnd(t, s)
	}
	here, there := open(), open()
	heard, err := there.Notices(t.Context())
	require.NoError(t, err)
	for i := range 100 {
		n := store.Notice{Pool: "p", Instance: fmt.Sprintf("i-%d", i), Kind: router.InterruptionMaintenance}
		require.NoError(t, here.PublishNotice(t.Context(), n))
		select {
		case got := <-heard:
			require.Equal(t, n, got)
		case <-time.After(soon):
			require.FailNow(t, "nothing came")
		}
	}
}

func FuzzDecodeNotice(f *testing.F) {
	f.Add(`{"pool":"p","instance":"i","kind":"spot","deadline":1}`)
	f.Add(`{"pool":"p","deadline":-1}`)
	f.Fuzz(func(t *testing.T, payload string) {
		if n, ok := store.DecodeNotice(payload); ok {
			require.True(t, router.KnownInterruption(n.Kind))
			require.NotEmpty(t, n.Instance)
			require.LessOrEqual(t, len(n.Instance), 256)
		}
	})
}
