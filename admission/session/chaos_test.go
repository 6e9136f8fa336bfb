package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

// ledger is what controllers have really said.
type ledger struct {
	sync.Mutex
	said map[string]map[string]bool // job -> controller -> allow: the last word of it
	no   map[string]bool            // jobs that somebody refused
}

func (l *ledger) note(job, controller string, allow bool) {
	l.Lock()
	defer l.Unlock()
	if l.said[job] == nil {
		l.said[job] = map[string]bool{}
	}
	l.said[job][controller] = l.said[job][controller] || allow
	l.no[job] = l.no[job] || !allow
}

// faulty is an instance that does anything: it answers, in parts, leaves, lies, or says
// nothing. It comes back, at any replica.
func faulty(ctx context.Context, r *rand.Rand, replicas []*replica, name string, l *ledger) {
	for n := 0; ctx.Err() == nil; n++ {
		life, cancel := context.WithTimeout(ctx, time.Duration(50+r.IntN(400))*time.Millisecond)
		stream, err := admissionv1.NewAdmissionServiceClient(replicas[r.IntN(len(replicas))].conn).Connect(life)
		if err == nil {
			err = stream.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{
				Controller: name, Instance: name + strconv.Itoa(n), MaxBatch: int32(1 + r.IntN(8)),
			}}})
		}
		for err == nil {
			var m *admissionv1.RouterMessage
			if m, err = stream.Recv(); err == nil && m.GetReview() != nil {
				err = misbehave(r, stream, m.GetReview(), name, l)
			}
		}
		cancel()
	}
}

func misbehave(r *rand.Rand, stream admissionv1.AdmissionService_ConnectClient, review *admissionv1.Review, name string, l *ledger) error {
	switch r.IntN(12) {
	case 0:
		return context.Canceled // leaves mid-batch
	case 1:
		return stream.Send(verdicts(review.GetBatchId()+uint64(r.IntN(2)), true, "", "not-yours"))
	case 2:
		return nil // says nothing to this one
	}
	for _, j := range review.GetJobs() {
		allow := r.IntN(20) > 0
		l.note(j.GetJobId(), name, allow)
		if err := stream.Send(verdicts(review.GetBatchId(), allow, "no", j.GetJobId())); err != nil {
			return err
		}
	}
	return nil
}

// Three controllers at three replicas, of which one stops on the way, all of them
// faulty: each job comes to exactly one end, and none may run that not all have approved.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) { faultyControllers(t, seed) })
}

func faultyControllers(t *testing.T, seed uint64) {
	t.Helper()
	const jobs = 400
	s := openStore(t)
	chain := []string{"first", "second", "third"}
	var controllers []admission.Controller
	for _, name := range chain {
		controllers = append(controllers, admission.Controller{Name: name, Scope: admission.Instance, Deadline: 400 * time.Millisecond, Batch: 8})
	}
	p := policy(t, controllers...)
	replicas := []*replica{start(t, s, "one", p), start(t, s, "two", p), start(t, s, "three", p)}
	l := &ledger{said: map[string]map[string]bool{}, no: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 9 {
		running.Go(func() { faulty(ctx, rand.New(rand.NewPCG(seed, uint64(i))), replicas, chain[i%len(chain)], l) })
	}
	for batch := range 4 {
		pushMany(t, s, jobs/4, int64(batch+1))
	}
	awaitSome(t, func() bool { return len(replicas[0].events()) > 0 })
	replicas[0].stop()

	ended := map[string]spillway.JobState{}
	awaitSome(t, func() bool {
		for batch := range 4 {
			for i := range jobs / 4 {
				id := fmt.Sprintf("%d-%d", batch+1, i)
				record, err := s.Get(t.Context(), spillway.JobID(id))
				require.NoError(t, err)
				was, over := ended[id]
				if record.State == spillway.Admitted || record.State.Terminal() {
					ended[id] = record.State
				}
				require.True(t, !over || was == record.State, "job %s was %s and is %s", id, was, record.State)
			}
		}
		return len(ended) == jobs
	})
	cancel()
	running.Wait()
	states := map[spillway.JobState]int{}
	for id, state := range ended {
		states[state]++
		switch state {
		case spillway.Admitted:
			for _, name := range chain {
				require.True(t, l.said[id][name], "job %s was admitted, and %s never approved it", id, name)
			}
		case spillway.Rejected:
			require.True(t, l.no[id], "job %s was rejected, and nobody said no", id)
		default:
			require.Equal(t, spillway.Failed, state)
		}
	}
	t.Log(states)
	require.Positive(t, states[spillway.Admitted])
	got := map[spillway.JobID]bool{}
	for batch := range 4 {
		for _, c := range claimAdmitted(t, s, int64(batch+1)) {
			got[c.Job.ID] = true
		}
	}
	require.Len(t, got, states[spillway.Admitted], "and those are all that a machine can be given")
}

func awaitSome(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * within)
	tick := time.NewTicker(200 * time.Millisecond) // to look at all jobs is work, for which no time passes
	defer tick.Stop()
	for !done() {
		require.True(t, time.Now().Before(deadline), "not in time")
		<-tick.C
	}
}
