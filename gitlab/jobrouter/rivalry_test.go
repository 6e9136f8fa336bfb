package jobrouter

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
)

const (
	highToken = "glrt-secret-of-the-better"
	lowToken  = "glrt-secret-of-the-other"
)

// heard is when every replica surely knows who waits, also if it began to listen a little
// later.
const heard = tellEvery + tellEvery/2

// bus is what replicas tell each other.
type bus struct {
	mu    sync.Mutex
	heard []chan []byte
	cut   bool // nothing gets through
	sent  int
}

func (b *bus) PublishFact(_ context.Context, _ string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent++
	if b.cut {
		return nil
	}
	for _, c := range b.heard {
		select {
		case c <- slices.Clone(data):
		default:
		}
	}
	return nil
}

func (b *bus) Facts(ctx context.Context, _ string) (<-chan []byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan []byte, 64)
	b.heard = append(b.heard, c)
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.heard = slices.DeleteFunc(b.heard, func(o chan []byte) bool { return o == c })
		close(c)
	})
	return c, nil
}

func (b *bus) cutOff(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = cut
}

// two are two replicas: the runners of the better token ask at a, the others at b.
type two struct {
	a, b   *stand
	bus    *bus
	gitlab *fakeGitLab
}

func newTwo(t *testing.T, sets ...set) *two {
	t.Helper()
	w := &two{bus: &bus{}, gitlab: newFakeGitLab()}
	shared := newStandParts()
	replica := func(name string) *stand {
		return newStand(t, append([]set{func(o *Options, s *stand) {
			o.Replica, o.Facts = name, w.bus
			o.Tokens = route.NewTokens(map[string][]spillway.Pool{highToken: {testPool("high", 0)}, lowToken: {testPool("low", 1)}})
			s.gitlab, s.book, s.leases = w.gitlab, shared.book, shared.leases
		}}, sets...)...)
	}
	w.a, w.b = replica("a"), replica("b")
	return w
}

func newStandParts() *stand { return &stand{book: newFakeBook(), leases: newFakeLeases()} }

func (s *stand) askWith(token, system string) *pending {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	p := &pending{answers: make(chan answer, 1), cancel: cancel}
	body := requestBody(system, "", runnerFeatures())
	who, err := s.desk.opt.Tokens.Caller(token, body)
	require.NoError(s.t, err)
	w := newWaiter(&who, body, "request-of-"+system, s.desk.features.of(who.Features))
	leave, ok := s.desk.enter()
	require.True(s.t, ok)
	go func() {
		defer leave()
		p.answers <- s.desk.wait(ctx, w, 0)
	}()
	return p
}

func (w *two) high(system string) *pending { return w.a.askWith(highToken, system) }
func (w *two) low(system string) *pending  { return w.b.askWith(lowToken, system) }

// asks counts the questions with a token.
func (w *two) asks(token string) (n int) {
	for _, q := range w.gitlab.questions() {
		if q.token == token {
			n++
		}
	}
	return n
}

// A06, I11: while a machine of the better token waits at another replica, GitLab isn't
// asked for the other one; a job goes to the better, and once that has it, to the other.
func TestA06_AnotherTokenOfHigherPriorityGoesFirstOverReplicas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		high := w.high("h")
		pass(heard)
		low := w.low("l")
		pass(20 * time.Second)
		require.Zero(t, w.asks(lowToken), "%v", w.b.log.all())
		require.True(t, w.b.log.has("hold low behind high: machine_free"))
		require.Equal(t, "high", w.b.desk.Status()[0].Hold.Behind)
		w.gitlab.enqueue(1, 2)
		pass(1100 * time.Millisecond)
		high.mustGet(t, 1).settle(arrived)
		pass(100 * time.Millisecond)
		low.mustGet(t, 2).settle(arrived)
		require.True(t, w.b.log.has("hold low behind :"))
		for _, q := range w.gitlab.questions() {
			if q.token == lowToken {
				require.Empty(t, q.last, "GitLab must not hold a question that it may not be answered")
			}
		}
	})
}

// It is known at once that the better one waits no longer: not only when it is looked.
func TestA06_TheOtherTokenIsAskedWithAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		high := w.high("h")
		pass(heard)
		w.low("l")
		pass(sweepEvery / 10)
		high.cancel()
		pass(sweepEvery / 2)
		require.Equal(t, 1, w.asks(lowToken))
	})
}

// A held question ends as any other does, and it is told why.
func TestA06_AHeldQuestionEndsAfterTheLongPollWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		for range 4 { // it is back before it is missed
			w.high("h")
			pass(heard)
			low := w.low("l")
			pass(49 * time.Second)
			a, answered := low.got()
			require.True(t, answered)
			require.Equal(t, noJob, a.verdict)
		}
		require.Equal(t, 4, w.b.log.count("held low behind high: machine_free"))
	})
}

func TestA06_TheOtherTokenIsAskedWithOnceTheBetterIsOutOfTheWay(t *testing.T) {
	for name, away := range map[string]func(w *two, high *pending){
		"its machine left":        func(_ *two, high *pending) { high.cancel() },
		"its machine is to drain": func(w *two, _ *pending) { w.a.book.order("h", true) },
		"GitLab refuses it": func(w *two, _ *pending) {
			w.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
				if q.token == highToken {
					return forbidden(q)
				}
				return gitlab.JobAnswer{}, nil
			})
		},
		"GitLab does not answer for it": func(w *two, _ *pending) {
			w.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
				if q.token == highToken {
					return gitlab.JobAnswer{Status: 503}, nil
				}
				return gitlab.JobAnswer{}, nil
			})
		},
		"its replica has stopped": func(w *two, _ *pending) { w.a.stop() },
		"its replica drains":      func(w *two, _ *pending) { _ = w.a.desk.Drain(context.Background()) },
		"its replica is not heard": func(w *two, _ *pending) {
			w.bus.cutOff(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTwo(t)
				high := w.high("h")
				pass(heard)
				low := w.low("l")
				pass(2 * time.Second)
				require.Zero(t, w.asks(lowToken))
				away(w, high)
				pass(farFresh + 2*time.Second)
				require.NotZero(t, w.asks(lowToken), "%v", w.b.log.all())
				w.gitlab.enqueue(7)
				if name == "its replica is not heard" {
					return // either may be given it
				}
				pass(2 * time.Second)
				low.mustGet(t, 7).settle(arrived)
			})
		})
	}
}

// One replica: what it knows of its own lines is known at once.
func TestA06_OneReplicaWithTwoTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		low := w.b.askWith(lowToken, "l")
		pass(3 * time.Second)
		require.NotZero(t, w.asks(lowToken), "nobody else is there")
		high := w.b.askWith(highToken, "h")
		pass(time.Second)
		for id := range int64(5) {
			before := w.asks(lowToken)
			pass(2 * time.Second)
			require.Equal(t, before, w.asks(lowToken))
			w.gitlab.enqueue(id + 1)
			pass(1500 * time.Millisecond)
			high.mustGet(t, id+1).settle(arrived)
			high = w.b.askWith(highToken, "h")
			pass(10 * time.Millisecond)
		}
		low.mustWait(t)
	})
}

// Where nobody knows which jobs wait, and GitLab gives the better token none, as while its
// runner is paused, the other is not held back for ever.
func TestA06_ATokenThatGetsNothingHoldsNobodyBackForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		paused := func(q asked) (gitlab.JobAnswer, error) {
			if q.token == highToken {
				return gitlab.JobAnswer{Status: 204}, nil
			}
			return gitlab.JobAnswer{}, nil
		}
		w.gitlab.answerWith(paused)
		w.high("h")
		pass(heard)
		lows := []*pending{w.low("l1"), w.low("l2")}
		w.gitlab.enqueue(1, 2)
		pass(LookEvery - 2*time.Second)
		require.Zero(t, w.asks(lowToken))
		pass(5 * time.Second)
		for _, p := range lows {
			a, ok := p.got()
			require.True(t, ok)
			require.Equal(t, aJob, a.verdict, "what the look finds is followed by the next one at once")
			a.settle(arrived)
		}
		low := w.low("l3")
		before := w.asks(lowToken)
		pass(LookEvery / 3)
		low.mustWait(t)
		require.LessOrEqual(t, w.asks(lowToken), before+1, "only now and then")
	})
}

// The queue is known: what the better pool does not get although it is free goes to the
// other one, and no more than that.
func TestA06_JobsThatTheBetterTokenIsNotGivenArePassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		w.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
			if q.token == highToken {
				return gitlab.JobAnswer{Status: 204}, nil
			}
			return gitlab.JobAnswer{}, nil
		})
		w.high("h")
		pass(2 * FreePatience)
		low, more := w.low("l1"), w.low("l2")
		w.gitlab.enqueue(1, 2)
		queue := func(old int) {
			w.b.desk.SetQueues(map[string]Queue{"low": {Jobs: 2, At: time.Now(), Waited: []demand.Waited{{For: FreePatience, Jobs: old}}}})
		}
		queue(0)
		pass(5 * time.Second)
		require.Zero(t, w.asks(lowToken))
		queue(1)
		pass(time.Second)
		require.Equal(t, 1, w.asks(lowToken), "one has waited for too long")
		a, first := low.got()
		if !first {
			a, first = more.got()
		}
		require.True(t, first)
		a.settle(arrived)
	})
}

func grows(jobs int) map[string]router.Room {
	return map[string]router.Room{"high": {Jobs: jobs, At: time.Now()}}
}

// Jobs wait for the better pool while that can grow, for spill_after and not for longer;
// what it can't hold is asked for at once.
func TestA06_JobsWaitForTheBetterTokensPoolToGrow(t *testing.T) {
	spill := func(o *Options, _ *stand) {
		high := testPool("high", 0)
		high.SpillAfter = time.Minute
		o.Tokens = route.NewTokens(map[string][]spillway.Pool{highToken: {high}, lowToken: {testPool("low", 1)}})
	}
	queued := func(jobs, old int) map[string]Queue {
		return map[string]Queue{"low": {Jobs: jobs, At: time.Now(), Waited: []demand.Waited{{For: FreePatience, Jobs: old}, {For: time.Minute, Jobs: old}}}}
	}
	start := func(t *testing.T, jobs, old, room int) (*two, *pending) {
		w := newTwo(t, spill)
		w.b.desk.SetRoom(grows(room))
		w.b.desk.SetQueues(queued(jobs, old))
		low := w.low("l")
		w.low("l2")
		w.low("l3")
		pass(3 * time.Second)
		return w, low
	}
	bubble(t, func(t *testing.T) {
		w, _ := start(t, 1, 0, 4)
		require.Zero(t, w.asks(lowToken))
		require.True(t, w.b.log.has("hold low behind high: may_grow"))
		w.b.desk.SetQueues(queued(1, 1))
		pass(time.Second)
		require.NotZero(t, w.asks(lowToken), "it has waited for long enough")
	})
	bubble(t, func(t *testing.T) {
		w := newTwo(t, spill)
		w.gitlab.enqueue(1, 2, 3, 4, 5)
		w.b.desk.SetRoom(grows(3))
		w.b.desk.SetQueues(queued(5, 0))
		for _, m := range []string{"l1", "l2", "l3", "l4"} {
			w.low(m)
		}
		pass(3 * time.Second)
		require.Equal(t, 2, w.asks(lowToken), "three are for the better pool")
		w.b.desk.SetRoom(map[string]router.Room{"high": {Jobs: 3, At: time.Now(), CooledUntil: time.Now().Add(time.Hour)}})
		pass(3 * time.Second)
		require.Greater(t, w.asks(lowToken), 3, "it can't grow any more")
	})
	bubble(t, func(t *testing.T) {
		w, _ := start(t, 1, 0, 4)
		require.Zero(t, w.asks(lowToken))
		pass(router.RoomFresh)
		require.Zero(t, w.asks(lowToken))
		w.b.desk.SetQueues(queued(1, 0))
		w.low("l")
		pass(time.Second)
		require.NotZero(t, w.asks(lowToken), "nobody knows any more whether it can grow")
	})
}

// A job that is already in our hands goes to whoever waits with its token.
func TestA06_AKeptJobIsGivenThoughOthersAreFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		low := w.low("l")
		pass(2 * time.Second)
		low.cancel()
		pass(100 * time.Millisecond)
		w.gitlab.enqueue(3)
		require.True(t, w.b.desk.Offer(t.Context(), w.take(t), w.b.caller(lowToken, "l")))
		w.high("h")
		pass(heard)
		low = w.low("l2")
		pass(time.Second)
		low.mustGet(t, 3).settle(arrived)
	})
}

// take has GitLab give out a job to a machine that asked itself.
func (w *two) take(t *testing.T) []byte {
	t.Helper()
	a, err := w.gitlab.RequestJob(t.Context(), requestBody("l", "", runnerFeatures()), nil)
	require.NoError(t, err)
	return a.Body
}

func (s *stand) caller(token, system string) route.Caller {
	who, err := s.desk.opt.Tokens.Caller(token, requestBody(system, "", runnerFeatures()))
	require.NoError(s.t, err)
	return who
}

// Machines that ask GitLab themselves, through the front proxy, wait for their turn too,
// and others wait for them.
func TestA06_MachinesThatAskThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTwo(t)
		high, low := w.a.caller(highToken, "h"), w.b.caller(lowToken, "l")
		held, contested := w.a.desk.Turn(t.Context(), high)
		require.Nil(t, held)
		require.False(t, contested, "nobody goes before it")
		done := w.a.desk.Asking(high)
		pass(heard)

		began := time.Now()
		held, contested = w.b.desk.Turn(t.Context(), low)
		require.Equal(t, &HoldInfo{Pool: "low", Behind: "high", Why: MachineFree}, held)
		require.True(t, contested)
		require.Equal(t, DefaultLongPoll, time.Since(began))

		turn := make(chan *HoldInfo)
		go func() {
			held, _ := w.b.desk.Turn(t.Context(), low)
			turn <- held
		}()
		done(true)
		pass(backWithin - time.Second)
		select {
		case <-turn:
			require.Fail(t, "it was told that there is no job, and comes again")
		default:
		}
		require.Nil(t, <-turn, "it doesn't")
	})
}

// What replicas tell each other is read as if anybody could have written it.
func TestWhatReplicasTellIsBounded(t *testing.T) {
	now := turnTime
	r := newRivalry()
	say := func(replica string, pools ...toldPool) bool {
		data, err := json.Marshal(told{Replica: replica, Pools: pools})
		require.NoError(t, err)
		return r.learn(data, "ours", now)
	}
	require.False(t, r.learn([]byte("{"), "ours", now))
	require.False(t, say("", toldPool{"p", 0}))
	require.False(t, say("ours", toldPool{"p", 0}), "our own word")
	require.False(t, say("b", toldPool{"No Pool", 0}))
	require.False(t, say("b", slices.Repeat([]toldPool{{"p", 0}}, maxPoolsTold+1)...))
	require.True(t, say("b", toldPool{"p", 1 << 62}))
	require.False(t, say("b", toldPool{"p", 5}), "no news")
	require.True(t, say("b", toldPool{"p", -1}))
	for i := range maxReplicasHeard + 5 {
		say("r"+string(rune('A'+i)), toldPool{"p", 0})
	}
	require.Len(t, r.mu.others, maxReplicasHeard)
	now = now.Add(farFresh)
	r.sweep(now)
	require.Empty(t, r.mu.others)
}

// Pools of one token: a job goes to the best machine that waits, as ever; only which of
// them can grow counts.
func TestPoolsOfOneTokenDontHoldEachOtherBackByWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStand(t)
		legacy := s.ask("old", "first", legacyFeatures())
		second := s.ask("new", "second", runnerFeatures())
		pass(3 * time.Second)
		s.gitlab.enqueue(1)
		pass(2 * time.Second)
		second.mustGet(t, 1).settle(arrived)
		legacy.mustWait(t)
		require.Empty(t, s.desk.opt.Tokens.Contested())
	})
}
