package collect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/webhook"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// mortal is a replica's way to the store, which a crash can end in the middle of a
// write.
type mortal struct {
	*store.Store
	kill  *atomic.Bool // one for all: whoever writes next dies of it
	dead  atomic.Bool
	after bool // the write that kills still arrives
}

func (m *mortal) HoldLeases(ctx context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.HoldLeases(ctx, names, holder, ttl)
}

func (m *mortal) ReleaseLease(ctx context.Context, l spillway.Lease) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.ReleaseLease(ctx, l)
}

func (m *mortal) PutBoard(ctx context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error {
	if m.dead.Load() {
		return errDead
	}
	if m.kill.CompareAndSwap(true, false) {
		m.dead.Store(true)
		if !m.after {
			return errDead
		}
	}
	return m.Store.PutBoard(ctx, name, epoch, data, ttl)
}

func (m *mortal) PublishPoke(ctx context.Context) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.PublishPoke(ctx)
}

type replica struct {
	store  *mortal
	source *GitLab
	cancel context.CancelFunc
}

func (r *replica) holds() bool {
	for _, s := range r.source.Status() {
		if s.Name == statusJobs {
			return !s.Standby && !s.At.IsZero() && !r.store.dead.Load()
		}
	}
	return false
}

// startReplicas runs n sources over one Redis, each with its own connection.
func startReplicas(t *testing.T, n int, prefix, addr string, g *fakeGitLab) []*replica {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	replicas := make([]*replica, n)
	kill := new(atomic.Bool)
	for i := range replicas {
		s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Prefix: prefix, Timeout: within})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r := &replica{store: &mortal{Store: s, kill: kill, after: i%2 == 0}}
		r.source, err = New(Options{
			URL: origin, API: g, Store: r.store, Replica: fmt.Sprintf("replica-%d", i),
			Every: time.Minute, LeaseTTL: time.Second,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		r.cancel = cancel
		t.Cleanup(cancel)
		wg.Go(func() { r.source.Run(ctx) })
		replicas[i] = r
	}
	return replicas
}

const (
	within = 90 * time.Second
	often  = 5 * time.Millisecond
)

// jobsSeen is the sum that a scaler of a replica would see.
func jobsSeen(ctx context.Context, s *Sources) (int, error) {
	v, err := s.Demand(ctx)
	return jobsOf(v.Classes), err
}

func TestC11_SeveralReplicasCountTheSameJobsOnce(t *testing.T) {
	addr := storetest.StartRedis(t)
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { c11(t, fmt.Sprintf("c11r%d", round), addr) })
	}
}

func c11(t *testing.T, prefix, addr string) {
	const jobs = 20
	g := &fakeGitLab{}
	replicas := startReplicas(t, 3, prefix, addr, g)
	require.Eventually(t, func() bool { return theHolder(replicas) != nil }, within, often)
	sources := NewSources(SourcesOptions{Boards: replicas[1].store.Store, Origin: origin, Every: time.Minute})
	require.Eventually(t, func() bool { _, err := jobsSeen(t.Context(), sources); return err == nil }, within, often)

	deliver(t, replicas, g, jobs)
	require.Eventually(t, func() bool {
		n, err := jobsSeen(t.Context(), sources)
		require.NoError(t, err)
		require.LessOrEqual(t, n, jobs, "no job is counted twice, not for a moment")
		return n == jobs
	}, within, often)

	// Whoever holds the lease when there is something to write about dies in the middle of
	// that. Until another has taken over and after that, all see 20.
	replicas[0].store.kill.Store(true)
	s, _ := HookSighting(origin, webhook.Event{JobID: 999, ProjectID: 7, Status: "running", At: time.Now()}, time.Now())
	require.NoError(t, Tell(t.Context(), replicas[2].store, s))
	var first *replica
	require.Eventually(t, func() bool { first = theDead(replicas); return first != nil }, within, often)
	first.cancel()
	require.Eventually(t, func() bool {
		n, err := jobsSeen(t.Context(), sources)
		require.NoError(t, err)
		require.Equal(t, jobs, n)
		return theHolder(replicas) != nil
	}, within, often)
	require.NotSame(t, first, theHolder(replicas))

	// It goes on from there.
	g.put(with(waiting(1, "a"), "success"))
	s, _ = HookSighting(origin, webhook.Event{JobID: 1, ProjectID: 7, Status: "success", At: time.Now()}, time.Now())
	require.NoError(t, Tell(t.Context(), replicas[2].store, s))
	require.Eventually(t, func() bool {
		n, err := jobsSeen(t.Context(), sources)
		require.NoError(t, err)
		return n == jobs-1
	}, within, often)
}

func theHolder(replicas []*replica) *replica {
	for _, r := range replicas {
		if r.holds() {
			return r
		}
	}
	return nil
}

func theDead(replicas []*replica) *replica {
	for _, r := range replicas {
		if r.store.dead.Load() {
			return r
		}
	}
	return nil
}

// deliver has each job's hook delivered to two or three replicas, all at once.
func deliver(t *testing.T, replicas []*replica, g *fakeGitLab, jobs int) {
	t.Helper()
	var wg sync.WaitGroup
	for id := range jobs {
		g.put(waiting(int64(id+1), "a"))
		order := rand.Perm(len(replicas))
		for _, i := range order[:2+id%2] {
			wg.Go(func() {
				now := time.Now()
				s, ok := HookSighting(origin, webhook.Event{JobID: int64(id + 1), ProjectID: 7, Status: "pending", At: now}, now)
				if !ok {
					t.Error("a pending job is demand")
				}
				if err := Tell(t.Context(), replicas[i].store, s); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}
