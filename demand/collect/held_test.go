package collect

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/webhook"
)

// kept is the jobs that a router keeps, as a test changes them.
type kept struct{ jobs atomic.Pointer[[]HeldJob] }

func (k *kept) set(jobs ...Sighting) { k.setFor(nil, jobs...) }

// setFor keeps jobs for machines of pools.
func (k *kept) setFor(pools []string, jobs ...Sighting) {
	held := make([]HeldJob, len(jobs))
	for i := range jobs {
		held[i] = HeldJob{Sighting: jobs[i], Pools: pools}
	}
	k.jobs.Store(&held)
}

func (k *kept) Held() []HeldJob {
	if jobs := k.jobs.Load(); jobs != nil {
		return *jobs
	}
	return nil
}

func TestHeldJobsAreDemandWithoutAnAPIToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, here, there := newMemory(), new(kept), new(kept)
		r := start(t, shared, "one", nil, Options{Held: here})
		settle()
		start(t, shared, "two", nil, Options{Held: there})
		pass(time.Second)
		_, partial := r.demand()
		require.True(t, partial, "not every replica can have told yet")
		pass(heldWarmup + DefaultEvery)
		r.requireDemand(map[string]int{}, "nothing is held: an honest zero")

		there.set(pending(1, 0, "a"))
		here.set(pending(2, 0, "a"))
		r.source.HeldChanged()
		pass(heldEvery)
		jobs, partial := r.demand()
		require.Equal(t, map[string]int{"[a]": 2}, jobs)
		require.True(t, partial, "more may wait than are held")
		require.Contains(t, r.board().Why, "2 jobs are held")

		here.set() // given to a machine
		there.set()
		pass(heldEvery)
		r.requireDemand(map[string]int{})
		pass(10 * time.Minute)
		r.requireDemand(map[string]int{}, "still asked, still nothing")
	})
}

// Who watches over hooks by their source's age must not be told of one that never came.
func TestJobsThatAreHeldAreNoHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		many := make([]Sighting, 200) // more than one message takes
		for i := range many {
			many[i] = pending(i+1, 0, "a")
		}
		k.set(many...)
		r := start(t, newMemory(), "one", nil, Options{Held: k, Hooks: true})
		pass(time.Minute)
		jobs, _ := r.demand()
		require.Equal(t, map[string]int{"[a]": len(many)}, jobs)
		require.Zero(t, r.status(statusHooks).At)
		r.hook(1000, "pending")
		settle()
		require.Equal(t, SourceStatus{Name: statusHooks, At: time.Now().Add(-DefaultDebounce), Jobs: 1}, r.status(statusHooks))
	})
}

func TestHeldChangedIsHeardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		r := start(t, newMemory(), "one", nil, Options{Held: k})
		pass(heldWarmup + heldEvery + heldEvery/2)
		k.set(pending(1, 0, "a"))
		r.source.HeldChanged()
		settle()
		jobs, _ := r.demand()
		require.Equal(t, map[string]int{"[a]": 1}, jobs)
	})
}

func TestJobsOfAReplicaThatDiedAreForgottenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, there := newMemory(), new(kept)
		r := start(t, shared, "one", nil, Options{Held: new(kept)})
		settle()
		two := start(t, shared, "two", nil, Options{Held: there})
		there.set(pending(1, 0, "a"))
		pass(10 * time.Second)
		two.kill()
		pass(heldTimeout - 10*time.Second)
		jobs, _ := r.demand()
		require.Equal(t, map[string]int{"[a]": 1}, jobs)
		pass(30 * time.Second)
		r.requireDemand(map[string]int{})
	})
}

func TestARouterThatCanNotAskMakesNoZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newMemory(), "one", nil, Options{Held: new(kept)})
		pass(heldWarmup + DefaultEvery)
		r.requireDemand(map[string]int{})
		two := r.memory.member() // a replica that says so, and dies
		require.NoError(t, tell(t.Context(), two, message{Replica: "two", Problem: "GitLab is away"}))
		pass(heldTimeout)
		_, partial := r.demand()
		require.True(t, partial)
		require.Contains(t, r.board().Why, "replica two: GitLab is away")
		pass(DefaultEvery)
		r.requireDemand(map[string]int{}, "another asks for its tokens now")
	})
}

func TestAHeldJobThatTheListKnowsIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, k := &fakeGitLab{}, new(kept)
		g.put(waiting(1, "a", "b"))
		k.set(pending(1, 0, "a", "b", "c")) // by the pool's tags
		r := start(t, newMemory(), "one", g, Options{Held: k})
		for range 5 {
			pass(3 * time.Second)
			r.requireDemand(map[string]int{"[a b]": 1})
		}
		k.set() // a machine has it, and GitLab's list doesn't know yet
		r.source.HeldChanged()
		settle()
		r.requireDemand(map[string]int{})
	})
}

func TestTellSplitsWhatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory().member()
		facts, err := m.Facts(t.Context(), Topic)
		require.NoError(t, err)
		var jobs []Sighting
		for id := range 200 {
			jobs = append(jobs, pending(id+1, 1, "a"))
		}
		require.NoError(t, Tell(t.Context(), m, jobs...))
		heard := map[JobKey]bool{}
		for len(facts) > 0 {
			data := <-facts
			require.LessOrEqual(t, len(data), maxMessageBytes)
			msg, ok := hear(data)
			require.True(t, ok)
			for _, s := range msg.Jobs {
				heard[s.Job] = true
			}
		}
		require.Len(t, heard, 200)
		long := pending(1, 1, strings.Repeat("x", maxMessageBytes))
		require.ErrorIs(t, Tell(t.Context(), m, long), spillway.ErrInvalid)
	})
}

func TestWhatMakesNoSenseIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		other := pending(1, 0, "a")
		other.Job.Origin = "https://other.example"
		noID, noState := pending(2, 0, "a"), pending(3, 0, "a")
		noID.Job.ID, noState.State = "", "dreaming"
		require.NoError(t, Tell(t.Context(), r.member, other, noID, noState))
		for _, data := range []string{"", "{", `{"jobs":7}`, strings.Repeat(" ", maxMessageBytes+1)} {
			require.NoError(t, r.member.PublishFact(t.Context(), Topic, []byte(data)))
		}
		settle()
		r.requireDemand(map[string]int{})
	})
}

func TestAnEventAsASighting(t *testing.T) {
	received := at(100).Add(300 * time.Millisecond)
	for status, want := range map[string]spillway.JobState{
		"pending": spillway.Pending, "running": spillway.Running, "canceling": spillway.Running,
		"success": spillway.Completed, "failed": spillway.Failed, "canceled": spillway.Canceled, "skipped": spillway.Canceled,
	} {
		s, ok := HookSighting(origin, webhook.Event{JobID: 4, ProjectID: 7, Status: status, RunnerID: 5, System: "m", Queued: time.Minute, At: at(90)}, received)
		require.True(t, ok)
		require.Equal(t, want, s.State)
		require.Equal(t, key(4), s.Job)
		require.Equal(t, at(91).Add(-1), s.At, "a time in whole seconds may be of the end of the second")
		require.Equal(t, want == spillway.Pending, !s.Since.IsZero())
	}
	for _, status := range []string{"created", "manual", "scheduled", "waiting_for_resource", "preparing", "", "Pending"} {
		_, ok := HookSighting(origin, webhook.Event{JobID: 4, Status: status}, received)
		require.False(t, ok, status)
	}
	s, _ := HookSighting(origin, webhook.Event{JobID: 4, Status: "pending", At: at(100)}, received)
	require.Equal(t, received, s.At, "nothing is from the future")
	s, _ = HookSighting(origin, webhook.Event{JobID: 4, Status: "pending"}, received)
	require.Equal(t, received, s.At)
	_, ok := HookSighting(origin, webhook.Event{JobID: 0, Status: "pending"}, received)
	require.False(t, ok)
}
