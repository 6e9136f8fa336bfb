package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

var noticeContract = []contract{
	{"each replica hears each notice", store.Options{}, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		one, err := s.Notices(ctx)
		require.NoError(t, err)
		two, err := s.Notices(t.Context())
		require.NoError(t, err)
		spot := store.Notice{Pool: "blue", Instance: "i-1", Kind: router.InterruptionSpot, Deadline: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)}
		rebalance := store.Notice{Pool: "green", Instance: "i-2", Kind: router.InterruptionRebalance}
		for _, n := range []store.Notice{spot, rebalance, rebalance} {
			require.NoError(t, s.PublishNotice(t.Context(), n))
		}
		for _, c := range []<-chan store.Notice{one, two} {
			heard := []store.Notice{receive(t, c), receive(t, c), receive(t, c)}
			require.ElementsMatch(t, []store.Notice{spot, rebalance, rebalance}, heard, "said twice is heard twice")
		}
		cancel()
		closes(t, one)
	}},
	{"what is no notice is not published", store.Options{}, func(t *testing.T, s *store.Store) {
		good := store.Notice{Pool: "blue", Instance: strings.Repeat("i", 256), Kind: router.InterruptionTerminating}
		require.NoError(t, s.PublishNotice(t.Context(), good), "the longest id")
		for name, change := range map[string]func(*store.Notice){
			"pool":          func(n *store.Notice) { n.Pool = "no pool" },
			"instance":      func(n *store.Notice) { n.Instance = "" },
			"long instance": func(n *store.Notice) { n.Instance += "i" },
			"blank":         func(n *store.Notice) { n.Instance = "i 1" },
			"kind":          func(n *store.Notice) { n.Kind = "holiday" },
			"no kind":       func(n *store.Notice) { n.Kind = "" },
		} {
			n := good
			change(&n)
			require.ErrorIs(t, s.PublishNotice(t.Context(), n), spillway.ErrInvalid, name)
		}
	}},
	{"a machine's own word is kept", store.Options{}, func(t *testing.T, s *store.Store) {
		m := router.Machine{
			ID: "m-1", Pool: "blue", InterruptedAt: time.UnixMilli(1000).UTC(), InterruptionKind: router.InterruptionSpot,
			InterruptionDeadline: time.UnixMilli(121_000).UTC(), Unhealthy: strings.Repeat("x", 1024),
		}
		require.NoError(t, s.PutMachines(t.Context(), []router.Machine{m}))
		got, err := s.Machines(t.Context())
		require.NoError(t, err)
		require.Equal(t, []router.Machine{m}, got)
		m.Unhealthy += "x"
		require.ErrorIs(t, s.PutMachines(t.Context(), []router.Machine{m}), spillway.ErrInvalid)
		m.Unhealthy, m.InterruptionKind = "", "holiday"
		require.ErrorIs(t, s.PutMachines(t.Context(), []router.Machine{m}), spillway.ErrInvalid)
	}},
}
