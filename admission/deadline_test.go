package admission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
)

// A controller that comes and goes has one deadline for a job, not one for each time: also
// at the replica that it comes back to, and however often it does.
func TestAFlappingControllerHasOneDeadline(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	handed := admission.Decision{}
	for i := range 5 { // 2 s here, 1 s gone
		began := float64(3 * i)
		connect(t, e, began, i+1, "first")
		x := item("1", i+1)
		x.AskedBy, x.AskedFor = handed.AskedBy, handed.AskedFor
		if i > 0 {
			x.AskedFor += time.Second // in the queue
		}
		decided := e.Take(at(began), x)
		require.Empty(t, decided)
		late, _ := e.Expire(at(began))
		if i == 4 {
			require.Len(t, late, 1, "12 s after it was shown first, of 10")
			require.Equal(t, admission.TimedOut, late[0].Outcome)
			require.Empty(t, e.Plan(at(began)))
			break
		}
		require.Empty(t, late)
		batches := e.Plan(at(began))
		require.Len(t, batches, 1)
		require.Equal(t, at(10), batches[0].Due)
		decided = e.Disconnect(at(began+2), admission.InstanceID(i+1))
		require.Len(t, decided, 1)
		handed = decided[0]
		require.Equal(t, admission.HandedOn, handed.Outcome)
		require.Equal(t, "first", handed.AskedBy)
		require.Equal(t, at(began+2).Sub(t0), handed.AskedFor)
	}
}

// The deadline is one controller's: the next one's begins when it is shown the job.
func TestEachLinkOfAChainHasItsOwnDeadline(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	require.Empty(t, e.Take(at(0), item("1", 1)))
	e.Plan(at(0))
	decided, _, err := e.Answer(at(9), 1, 1, yes("1"))
	require.NoError(t, err)
	require.Equal(t, admission.HandedOn, decided[0].Outcome, "the second one is not here")
	require.Empty(t, decided[0].AskedBy)

	// What is said of another controller than the next one, by an older configuration, counts for nothing.
	connect(t, e, 9, 2, "second")
	x := item("1", 2, "first")
	x.AskedBy, x.AskedFor = "first", time.Hour
	require.Empty(t, e.Take(at(10), x))
	batches := e.Plan(at(10))
	require.Len(t, batches, 1)
	require.Equal(t, at(20), batches[0].Due)
}

// Whatever comes and goes at two replicas: no controller is shown a job for longer than its
// deadline after it was shown it first.
func TestOneDeadlineOverAllReplicas(t *testing.T) {
	timedOut := 0
	rapid.Check(t, func(t *rapid.T) {
		const deadline = 10 * time.Second
		p := policy(t,
			admission.Controller{Name: "first", Scope: admission.Instance, Deadline: deadline},
			admission.Controller{Name: "second", Scope: admission.Instance, Deadline: deadline},
		)
		engines := []*admission.Engine{admission.NewEngine(t0, p), admission.NewEngine(t0, p)}
		now, last, attempt := t0, admission.InstanceID(0), 0
		here := []map[admission.InstanceID]string{{}, {}}
		shown := map[string]time.Time{}
		queued := &admission.Item{} // nil: a replica has it
		since := now
		over := false
		settle := func(list []admission.Decision) {
			for _, d := range list {
				over = d.Outcome != admission.HandedOn
				if d.Outcome == admission.TimedOut {
					timedOut++
				}
				queued, since = &admission.Item{Approved: d.Approved, AskedBy: d.AskedBy, AskedFor: d.AskedFor}, now
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			at := rapid.IntRange(0, 1).Draw(t, "replica")
			e := engines[at]
			for _, e := range engines {
				late, _ := e.Expire(now)
				settle(late)
			}
			if over {
				return
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				last++
				name := rapid.SampledFrom([]string{"first", "second"}).Draw(t, "who")
				_, err := e.Connect(now, last, name, "i", 0)
				require.NoError(t, err)
				here[at][last] = name
			case 1:
				for id := range here[at] {
					settle(e.Disconnect(now, id))
					delete(here[at], id)
				}
			case 2:
				if queued != nil && attempt < admission.MaxMoves-1 {
					attempt++
					x := *queued
					if x.AskedBy != "" {
						x.AskedFor += now.Sub(since)
					}
					r := spillway.Requirement{Project: 7}
					x.Ref = router.JobRef{ID: "1", Class: r.Class(), Attempt: attempt}
					x.Subject = admission.Subject{ID: "1", Job: spillway.Job{ID: "1", Requirement: r}}
					queued = nil
					settle(e.Take(now, x))
				}
			}
			for at, e := range engines {
				late, _ := e.Expire(now)
				settle(late)
				for _, b := range e.Plan(now) {
					name := here[at][b.Instance]
					if shown[name].IsZero() {
						shown[name] = now
					}
					require.Less(t, now.Sub(shown[name]), deadline)
					require.Equal(t, shown[name].Add(deadline), b.Due)
					if rapid.IntRange(0, 3).Draw(t, "answers") == 0 {
						decided, _, err := e.Answer(now, b.Instance, b.ID, yes("1"))
						require.NoError(t, err)
						settle(decided)
					}
				}
			}
			if over {
				return
			}
		}
	})
	require.Positive(t, timedOut)
}
