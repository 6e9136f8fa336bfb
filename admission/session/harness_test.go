package session_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/admission/session"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	within = 20 * time.Second
	every  = 5 * time.Millisecond
)

// inItsTime brings the clock of a bubble, which begins in 2000, to times that a store keeps.
func inItsTime() { time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))) }

func openStore(t *testing.T) *store.Store {
	t.Helper()
	inItsTime()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func policy(t *testing.T, controllers ...admission.Controller) admission.Policy {
	t.Helper()
	p, err := admission.NewPolicy(controllers)
	require.NoError(t, err)
	return p
}

// replica is a reviewer with its listener, and what its dispatcher would tell it.
type replica struct {
	name     string
	reviewer *session.Reviewer
	conn     *grpc.ClientConn
	stop     func()

	mu struct {
		sync.Mutex
		reviewed []session.JobReviewed
		verdicts []admission.VerdictInfo
	}
}

// start starts one whose times are so short that a busy machine is slower: it is for a
// bubble, where only who waits lets time pass.
func start(t *testing.T, s *store.Store, name string, p admission.Policy) *replica {
	t.Helper()
	r := &replica{name: name}
	var err error
	r.reviewer, err = session.NewReviewer(s, session.Options{
		Replica: name, Policy: p, AnnounceEvery: 50 * time.Millisecond, AnnounceTTL: time.Second, SweepEvery: 10 * time.Millisecond, ClaimTTL: 2 * time.Second,
		Events: session.Events{
			JobReviewed: func(e session.JobReviewed) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.mu.reviewed = append(r.mu.reviewed, e)
			},
			VerdictGiven: func(i admission.VerdictInfo) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.mu.verdicts = append(r.mu.verdicts, i)
			},
		},
	})
	require.NoError(t, err)
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	admissionv1.RegisterAdmissionServiceServer(server, session.NewService(r.reviewer))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.reviewer.Run(ctx) })
	running.Go(func() { _ = server.Serve(lis) })
	running.Go(func() { r.count(ctx, s) })
	r.conn, err = grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	r.stop = sync.OnceFunc(func() {
		cancel()
		_ = r.conn.Close()
		server.Stop()
		running.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// count does what the dispatcher does: it counts the queue again and again, and reaps.
func (r *replica) count(ctx context.Context, s *store.Store) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		counts, err := s.Counts(ctx)
		if err != nil {
			continue
		}
		for i := range counts {
			counts[i] = r.reviewer.Sort(counts[i])
		}
		r.reviewer.Waiting(counts)
		_, _ = s.Reap(ctx, 100)
	}
}

func (r *replica) events() []session.JobReviewed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]session.JobReviewed(nil), r.mu.reviewed...)
}

// controller is a scripted instance.
type controller struct {
	t      *testing.T
	stream admissionv1.AdmissionService_ConnectClient
	cancel context.CancelFunc
}

func (r *replica) connect(t *testing.T, name, instance string) *controller {
	t.Helper()
	c := r.dial(t)
	c.say(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: name, Instance: instance}}})
	m, err := c.stream.Recv()
	require.NoError(t, err)
	require.Equal(t, name, m.GetWelcome().GetController())
	return c
}

func (r *replica) dial(t *testing.T) *controller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := admissionv1.NewAdmissionServiceClient(r.conn).Connect(ctx)
	require.NoError(t, err)
	return &controller{t, stream, cancel}
}

func (c *controller) say(m *admissionv1.ControllerMessage) { require.NoError(c.t, c.stream.Send(m)) }

// review waits for the next review.
func (c *controller) review() *admissionv1.Review {
	c.t.Helper()
	m, err := c.stream.Recv()
	require.NoError(c.t, err)
	require.NotNil(c.t, m.GetReview())
	return m.GetReview()
}

func verdicts(batch uint64, allow bool, reason string, ids ...string) *admissionv1.ControllerMessage {
	v := &admissionv1.Verdicts{BatchId: batch}
	for _, id := range ids {
		v.Verdicts = append(v.Verdicts, &admissionv1.Verdict{JobId: id, Allow: allow, Reason: reason})
	}
	return &admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Verdicts{Verdicts: v}}
}

// serve answers every review by judge until the stream ends.
func (c *controller) serve(judge func(*admissionv1.ReviewedJob) (bool, string)) {
	go func() {
		for {
			m, err := c.stream.Recv()
			if err != nil {
				return
			}
			v := &admissionv1.Verdicts{BatchId: m.GetReview().GetBatchId()}
			for _, job := range m.GetReview().GetJobs() {
				allow, reason := judge(job)
				v.Verdicts = append(v.Verdicts, &admissionv1.Verdict{JobId: job.GetJobId(), Allow: allow, Reason: reason})
			}
			if c.stream.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Verdicts{Verdicts: v}}) != nil {
				return
			}
		}
	}()
}

func allowAll(*admissionv1.ReviewedJob) (bool, string) { return true, "" }

func job(id string, project int64) spillway.Job {
	return spillway.Job{
		ID: spillway.JobID(id), Name: "job " + id, Script: "echo secret-script", Image: "ruby:3.3", Env: map[string]string{"TOKEN": "secret-env", "REF": "main"},
		Requirement: spillway.Requirement{Tags: []string{"a"}, Project: project, Groups: []int64{3}},
	}
}

func push(t *testing.T, s *store.Store, jobs ...spillway.Job) {
	t.Helper()
	outcomes, err := s.Push(t.Context(), jobs)
	require.NoError(t, err)
	for _, o := range outcomes {
		require.Equal(t, store.Accepted, o)
	}
}

func pushMany(t *testing.T, s *store.Store, n int, project int64) {
	t.Helper()
	jobs := make([]spillway.Job, n)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("%d-%s", project, strconv.Itoa(i)), project)
	}
	push(t, s, jobs...)
}

func awaitState(t *testing.T, s *store.Store, id string, want spillway.JobState) spillway.JobRecord {
	t.Helper()
	var r spillway.JobRecord
	require.Eventually(t, func() bool {
		var err error
		r, err = s.Get(t.Context(), spillway.JobID(id))
		require.NoError(t, err)
		return r.State == want
	}, within, every, "job %s never became %s: %v", id, want, &r)
	return r
}

// claimAdmitted claims what may be given to a machine of a class that needs approval.
func claimAdmitted(t *testing.T, s *store.Store, project int64) []router.Claimed {
	t.Helper()
	j := job("x", project)
	got, err := s.Claim(t.Context(), "m", []router.ClaimWant{{Class: j.Requirement.Class(), Pool: "p", N: 100, AdmittedOnly: true}}, time.Minute)
	require.NoError(t, err)
	return got
}
