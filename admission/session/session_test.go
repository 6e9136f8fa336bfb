package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/admission/session"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func everybody(name string) admission.Controller {
	return admission.Controller{Name: name, Scope: admission.Instance, Deadline: 2 * time.Second}
}

func TestApprovedInOrderAndThenClaimable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		r := start(t, s, "one", policy(t,
			admission.Controller{Name: "project", Scope: admission.Project, Projects: []int64{7}},
			admission.Controller{Name: "group", Scope: admission.Group, Groups: []int64{3}, Send: admission.Send{Env: []string{"REF"}}},
			admission.Controller{Name: "instance", Scope: admission.Instance, Send: admission.Send{Script: true}},
		))
		instance, group, project := r.connect(t, "instance", "i"), r.connect(t, "group", "g"), r.connect(t, "project", "p")
		push(t, s, job("1", 7))
		for _, c := range []*controller{instance, group, project} {
			review := c.review()
			require.Len(t, review.GetJobs(), 1)
			shown := review.GetJobs()[0]
			require.Equal(t, "ruby:3.3", shown.GetImage())
			require.Equal(t, "job 1", shown.GetName())
			require.Equal(t, []int64{3}, shown.GetRequirement().GetGroups())
			require.Equal(t, c == instance, shown.GetScript() != "", "only as configured")
			require.Equal(t, c == group, len(shown.GetEnv()) == 1)
			require.NotContains(t, shown.GetEnv(), "TOKEN")
			require.Equal(t, spillway.Routing, awaitState(t, s, "1", spillway.Routing).State)
			require.Empty(t, claimAdmitted(t, s, 7))
			c.say(verdicts(review.GetBatchId(), true, "", "1"))
		}
		awaitState(t, s, "1", spillway.Admitted)
		got := claimAdmitted(t, s, 7)
		require.Len(t, got, 1)
		require.Equal(t, "secret-env", got[0].Job.Env["TOKEN"], "its machine gets all of it")
	})
}

func TestRejectedWithTheControllersSentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		r := start(t, s, "one", policy(t, everybody("a")))
		r.connect(t, "a", "i").serve(func(*admissionv1.ReviewedJob) (bool, string) { return false, "not\x1b[31m\ntoday" })
		push(t, s, job("1", 7))
		record := awaitState(t, s, "1", spillway.Rejected)
		require.Equal(t, spillway.AdmissionRejected, record.Result.Reason)
		require.Equal(t, "admission controller a: not[31m today", record.Result.Detail)
		require.Eventually(t, func() bool { return len(r.events()) == 1 }, within, every)
		require.Equal(t, admission.Rejected, r.events()[0].Outcome)
	})
}

func TestLiarsAreCutOffAndNothingChanges(t *testing.T) {
	for name, lie := range map[string]func(c *controller, batch uint64) *admissionv1.ControllerMessage{
		"a job that it was not given": func(_ *controller, b uint64) *admissionv1.ControllerMessage { return verdicts(b, true, "", "1", "9") },
		"an unknown batch":            func(_ *controller, b uint64) *admissionv1.ControllerMessage { return verdicts(b+1, true, "", "1") },
		"twice":                       func(_ *controller, b uint64) *admissionv1.ControllerMessage { return verdicts(b, true, "", "1", "1") },
		"no verdict":                  func(_ *controller, b uint64) *admissionv1.ControllerMessage { return verdicts(b, true, "") },
		"another hello": func(*controller, uint64) *admissionv1.ControllerMessage {
			return &admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "a", Instance: "i"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				r := start(t, s, "one", policy(t, everybody("a")))
				push(t, s, job("1", 7))
				c := r.connect(t, "a", "liar")
				c.say(lie(c, c.review().GetBatchId()))
				_, err := c.stream.Recv()
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
				r.connect(t, "a", "honest").serve(allowAll) // it is asked of the same job
				awaitState(t, s, "1", spillway.Admitted)
			})
		})
	}
}

func TestBadHellos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, openStore(t), "one", policy(t, everybody("a")))
		for want, hello := range map[string]*admissionv1.ControllerMessage{
			"InvalidArgument the first message must be a hello": verdicts(1, true, "", "1"),
			"NotFound no such controller is configured":         {Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "b", Instance: "i"}}},
			"InvalidArgument hello: name the instance":          {Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "a"}}},
			"InvalidArgument hello: max_batch 257":              {Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "a", Instance: "i", MaxBatch: 257}}},
			"InvalidArgument hello: a version":                  {Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "a", Instance: "i", Version: strings.Repeat("v", 65)}}},
		} {
			c := r.dial(t)
			c.say(hello)
			_, err := c.stream.Recv()
			st := status.Convert(err)
			require.True(t, strings.HasPrefix(st.Code().String()+" "+st.Message(), want), "%v instead of %s", err, want)
		}
		older, newer := r.connect(t, "a", "same"), r.connect(t, "a", "same")
		_, err := older.stream.Recv()
		require.Equal(t, codes.AlreadyExists, status.Code(err))
		newer.serve(allowAll)
		none := session.NewService(nil)
		require.Equal(t, codes.NotFound, status.Code(none.Connect(nil)))
	})
}

func TestASilentControllerFailsItsJobsAndIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		quick := admission.Controller{Name: "quick", Scope: admission.Project, Projects: []int64{2}, Deadline: time.Minute}
		mute := admission.Controller{Name: "mute", Scope: admission.Project, Projects: []int64{1}, Deadline: 300 * time.Millisecond, Batch: 1}
		r := start(t, s, "one", policy(t, quick, mute))
		silent := r.connect(t, "mute", "m")
		r.connect(t, "quick", "q").serve(allowAll)
		pushMany(t, s, 20, 1)
		pushMany(t, s, 20, 2)
		for i := range 20 {
			awaitState(t, s, fmt.Sprintf("2-%d", i), spillway.Admitted) // others are not delayed
		}
		for i := range 20 { // also those that it was never shown: it is silent
			record := awaitState(t, s, fmt.Sprintf("1-%d", i), spillway.Failed)
			require.Equal(t, spillway.AdmissionTimeout, record.Result.Reason)
			require.Contains(t, record.Result.Detail, "mute")
		}
		var err error
		for err == nil {
			_, err = silent.stream.Recv()
		}
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	})
}

func TestAnAbsentControllerFailsItsJobsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		r := start(t, s, "one", policy(t,
			admission.Controller{Name: "here", Scope: admission.Instance, Deadline: time.Minute},
			admission.Controller{Name: "gone", Scope: admission.Project, Projects: []int64{1}, Deadline: 300 * time.Millisecond},
		))
		r.connect(t, "here", "h").serve(allowAll)
		push(t, s, job("1", 1), job("2", 2))
		awaitState(t, s, "2", spillway.Admitted)
		record := awaitState(t, s, "1", spillway.Failed)
		require.Equal(t, spillway.AdmissionTimeout, record.Result.Reason)
		require.Contains(t, record.Result.Detail, "admission controller gone is not connected")
		// It comes: the next job passes.
		r.connect(t, "gone", "g").serve(allowAll)
		push(t, s, job("3", 1))
		awaitState(t, s, "3", spillway.Admitted)
	})
}

func TestDisconnectedMidBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		p := policy(t, everybody("a"))
		one, two := start(t, s, "one", p), start(t, s, "two", p)
		first := one.connect(t, "a", "first")
		pushMany(t, s, 10, 1)
		review := first.review()
		first.say(verdicts(review.GetBatchId(), true, "", review.GetJobs()[0].GetJobId()))
		awaitState(t, s, review.GetJobs()[0].GetJobId(), spillway.Admitted)
		first.cancel()
		two.connect(t, "a", "second").serve(allowAll) // at another replica
		for i := range 10 {
			awaitState(t, s, fmt.Sprintf("1-%d", i), spillway.Admitted)
		}
	})
}

func TestAChainOverSeveralReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		p := policy(t, everybody("a"), everybody("b"), everybody("c"))
		one, two, three := start(t, s, "one", p), start(t, s, "two", p), start(t, s, "three", p)
		one.connect(t, "a", "i").serve(allowAll)
		one.connect(t, "c", "i").serve(allowAll)
		two.connect(t, "b", "i").serve(allowAll)
		pushMany(t, s, 30, 1)
		for i := range 30 {
			awaitState(t, s, fmt.Sprintf("1-%d", i), spillway.Admitted)
		}
		resp, err := admissionv1.NewAdmissionServiceClient(three.conn).ListControllers(t.Context(), &admissionv1.ListControllersRequest{})
		require.NoError(t, err)
		require.Len(t, resp.GetControllers(), 3)
		require.Eventually(t, func() bool {
			resp, err = admissionv1.NewAdmissionServiceClient(three.conn).ListControllers(t.Context(), &admissionv1.ListControllersRequest{})
			return err == nil && len(resp.GetControllers()[1].GetPresence()) == 1 && resp.GetControllers()[1].GetPresence()[0].GetReplica() == "two"
		}, within, every, "a replica without any knows where they are")
	})
}

func TestAReplicaThatStopsGivesBackWhatIsUnderReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		p := policy(t, everybody("a"), admission.Controller{Name: "b", Scope: admission.Instance, Deadline: time.Minute})
		one := start(t, s, "one", p)
		one.connect(t, "a", "i").serve(allowAll)
		held := one.connect(t, "b", "i")
		push(t, s, job("1", 1))
		held.review()
		one.stop()
		require.Equal(t, spillway.Pending, awaitState(t, s, "1", spillway.Pending).State)
		two := start(t, s, "two", p)
		asked := make(chan string, 1)
		two.connect(t, "a", "i").serve(func(j *admissionv1.ReviewedJob) (bool, string) { asked <- j.GetJobId(); return true, "" })
		two.connect(t, "b", "i").serve(allowAll)
		awaitState(t, s, "1", spillway.Admitted)
		require.Empty(t, asked, "what a has approved it is not asked again")
	})
}

func TestDryRunIsRecordedAndDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		dry := everybody("dry")
		dry.DryRun = true
		r := start(t, s, "one", policy(t, dry, admission.Controller{Name: "real", Scope: admission.Project, Projects: []int64{1}}))
		mute := r.connect(t, "dry", "d")
		r.connect(t, "real", "r").serve(allowAll)
		push(t, s, job("1", 1))
		awaitState(t, s, "1", spillway.Admitted) // while dry has not answered
		review := mute.review()
		mute.say(verdicts(review.GetBatchId(), false, "I would not", review.GetJobs()[0].GetJobId()))
		require.Eventually(t, func() bool {
			for _, e := range r.events() {
				if e.DryRun {
					return e.Outcome == admission.Rejected && e.Job == "1"
				}
			}
			return false
		}, within, every)
		require.Equal(t, spillway.Admitted, awaitState(t, s, "1", spillway.Admitted).State)
		// A job that nobody has to approve is shown when it is dispatched.
		free := job("2", 2)
		r.reviewer.Dispatched(&free)
		require.Equal(t, "2", mute.review().GetJobs()[0].GetJobId())
	})
}

func TestQuestionsGoToWhereverTheControllerIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		p := policy(t, everybody("a"), everybody("b"), admission.Controller{Name: "gone", Scope: admission.Project, Projects: []int64{1}, Deadline: 200 * time.Millisecond})
		one, two := start(t, s, "one", p), start(t, s, "two", p)
		one.connect(t, "a", "i").serve(allowAll)
		two.connect(t, "b", "i").serve(func(j *admissionv1.ReviewedJob) (bool, string) {
			return j.GetImage() == "ruby:3.3", "only ruby, not " + j.GetImage()
		})
		subject := func(id, image string, project int64) admission.Subject {
			j := job(id, project)
			j.Image = image
			return admission.Subject{ID: "gitlab " + id, Job: j}
		}
		ok, reason := one.reviewer.Ask(t.Context(), subject("1", "ruby:3.3", 2))
		require.True(t, ok, reason)
		ok, reason = one.reviewer.Ask(t.Context(), subject("2", "evil", 2))
		require.False(t, ok)
		require.Equal(t, "admission controller b: only ruby, not evil", reason)
		ok, reason = two.reviewer.Ask(t.Context(), subject("3", "ruby:3.3", 1))
		require.False(t, ok)
		require.Contains(t, reason, "gone")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ok, _ = one.reviewer.Ask(ended, subject("4", "ruby:3.3", 2))
		require.False(t, ok, "who asks has left")
	})
}

func TestCanceledUnderReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		r := start(t, s, "one", policy(t, everybody("a")))
		c := r.connect(t, "a", "i")
		push(t, s, job("1", 1), job("2", 1))
		review := c.review()
		_, err := s.Cancel(t.Context(), []spillway.JobID{"1"}, "not needed")
		require.NoError(t, err)
		ids := []string{}
		for _, j := range review.GetJobs() {
			ids = append(ids, j.GetJobId())
		}
		c.say(verdicts(review.GetBatchId(), true, "", ids...))
		c.serve(allowAll)
		awaitState(t, s, "2", spillway.Admitted)
		require.Equal(t, spillway.Canceled, awaitState(t, s, "1", spillway.Canceled).State)
	})
}

// An answer to a question of an earlier life of a replica is no answer to one of this life.
func TestAnAnswerForAnEarlierLifeApprovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		b := everybody("b")
		b.Deadline = within
		p := policy(t, b)
		two := start(t, s, "two", p)
		c := two.connect(t, "b", "i")
		one := start(t, s, "one", p)
		go one.reviewer.Ask(t.Context(), admission.Subject{ID: "good", Job: job("good", 2)})
		review := c.review()
		require.Equal(t, "good", review.GetJobs()[0].GetJobId())
		one.stop()
		one = start(t, s, "one", p)
		answers := make(chan bool, 1)
		go func() {
			ok, _ := one.reviewer.Ask(t.Context(), admission.Subject{ID: "evil", Job: job("evil", 2)})
			answers <- ok
		}()
		require.Never(t, func() bool { return len(answers) > 0 }, 2*within/20, every)
		c.say(verdicts(review.GetBatchId(), true, "", "good"))
		next := c.review()
		require.Equal(t, "evil", next.GetJobs()[0].GetJobId())
		c.say(verdicts(next.GetBatchId(), false, "no", "evil"))
		require.False(t, <-answers)
	})
}
