package jobrouter

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// bubble runs a test in virtual time. What is under way when it ends is stopped in it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAMachineThatWaitsGetsItsJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		p := s.askFirst("m1")
		pass(3 * time.Second)
		p.mustWait(t)
		s.gitlab.enqueue(11)
		pass(2 * time.Second)
		a := p.mustGet(t, 11)
		require.Equal(t, "correlation-11", a.requestID)
		machine, booked := s.book.has(11)
		require.True(t, booked, "a job is booked before it is given")
		require.EqualValues(t, "m1", machine)
		a.settle(arrived)
		require.True(t, s.log.has("given 11 to m1"))
		j := s.book.mu.begins[0]
		require.Equal(t, "first", j.Pool)
		require.Equal(t, time.Hour+jobMargin, j.Until.Sub(j.Begun))
	})
}

func TestGitLabIsAskedInTheRunnersWords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.askFirst("m1")
		pass(2500 * time.Millisecond)
		q := s.gitlab.questions()
		require.Len(t, q, 3, "one question a second while there is nothing")
		for i, at := range []string{"", "v0", "v0"} {
			require.Equal(t, testToken, q[i].token)
			require.Equal(t, "m1", q[i].system)
			require.Equal(t, "a", q[i].replica)
			require.Equal(t, at, q[i].last, "what GitLab said last is reused")
			require.JSONEq(t, string(mustFeatures(runnerFeatures())), q[i].features)
		}
	})
}

func TestALongPollEndsWithoutAJobAndHandsTheQueuesStateBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		p := s.askFirst("m1")
		pass(47 * time.Second)
		p.mustWait(t)
		pass(time.Second)
		a, ok := p.got()
		require.True(t, ok, "50s less half of the jitter, plus a sweep")
		require.Equal(t, noJob, a.verdict)
		require.Equal(t, "v0", a.lastUpdate)
		require.False(t, s.log.has("trouble"))
	})
}

func TestNobodyWaitsNobodyAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		pass(time.Minute)
		require.Empty(t, s.gitlab.questions())
		p := s.askFirst("m1")
		pass(time.Second)
		n := len(s.gitlab.questions())
		require.NotZero(t, n)
		p.cancel()
		pass(time.Minute)
		require.LessOrEqual(t, len(s.gitlab.questions()), n+1)
		require.Empty(t, s.leases.holder(leaseName(s.desk.lines()[0].hash)), "nobody needs the lease")

		s.gitlab.enqueue(5)
		p = s.askFirst("m1")
		pass(100 * time.Millisecond)
		p.mustGet(t, 5)
	})
}

func TestPriorityFirstThenTheMachineThatWasUsedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1)
		p := s.ask("used", "second", runnerFeatures())
		pass(time.Second)
		p.mustGet(t, 1).settle(arrived)

		calls := map[string]*pending{}
		for _, system := range []string{"fresh", "used", "other"} {
			calls[system] = s.ask(system, "second", runnerFeatures())
		}
		calls["best"] = s.ask("best", "first", runnerFeatures())
		pass(100 * time.Millisecond)
		for i, system := range []string{"best", "used"} {
			id := int64(2 + i)
			s.gitlab.enqueue(id)
			pass(2 * time.Second)
			calls[system].mustGet(t, id).settle(arrived)
		}
		calls["fresh"].mustWait(t)
		calls["other"].mustWait(t)
	})
}

func TestACordonedMachineGetsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.book.order("m1", true)
		p := s.askFirst("m1")
		pass(10 * time.Second)
		require.Empty(t, s.gitlab.questions(), "no job is asked for in the name of a machine that may not have it")
		s.book.order("m1", false)
		s.gitlab.enqueue(1)
		pass(6 * time.Second)
		p.mustGet(t, 1)
	})
}

func TestAnOrderToDrainThatComesWithTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		s.gitlab.enqueue(1)
		first := s.askFirst("m1")
		pass(time.Second)
		s.book.order("m1", true) // GitLab has been asked in its name
		close(hold)
		pass(time.Second)
		first.mustWait(t)
		require.True(t, s.log.has("kept 1"))
		_, booked := s.book.has(1)
		require.False(t, booked)

		second := s.askFirst("m2")
		pass(time.Second)
		second.mustGet(t, 1).settle(arrived)
		machine, _ := s.book.has(1)
		require.EqualValues(t, "m2", machine)
	})
}

func TestAJobWhoseMachineWentAwayGoesToAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		s.gitlab.enqueue(1)
		gone := s.askFirst("m1")
		pass(time.Second)
		gone.cancel()
		stays := s.askFirst("m2")
		pass(time.Second)
		close(hold)
		pass(time.Second)
		a, _ := gone.got()
		require.Equal(t, nobody, a.verdict)
		stays.mustGet(t, 1)
	})
}

func TestARefusedJobFailsWithTheReasonInItsLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) {
			o.Admit = func(_ context.Context, j gitlab.Payload, who route.Caller) (bool, string) {
				return j.ID != 1, "no job of project 7 on " + who.Pool.Name
			}
		})
		s.gitlab.enqueue(1, 2)
		p := s.askFirst("m1")
		pass(3 * time.Second)
		p.mustGet(t, 2)
		require.Equal(t, "runner_system_failure: no job of project 7 on first", s.gitlab.failure(1))
		require.True(t, s.log.has("rejected 1: no job of project 7"))
	})
}

// What somebody writes into his job is no failure of GitLab's, after which the next
// question waits, and with it everybody else's jobs.
func TestAJobThatAdmissionCannotLookAtIsRefusedAndDelaysNoOther(t *testing.T) {
	services := strings.TrimSuffix(strings.Repeat(`{"name":"postgres:16"},`, gitlab.MaxServices+1), ",")
	body := append(jobBody(1)[:len(jobBody(1))-1], []byte(`,"services":[`+services+`]}`)...)
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) {
			o.Admit = func(_ context.Context, j gitlab.Payload, _ route.Caller) (bool, string) { return j.ID == 2, "" }
		})
		s.gitlab.mu.running[1] = true
		s.gitlab.answerWith(answerOnce(body))
		s.gitlab.enqueue(2)
		p := s.askFirst("m1")
		pass(100 * time.Millisecond)
		p.mustGet(t, 2)
		require.Equal(t, "runner_system_failure: "+gitlab.TooManyServices, s.gitlab.failure(1))
	})
	bubble(t, func(t *testing.T) {
		s := newStand(t) // nobody has to look at it
		s.gitlab.answerWith(answerOnce(body))
		p := s.askFirst("m1")
		pass(100 * time.Millisecond)
		a, ok := p.got()
		require.True(t, ok)
		require.Equal(t, string(body), string(a.body))
	})
}

// So it is with one that is too large for any runner's gRPC.
func TestAJobThatCannotBeHandedOnIsFailedAndDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.mu.running[1] = true
		once := answerOnce(jobBody(1)[:100])
		s.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
			a, err := once(q)
			a.Cut = true
			return a, err
		})
		s.gitlab.enqueue(2)
		p := s.askFirst("m1")
		pass(100 * time.Millisecond)
		p.mustGet(t, 2)
		require.Contains(t, s.gitlab.failure(1), "runner_system_failure: the job is larger than")
		require.True(t, s.log.has("rejected 1: the job is larger than"))
		require.Empty(t, s.desk.Held())
	})
}

func TestAPanicInAHookCostsNeitherTheJobNorTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		panics := true
		s := newStand(t, func(o *Options, _ *stand) {
			o.Admit = func(context.Context, gitlab.Payload, route.Caller) (bool, string) {
				if panics {
					panics = false
					panic("a controller")
				}
				return true, ""
			}
		})
		s.gitlab.enqueue(1)
		p := s.askFirst("m1")
		pass(5 * time.Second)
		p.mustGet(t, 1)
		require.True(t, s.log.has("panicked a controller"))
	})
}

func TestAMachineWithFewerFeaturesIsNotGivenWhatItCannotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		s.gitlab.enqueue(1)
		p := s.askFirst("m1")
		pass(time.Second)
		p.cancel()
		fewer := runnerFeatures()
		delete(fewer, "image")
		lesser := s.ask("m2", "first", fewer)
		synctest.Wait()
		close(hold)
		pass(time.Second)
		lesser.mustWait(t)
		more := runnerFeatures()
		more["native_steps_integration"] = true
		better := s.ask("m3", "second", more)
		pass(time.Second)
		better.mustGet(t, 1)
	})
}

func TestDrainSendsEverybodyToGitLabAndLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) { o.HoldPerToken = 2 })
		s.gitlab.enqueue(1)
		pass(time.Second) // kept
		require.Len(t, s.desk.Held(), 1)
		lesser := map[string]bool{"two_phase_job_commit": false}
		p := s.ask("m1", "first", lesser) // it can't have that one
		pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.desk.Drain(ctx))
		a, ok := p.got()
		require.True(t, ok)
		require.Equal(t, direct, a.verdict)
		require.True(t, s.log.has("left 1: the job router was drained"))
		require.Empty(t, s.leases.holder(leaseName(s.desk.lines()[0].hash)))
		p = s.askFirst("m2")
		synctest.Wait()
		a, ok = p.got()
		require.True(t, ok, "whoever comes later is sent there too")
		require.Equal(t, direct, a.verdict)
	})
}

func TestDrainGivesTheJobThatIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1)
		slow := make(chan struct{})
		s.book.failWith(func(verb string) error {
			if verb == "begin" {
				s.book.mu.Unlock() // as a store that takes its time
				<-slow
				s.book.mu.Lock()
			}
			return nil
		})
		p := s.askFirst("m1")
		pass(time.Second)
		drained := make(chan error, 1)
		go func() { drained <- s.desk.Drain(t.Context()) }()
		pass(time.Second)
		p.mustWait(t)
		close(slow)
		pass(time.Second)
		p.mustGet(t, 1).settle(arrived)
		require.NoError(t, <-drained)
		require.False(t, s.log.has("left"))
	})
}

func TestAReplicaThatStopsWithoutDrainingSaysThatItIsGoing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		p := s.askFirst("m1")
		pass(time.Second)
		s.stop()
		a, ok := p.got()
		require.True(t, ok)
		require.Equal(t, going, a.verdict)
		p = s.askFirst("m1")
		synctest.Wait()
		a, ok = p.got()
		require.True(t, ok)
		require.Equal(t, going, a.verdict)
	})
}

func TestNothingSecretIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) { o.HoldPerToken = 1 })
		s.gitlab.enqueue(1, 2, 3)
		pass(2 * time.Second)
		p := s.askFirst("m1")
		pass(2 * time.Second)
		p.mustGet(t, 1).settle(arrived)
		s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: 201, Body: jobBody(9)[:80]}, nil
		})
		s.askFirst("m2")
		pass(time.Minute)
		require.NotEmpty(t, s.log.all())
		for _, line := range s.log.all() {
			for _, secret := range []string{testToken, jobSecret, scriptWords} {
				require.NotContains(t, line, secret)
			}
		}
	})
}

func jobID(id int64) spillway.JobID {
	return newJob(gitlab.JobAnswer{}, gitlab.Payload{ID: id}, "", nil, wish{}, time.Time{}).id
}
