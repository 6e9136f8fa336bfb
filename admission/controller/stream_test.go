package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func TestSaysWhoItIsAndJudgesEachJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan *admissionv1.Verdicts, 3)
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			c.review(7, "1", "2")
			c.review(8, "3")
			for range 2 {
				v, err := c.verdicts()
				if err != nil {
					return err
				}
				heard <- v
			}
			return c.wait()
		}}
		judge := func(_ context.Context, job *admissionv1.ReviewedJob) (bool, string) {
			return job.GetJobId() != "2", "not " + job.GetJobId()
		}
		said := connect(t, p, Options{Controller: "a", Instance: "i", Version: "v", MaxBatch: 5}, judge)
		first, second := <-heard, <-heard
		require.Equal(t, uint64(7), first.GetBatchId())
		require.Len(t, first.GetVerdicts(), 2, "in one message: they were quick")
		require.True(t, first.GetVerdicts()[0].GetAllow())
		require.False(t, first.GetVerdicts()[1].GetAllow())
		require.Equal(t, "not 2", first.GetVerdicts()[1].GetReason())
		require.Equal(t, uint64(8), second.GetBatchId())
		require.Equal(t, "3", second.GetVerdicts()[0].GetJobId())
		require.Len(t, said(), 1)
		require.NoError(t, said()[0].err)
		hello := p.mu.hellos[0]
		require.Equal(t, []any{"a", "i", "v", int32(5)}, []any{hello.GetController(), hello.GetInstance(), hello.GetVersion(), hello.GetMaxBatch()})
	})
}

// What the control plane says to a wrong answer, a wrong name or too many instances
// reaches whoever runs the controller as a status, and it comes back with growing pauses.
func TestARefusalIsTyped(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted, codes.AlreadyExists, codes.DeadlineExceeded, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plane{handle: func(c *conversation) error {
					c.welcome()
					return status.Error(code, "a sentence")
				}}
				said := connect(t, p, Options{Controller: "a"}, allowAll)
				time.Sleep(10 * time.Minute)
				var refusals []told
				for _, told := range said() {
					if told.err != nil {
						require.Equal(t, code, status.Code(told.err))
						require.ErrorContains(t, told.err, "a sentence")
						refusals = append(refusals, told)
					}
				}
				require.InDelta(t, 10*time.Minute/retryMost, len(refusals), 60, "neither often nor never")
				last := refusals[len(refusals)-1].at.Sub(refusals[len(refusals)-2].at)
				require.GreaterOrEqual(t, last, retryMost/2)
				require.LessOrEqual(t, last, retryMost)
				require.Less(t, refusals[1].at.Sub(refusals[0].at), 2*retryFirst, "the first time it comes back at once")
			})
		})
	}
}

// A connection that lasted is followed by a short pause, however many there were before.
func TestAGoodConnectionMakesThePausesShortAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			if c.number == 12 {
				time.Sleep(steadyAfter)
			}
			return status.Error(codes.Unavailable, "going away")
		}}
		said := connect(t, p, Options{Controller: "a"}, allowAll)
		time.Sleep(5 * time.Minute)
		var refusals []told
		for _, told := range said() {
			if told.err != nil {
				refusals = append(refusals, told)
			}
		}
		require.Greater(t, len(refusals), 13)
		require.GreaterOrEqual(t, refusals[10].at.Sub(refusals[9].at), retryMost/2)
		require.Less(t, refusals[12].at.Sub(refusals[11].at), 2*retryFirst)
	})
}

// A control plane that was away for long is found again within one pause of ours and one
// of grpc's.
func TestALongOutageIsFollowedByAQuickReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			return c.wait()
		}}
		p.setDown(true)
		said := connect(t, p, Options{Controller: "a"}, allowAll)
		time.Sleep(time.Hour)
		require.Zero(t, p.hellos())
		require.Equal(t, codes.Unavailable, status.Code(said()[0].err))
		require.Greater(t, len(p.mu.dialed), 100)
		p.setDown(false)
		time.Sleep(2*retryMost + retryMost/5)
		require.Equal(t, 1, p.hellos())
	})
}

// A judge that needs its time is heard as it goes on, so that nobody takes it for silent.
func TestASlowJudgeIsHeardInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan []*admissionv1.Verdict, 3)
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			c.review(1, "1", "2", "3")
			for {
				v, err := c.verdicts()
				if err != nil {
					return err
				}
				heard <- v.GetVerdicts()
			}
		}}
		slow := func(context.Context, *admissionv1.ReviewedJob) (bool, string) {
			time.Sleep(sayEvery * 3 / 4)
			return true, ""
		}
		connect(t, p, Options{Controller: "a"}, slow)
		require.Len(t, <-heard, 2, "after more than a second")
		require.Len(t, <-heard, 1)
	})
}

// The judge's context ends with the deadline; what it says then is not sent, since it may
// be a refusal for no other reason.
func TestNothingIsSaidAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan *admissionv1.Verdicts, 9)
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			c.review(1, "quick", "endless", "never judged")
			time.Sleep(time.Second) // so that its deadline is later
			c.review(2, "next")
			for {
				v, err := c.verdicts()
				if err != nil {
					return err
				}
				heard <- v
			}
		}}
		var judged []string
		judge := func(ctx context.Context, job *admissionv1.ReviewedJob) (bool, string) {
			judged = append(judged, job.GetJobId())
			if job.GetJobId() == "endless" {
				<-ctx.Done()
				return false, "interrupted"
			}
			return true, ""
		}
		connect(t, p, Options{Controller: "a"}, judge)
		began := time.Now()
		first, second := <-heard, <-heard
		require.Equal(t, deadline, time.Since(began))
		require.Equal(t, uint64(1), first.GetBatchId())
		require.Len(t, first.GetVerdicts(), 1)
		require.Equal(t, "quick", first.GetVerdicts()[0].GetJobId())
		require.Equal(t, uint64(2), second.GetBatchId())
		require.Equal(t, []string{"quick", "endless", "next"}, judged)
	})
}

// A judge is interrupted when its connection has ended: nobody waits for it.
func TestTheEndOfTheConnectionInterruptsTheJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judging := make(chan struct{})
		p := &plane{handle: func(c *conversation) error {
			c.welcome()
			if c.number > 1 {
				return c.wait()
			}
			c.review(1, "1")
			<-judging
			return status.Error(codes.Unavailable, "going away")
		}}
		interrupted := make(chan struct{})
		judge := func(ctx context.Context, _ *admissionv1.ReviewedJob) (bool, string) {
			close(judging)
			<-ctx.Done()
			close(interrupted)
			return false, ""
		}
		connect(t, p, Options{Controller: "a"}, judge)
		began := time.Now()
		<-interrupted
		require.Zero(t, time.Since(began))
		time.Sleep(time.Second)
		require.Equal(t, 2, p.hellos())
	})
}
