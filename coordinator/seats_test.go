package coordinator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router"
)

// pool is what ListPools says of a pool.
func (p *plane) pool(name string) *pb.Pool {
	p.t.Helper()
	resp, err := p.ListPools(as("ops"), &pb.ListPoolsRequest{})
	require.NoError(p.t, err)
	for _, pool := range resp.GetPools() {
		if pool.GetName() == name {
			return pool
		}
	}
	require.FailNow(p.t, "no such pool", name)
	return nil
}

// C1, C2: a registered pool has at most max workers over all replicas, and so no more jobs
// are given out in it at a time. The next one is refused until one of them has left.
func TestARegisteredPoolHasAtMostMaxWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := start(t, brief(settings{}))
		second := start(t, brief(settings{store: first.store, replica: "replica-2"}))
		_, err := first.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "gpu", Max: 3})
		require.NoError(t, err)
		for i := range 5 {
			first.submit("gpu", fmt.Sprint("j", i))
		}
		for i, at := range []*plane{first, second, first} {
			first.worker(fmt.Sprint("w", i), "gpu").fetch(at)
		}
		spare := first.worker("spare", "gpu")
		for _, at := range []*plane{first, second} {
			_, err := spare.poll(at)
			requireStatus(t, err, codes.ResourceExhausted, "pool gpu has its max of 3 workers", "runner spare is a spare")
			_, err = at.SendHeartbeat(as("workers"), &pb.SendHeartbeatRequest{RunnerId: "spare", PoolName: "gpu", Status: pb.RunnerStatus_RUNNER_STATUS_IDLE})
			requireStatus(t, err, codes.ResourceExhausted, "spare")
		}
		require.Equal(t, 2, first.Workers())
		require.Equal(t, 1, second.Workers())
		require.Positive(t, first.seen.polls(coordinator.PollRefused))
		require.Equal(t, spillway.Pending, first.record("j3").State, "nobody has it")

		// The others go on; one falls silent, and the spare takes its place, and its job.
		stop := keepBusy(first, second)
		defer stop()
		var got *pb.Job
		require.Eventually(t, func() bool { got, err = spare.poll(second); return err == nil }, patience, tick)
		require.Contains(t, []string{"j2", "j3"}, got.GetId(), "the first one's, or the next")
		_, err = first.worker("another", "gpu").poll(first)
		requireStatus(t, err, codes.ResourceExhausted, "max of 3")
	})
}

// keepBusy has w0 and w1 send heartbeats; w2 falls silent.
func keepBusy(first, second *plane) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for i, at := range []*plane{first, second} {
				_, _ = at.SendHeartbeat(as("workers"), &pb.SendHeartbeatRequest{
					RunnerId: fmt.Sprint("w", i), PoolName: "gpu", Status: pb.RunnerStatus_RUNNER_STATUS_BUSY, ActiveJobCount: 1,
				})
			}
			select {
			case <-ctx.Done():
			case <-time.After(tick):
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (s *seen) polls(o coordinator.PollOutcome) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polled[o]
}

// Whoever has a job of the pool is in it, wherever it turns up, also when its place was
// given to another meanwhile: what it runs is not thrown away.
func TestAWorkerWithAJobKeepsItsPlace(t *testing.T) {
	first := start(t, settings{})
	_, err := first.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "one", Max: 1})
	require.NoError(t, err)
	first.submit("one", "a")
	w := first.worker("w", "one")
	w.fetch(first)
	require.NoError(t, first.store.LeaveSeat(context.Background(), "one", "worker:w")) // lost
	taken, err := first.store.TakeSeat(context.Background(), "one", "worker:other", 1, time.Hour)
	require.NoError(t, err)
	require.True(t, taken)
	second := start(t, settings{store: first.store, replica: "replica-2"})
	require.NoError(t, w.report(second, "a", 0))
	require.Equal(t, spillway.Completed, first.record("a").State)
}

// A worker that changes its pool leaves its place in the old one at once.
func TestAPlaceIsFreeWhenItsWorkerServesAnotherPool(t *testing.T) {
	p := start(t, settings{})
	for _, name := range []string{"one", "two"} {
		_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: name, Max: 1})
		require.NoError(t, err)
	}
	mover := p.worker("mover", "one")
	mover.none(p)
	waiting := p.worker("waiting", "one")
	_, err := waiting.poll(p)
	requireStatus(t, err, codes.ResourceExhausted, "pool one")
	mover.pool = "two"
	require.Eventually(t, func() bool { _, err := mover.poll(p); return code(err) == codes.NotFound }, patience, tick)
	require.Eventually(t, func() bool { _, err := waiting.poll(p); return code(err) == codes.NotFound }, patience, tick)
}

// Seats are renewed for as long as a worker is attached, without anybody's asking.
func TestSeatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{options: coordinator.Options{PollWait: 50 * time.Millisecond}}))
		_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "one", Max: 1})
		require.NoError(t, err)
		var polling atomic.Bool
		polling.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for polling.Load() {
				_, _ = p.PollJob(as("workers"), &pb.PollJobRequest{RunnerId: "w", PoolName: "one"})
			}
		}()
		p.machine("w", func(m *router.Machine) bool { return m.Connected })
		// For longer than a seat lasts that nobody renews.
		require.Never(t, func() bool {
			_, err := p.PollJob(as("workers"), &pb.PollJobRequest{RunnerId: "spare", PoolName: "one"})
			return code(err) != codes.ResourceExhausted
		}, 2*time.Second, tick)
		polling.Store(false)
		<-done
		spare := p.worker("spare", "one")
		require.Eventually(t, func() bool { _, err := spare.poll(p); return code(err) == codes.NotFound }, patience, tick)
	})
}

// C3: how many workers there should be is what whoever starts them goes by.
func TestWantedWorkers(t *testing.T) {
	p := start(t, settings{})
	_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "gpu", MinIdle: 1, Max: 3})
	require.NoError(t, err)
	wanted := func() int32 { return p.pool("gpu").GetWanted() }
	require.Equal(t, int32(1), wanted(), "min_idle")
	p.submit("gpu", "a")
	require.Equal(t, int32(2), wanted(), "one for the job, and one to spare")
	w := p.worker("w", "gpu")
	w.fetch(p)
	p.waitFor("a", in(spillway.Running))
	require.Equal(t, int32(2), wanted(), "the job runs")
	for _, id := range []string{"b", "c", "d"} {
		p.submit("gpu", id)
	}
	require.Equal(t, int32(3), wanted(), "max")
	require.Zero(t, p.pool("linux").GetWanted(), "its provider's group is asked for what there should be")

	require.Equal(t, []int{0, 5, 7, 7}, []int{
		(&coordinator.Configured{}).Wanted(0), (&coordinator.Configured{MinIdle: 2}).Wanted(3),
		(&coordinator.Configured{MinIdle: 2, Max: 7}).Wanted(5), (&coordinator.Configured{MinIdle: 2, Max: 7}).Wanted(50),
	})
	require.Equal(t, coordinator.MaxWorkers, (&coordinator.Configured{}).Wanted(coordinator.MaxWorkers+1), "without a max")
	registered := p.Registered()
	require.Len(t, registered, 1)
	require.Equal(t, "gpu", registered[0].Pool.Name)
	require.Equal(t, 3, registered[0].Max)
}
