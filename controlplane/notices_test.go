package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

const within = 90 * time.Second // for what must come, however busy the machine is

// ear collects what a loop is told.
type ear struct {
	mu struct {
		sync.Mutex
		heard []string
	}
}

func (e *ear) hear(pool string, n pluginsdk.Interruption) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.heard = append(e.mu.heard, fmt.Sprintf("%s/%s %s %s %d", pool, n.Group, n.InstanceID, n.Kind, n.Deadline.Unix()))
}

func (e *ear) gone(ids []spillway.MachineID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.heard = append(e.mu.heard, fmt.Sprintf("gone %v", ids))
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.mu.heard...)
}

// replica is what one control plane has of notices.
func replica(t *testing.T, s *store.Store) (*notices, *ear) {
	t.Helper()
	e := &ear{}
	n := &notices{
		store: s, hear: e.hear, gone: e.gone, groups: map[string]string{"linux": "linux-asg"}, log: slog.New(slog.DiscardHandler),
		queue: make(chan store.Notice, maxForwards),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	n.run(ctx, &wg)
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		require.NoError(t, s.Close())
	})
	return n, e
}

// The replica that a provider tells need not be the one that owns the pool.
func TestANoticeReachesEveryReplica(t *testing.T) {
	addr := storetest.StartRedis(t)
	open := func() *store.Store {
		s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: within})
		require.NoError(t, err)
		return s
	}
	told, here := replica(t, open())
	_, there := replica(t, open())
	at := time.Now().Add(2 * time.Minute)
	want := fmt.Sprintf("linux/linux-asg i-1 spot %d", at.Unix())
	// Until the other one listens it hears nothing; said again, it does no harm.
	require.Eventually(t, func() bool {
		told.told("linux", pluginsdk.Interruption{Group: "linux-asg", InstanceID: "i-1", Kind: pluginsdk.SpotInterruption, Deadline: at})
		return len(there.all()) > 0
	}, within, 20*time.Millisecond)
	require.Contains(t, here.all(), want, "at once, without the store")
	require.Equal(t, want, there.all()[0])
}

func TestWhatOthersPublishIsAdvice(t *testing.T) {
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	_, e := replica(t, s)
	far := time.Now().Add(1000 * time.Hour)
	require.Eventually(t, func() bool {
		require.NoError(t, s.PublishNotice(t.Context(), store.Notice{Pool: "other", Instance: "i-0", Kind: "spot"}))
		require.NoError(t, s.PublishNotice(t.Context(), store.Notice{Pool: "linux", Instance: "i-1", Kind: "spot", Deadline: far}))
		return len(e.all()) > 0
	}, within, 20*time.Millisecond)
	for _, heard := range e.all() {
		require.Equal(t, fmt.Sprintf("linux/linux-asg i-1 spot %d", time.Time{}.Unix()), heard)
	}
}

// awayStore is a store that fails for a while.
type awayStore struct {
	failures  int
	published []store.Notice
}

var errAway = errors.New("away")

func (s *awayStore) PublishNotice(_ context.Context, n store.Notice) error {
	if s.failures > 0 {
		s.failures--
		return errAway
	}
	s.published = append(s.published, n)
	return nil
}

func (s *awayStore) Notices(ctx context.Context) (<-chan store.Notice, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestANoticeWaitsForTheStore(t *testing.T) {
	for failures, published := range map[int]int{0: 1, forwardAttempts - 1: 1, forwardAttempts: 0} {
		synctest.Test(t, func(t *testing.T) {
			s, e, log := &awayStore{failures: failures}, &ear{}, &strings.Builder{}
			n := &notices{store: s, hear: e.hear, log: slog.New(slog.NewTextHandler(log, nil)), queue: make(chan store.Notice, maxForwards)}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			n.run(ctx, &wg)
			n.told("linux", pluginsdk.Interruption{InstanceID: "i-1", Kind: pluginsdk.Rebalance})
			require.Len(t, e.all(), 1, "the own loop does not wait")
			time.Sleep(time.Minute) // of the bubble's clock
			synctest.Wait()
			require.Len(t, s.published, published)
			require.Equal(t, published == 0, strings.Contains(log.String(), "not told to other replicas"))
			cancel()
			wg.Wait()
		})
	}
}

// A provider that never stops telling fills no memory.
func TestForwardsAreBounded(t *testing.T) {
	log := &strings.Builder{}
	e := &ear{}
	n := &notices{hear: e.hear, log: slog.New(slog.NewTextHandler(log, nil)), queue: make(chan store.Notice, maxForwards)}
	for i := range maxForwards {
		n.told("linux", pluginsdk.Interruption{InstanceID: fmt.Sprint(i), Kind: pluginsdk.Rebalance})
	}
	require.Empty(t, log.String())
	n.told("linux", pluginsdk.Interruption{InstanceID: "one more", Kind: pluginsdk.Rebalance})
	require.Contains(t, log.String(), "one more")
	require.Len(t, e.all(), maxForwards+1)
	require.Len(t, n.queue, maxForwards)
}

// X14: whichever replica has the machine's jobs must not wait for it.
func TestX14_EveryReplicaHearsOfMachinesThatAreGone(t *testing.T) {
	addr := storetest.StartRedis(t)
	open := func() *store.Store {
		s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: within})
		require.NoError(t, err)
		return s
	}
	scales, here := replica(t, open())
	_, there := replica(t, open())
	require.Eventually(t, func() bool {
		scales.ended("linux", []spillway.MachineID{"m-1"})
		return len(there.all()) > 0
	}, within, 20*time.Millisecond)
	require.Contains(t, here.all(), "gone [m-1]")
	require.Equal(t, "gone [m-1]", there.all()[0])
}
