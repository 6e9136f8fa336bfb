package jobrouter

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab"
)

func TestATokenThatGitLabRefusesSendsItsRunnersThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: http.StatusForbidden}, nil
		})
		p := s.askFirst("m1")
		pass(time.Second)
		a, ok := p.got()
		require.True(t, ok)
		require.Equal(t, direct, a.verdict)
		p = s.askFirst("m1")
		synctest.Wait()
		a, ok = p.got()
		require.True(t, ok, "at once, without asking again")
		require.Equal(t, direct, a.verdict)
		require.Len(t, s.gitlab.questions(), 1)
		s.gitlab.answerWith(nil)
		pass(time.Minute)
		p = s.askFirst("m1")
		pass(time.Second)
		p.mustWait(t)
	})
}

func TestATokenThatIsTakenOutOfTheConfigurationSendsItsRunnersToGitLab(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		p := s.askFirst("m1")
		pass(time.Second)
		s.desk.opt.Tokens.Replace(nil)
		pass(2 * time.Second)
		a, ok := p.got()
		require.True(t, ok)
		require.Equal(t, direct, a.verdict)
	})
}

// Others that ask for the same jobs make conflicts. GitLab answers all the same, so that it
// is known whether jobs wait.
func TestConflictsAreNoFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		failing := func() int { return s.desk.Status()[0].Failing }
		answers := func(status int) {
			s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: status}, nil })
			s.askFirst("m1")
			pass(40 * time.Second)
		}
		answers(http.StatusConflict)
		require.Greater(t, len(s.gitlab.questions()), 4)
		require.Zero(t, failing())
		answers(http.StatusInternalServerError)
		require.Greater(t, failing(), 1)
		answers(http.StatusConflict)
		require.Zero(t, failing())
	})
}

func TestGitLabsIllnessIsWaitedOut(t *testing.T) {
	for name, answer := range map[string]func() (gitlab.JobAnswer, error){
		"409": func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: 409}, nil },
		"422": func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: 422}, nil },
		"429": func() (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: 429, RetryAfter: 8 * time.Second}, nil
		},
		"500":        func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: 500}, nil },
		"503":        func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: 503}, nil },
		"404":        func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{Status: 404}, nil },
		"no network": func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{}, gitlab.ErrUnavailable },
		"own budget": func() (gitlab.JobAnswer, error) { return gitlab.JobAnswer{}, &gitlab.Limited{RetryAfter: time.Second} },
		"no job in a 201": func() (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: 201, Body: []byte(`{"id":"x"}`)}, nil
		},
		"half a job": func() (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: 201, Body: jobBody(9)[:40]}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newStand(t)
				s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) { return answer() })
				p := s.askFirst("m1")
				pass(40 * time.Second)
				p.mustWait(t) // and nothing worse
				require.Less(t, len(s.gitlab.questions()), 25)
				require.Greater(t, len(s.gitlab.questions()), 2)
				s.gitlab.answerWith(nil)
				s.gitlab.enqueue(1)
				pass(16 * time.Second) // half of the longest back-off: the dice say 0.5
				a, ok := p.got()
				if ok && a.verdict == noJob { // its long poll was over
					p = s.askFirst("m1")
					pass(16 * time.Second)
					a, ok = p.got()
				}
				require.True(t, ok)
				require.Equal(t, aJob, a.verdict)
			})
		})
	}
}

func TestALeaseThatCannotBeRenewedEndsTheQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.askFirst("m1")
		pass(time.Second)
		s.leases.failFor(func(string) bool { return true })
		began := time.Now()
		pass(40 * time.Second)
		q := s.gitlab.questions()
		last := q[len(q)-1].at.Sub(began)
		require.Less(t, last, DefaultLeaseTTL-leaseMargin, "not after another may have the lease")
		s.leases.failFor(nil)
		n := len(q)
		s.askFirst("m2")
		pass(5 * time.Second)
		require.Greater(t, len(s.gitlab.questions()), n)
	})
}

func TestABurstStaysWithinTheBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		for id := range int64(200) {
			s.gitlab.enqueue(id + 1)
		}
		calls := make([]*pending, 200)
		for i := range calls {
			calls[i] = s.ask("m"+string(jobID(int64(i))), "first", runnerFeatures())
		}
		pass(time.Second)
		require.LessOrEqual(t, len(s.gitlab.questions()), askBurst+DefaultRatePerToken+1)
		pass(6 * time.Second)
		for _, p := range calls {
			a, ok := p.got()
			require.True(t, ok)
			a.settle(arrived)
		}
		require.Equal(t, 200, s.log.count("given"))
	})
}

func TestANewJobIsFetchedAtOnceWhenAWebhookTellsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) { o.PollEvery = 10 * time.Second })
		p := s.askFirst("m1")
		pass(time.Second)
		s.gitlab.enqueue(1)
		s.desk.Hasten()
		synctest.Wait()
		p.mustGet(t, 1)

		s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) {
			return gitlab.JobAnswer{Status: 429, RetryAfter: time.Minute}, nil
		})
		s.askFirst("m1")
		pass(time.Second)
		n := len(s.gitlab.questions())
		s.desk.Hasten()
		pass(time.Second)
		require.Len(t, s.gitlab.questions(), n, "not where GitLab has asked for patience")
	})
}
