package jobrouter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab"
)

func TestAKeptJobIsRenewedInTimeAndGivenToWhoComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		s.gitlab.enqueue(1)
		p := s.askFirst("m1")
		pass(time.Second)
		p.cancel()
		synctest.Wait()
		close(hold)
		pass(10 * time.Minute)
		require.Len(t, s.desk.Held(), 1)
		require.InDelta(t, 15, len(s.gitlab.keeps()), 1, "every 40s")
		late := s.askFirst("m2")
		pass(10 * time.Millisecond)
		late.mustGet(t, 1)
		require.NoError(t, s.gitlab.run(1), "GitLab still takes it")
		require.Empty(t, s.desk.Held())
	})
}

func TestAKeptJobIsLeft(t *testing.T) {
	keep := func(t *testing.T, s *stand) {
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		s.gitlab.enqueue(1)
		p := s.askFirst("m1")
		pass(time.Second)
		p.cancel()
		synctest.Wait()
		close(hold)
		pass(time.Second)
		require.Len(t, s.desk.Held(), 1)
	}
	t.Run("after as long as jobs are kept", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t, func(o *Options, _ *stand) { o.KeepFor = 5 * time.Minute })
			keep(t, s)
			pass(6 * time.Minute)
			require.True(t, s.log.has("left 1: no machine took it"))
			require.Empty(t, s.desk.Held())
		})
	})
	t.Run("when GitLab says that it isn't ours", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			keep(t, s)
			s.gitlab.keepWith(func(int64) error { return gitlab.ErrForbidden })
			pass(time.Minute)
			require.True(t, s.log.has("left 1: GitLab says that it isn't ours any more"))
			require.Len(t, s.gitlab.keeps(), 1)
		})
	})
	t.Run("when GitLab can't be told before it gives up", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			keep(t, s)
			s.gitlab.keepWith(func(int64) error { return gitlab.ErrUnavailable })
			pass(2 * time.Minute)
			require.True(t, s.log.has("left 1: GitLab could not be told in time"))
			require.Greater(t, len(s.gitlab.keeps()), 5, "it was tried")
			late := s.askFirst("m2")
			pass(time.Second)
			late.mustWait(t)
		})
	})
}

func TestWhatWasWrittenToACallThatEndedIsGivenAgainOnlyIfGitLabAgrees(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1, 2)
		first, second := s.askFirst("m1"), s.askFirst("m2")
		pass(3 * time.Second)
		a1, ok := first.got()
		require.True(t, ok)
		a2, ok := second.got()
		require.True(t, ok)
		third := s.askFirst("m3")
		synctest.Wait()

		taken, free := a1, a2 // whichever job each has
		require.NoError(t, s.gitlab.run(idOf(taken)))
		taken.settle(broken) // but its runner has begun it
		pass(time.Second)
		third.mustWait(t)
		require.True(t, s.log.has("left "+string(jobID(idOf(taken)))+": GitLab says"))

		free.settle(broken)
		pass(time.Second)
		third.mustGet(t, idOf(free))
		machine, _ := s.book.has(idOf(free))
		require.EqualValues(t, "m3", machine)
	})
}

// A job that a machine may have is in its book until GitLab has said that it has not: a
// machine with an empty book is removed.
func TestAJobThatAMachineMayHaveStaysInItsBook(t *testing.T) {
	keepDoubtful := func(t *testing.T, s *stand) {
		s.gitlab.enqueue(1)
		p := s.askFirst("m1")
		pass(3 * time.Second)
		a := p.mustGet(t, 1)
		s.gitlab.keepWith(func(int64) error { return gitlab.ErrUnavailable })
		a.settle(broken)
		pass(time.Second)
		require.Len(t, s.desk.Held(), 1)
	}
	booked := func(t *testing.T, s *stand) {
		require.Empty(t, s.desk.Held())
		machine, ok := s.book.has(1)
		require.True(t, ok, "it may run there")
		require.EqualValues(t, "m1", machine)
	}
	t.Run("when GitLab says that it runs", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			keepDoubtful(t, s)
			require.NoError(t, s.gitlab.run(1)) // its runner has begun it
			s.gitlab.keepWith(nil)
			pass(time.Minute)
			require.True(t, s.log.has("left 1: GitLab says that it isn't ours any more"))
			booked(t, s)
		})
	})
	t.Run("when GitLab could not be asked", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			keepDoubtful(t, s)
			pass(2 * time.Minute)
			require.True(t, s.log.has("left 1: GitLab could not be told in time"))
			booked(t, s)
		})
	})
	t.Run("when we stop", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			keepDoubtful(t, s)
			s.stop()
			require.True(t, s.log.has("left 1: the job router has stopped"))
			booked(t, s)
		})
	})
}

func TestWhatWasNotWrittenIsGivenAgainAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1)
		first := s.askFirst("m1")
		pass(time.Second)
		a := first.mustGet(t, 1)
		a.settle(unwritten)
		_, booked := s.book.has(1)
		require.False(t, booked, "what nobody has is in nobody's book")
		second := s.askFirst("m2")
		pass(time.Second)
		second.mustGet(t, 1)
		require.Empty(t, s.gitlab.keeps(), "no need to ask GitLab")
	})
}

func TestWhileTheStoreIsAwayNoJobIsTakenAndNoneIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1)
		hold := make(chan struct{})
		s.gitlab.holdUntil(hold)
		p := s.askFirst("m1")
		pass(time.Second)
		s.book.failWith(func(string) error { return errAway })
		close(hold) // a job comes that can't be booked
		pass(20 * time.Second)
		p.mustWait(t)
		require.Len(t, s.gitlab.questions(), 1, "no further job is taken")
		require.Len(t, s.desk.Held(), 1)
		s.book.failWith(nil)
		pass(2 * time.Second)
		p.mustGet(t, 1)
	})
}

func TestABookingOfUnknownOutcomeIsStruckBeforeAnotherMachineGetsTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		s.gitlab.enqueue(1)
		tried := 0
		s.book.failWith(func(verb string) error {
			if verb != "begin" {
				return nil
			}
			if tried++; tried == 1 {
				s.book.mu.on["1"] = routedTo("m1") // carried out, and the answer lost
				return errAway
			}
			return nil
		})
		p := s.askFirst("m1")
		q := s.ask("m2", "second", runnerFeatures())
		pass(time.Second)
		a, ok := q.got()
		if !ok { // m2 may have been a moment too late: m1 is asked again after a rest
			pass(2 * time.Second)
			a, ok = p.got()
		}
		require.True(t, ok)
		require.Equal(t, aJob, a.verdict)
		require.Equal(t, 2, tried)
	})
}

func TestRunnersWithoutTwoPhaseCommit(t *testing.T) {
	t.Run("are asked for only while they wait, and last", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			old := s.ask("old", "first", legacyFeatures())
			pass(1500 * time.Millisecond)
			for _, q := range s.gitlab.questions() {
				require.Equal(t, "old", q.system)
			}
			require.Equal(t, 1, s.log.count("degraded"), "said once, not with each question")
			require.Equal(t, 1, s.desk.Status()[0].Legacy)
			s.askFirst("new")
			n := len(s.gitlab.questions())
			pass(5 * time.Second)
			for _, q := range s.gitlab.questions()[n:] {
				require.Equal(t, "new", q.system, "a job for it can't be lost")
			}
			old.cancel()
		})
	})
	t.Run("a job that can't be given fails instead of hanging", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			hold := make(chan struct{})
			s.gitlab.holdUntil(hold)
			s.gitlab.enqueue(1)
			old := s.ask("old", "first", legacyFeatures())
			pass(time.Second)
			old.cancel()
			s.askFirst("new")
			synctest.Wait()
			close(hold)
			pass(20 * time.Second)
			require.Empty(t, s.gitlab.failure(1), "another one of its kind may come")
			pass(20 * time.Second)
			require.Contains(t, s.gitlab.failure(1), "runner_system_failure: The machine that this job was meant for went away")
			require.Empty(t, s.gitlab.keeps(), "GitLab takes it as running: it can't be kept pending")
		})
	})
	t.Run("another one gets it", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStand(t)
			hold := make(chan struct{})
			s.gitlab.holdUntil(hold)
			s.gitlab.enqueue(1)
			old := s.ask("old", "first", legacyFeatures())
			pass(time.Second)
			old.cancel()
			other := s.ask("other", "first", legacyFeatures())
			synctest.Wait()
			close(hold)
			pass(time.Second)
			other.mustGet(t, 1)
		})
	})
}

func TestFromZeroOneJobIsKeptUntilAMachineComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) { o.HoldPerToken = 1 })
		s.gitlab.enqueue(1, 2, 3)
		pass(5 * time.Minute)
		held := s.desk.Held()
		require.Len(t, held, 1, "no more than one")
		require.EqualValues(t, "1", held[0].ID)
		require.EqualValues(t, 7, held[0].Project)
		require.EqualValues(t, 3, held[0].Queue)
		require.True(t, held[0].Protected)
		q := s.gitlab.questions()
		require.Len(t, q, 1)
		require.Equal(t, ourSystem, q[0].system)
		require.True(t, q[0].twoPhase)
		p := s.ask("m1", "second", map[string]bool{"two_phase_job_commit": true})
		pass(10 * time.Millisecond)
		p.mustGet(t, 1).settle(arrived)
		pass(3 * time.Second)
		require.Len(t, s.desk.Held(), 1, "the next one, since nobody waits now")
	})
}

func TestFromZeroInTheWordsOfWhoAskedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t, func(o *Options, _ *stand) { o.HoldPerToken = 1 })
		p := s.askFirst("m1")
		pass(time.Second)
		p.cancel()
		pass(2 * time.Second)
		q := s.gitlab.questions()
		last := q[len(q)-1]
		require.Equal(t, ourSystem, last.system, "not in the name of a machine that is gone")
		require.True(t, last.twoPhase)
	})
}
