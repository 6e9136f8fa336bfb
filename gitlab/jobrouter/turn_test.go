package jobrouter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/demand"
)

var turnTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// against is a contest of a pool of priority 1, whose machine waits.
func against(queue *Queue, others ...contender) *contest {
	for i := range others {
		if others[i].pool == "" {
			others[i].pool = fmt.Sprintf("better%d", i)
		}
		others[i].apart = true
	}
	return &contest{now: turnTime, pool: "ours", priority: 1, waits: true, others: others, queue: queue}
}

// counted is a queue in which so many jobs have waited for a minute.
func counted(jobs, minute int) *Queue {
	return &Queue{Jobs: jobs, Waited: []demand.Waited{{For: FreePatience, Jobs: minute}, {For: time.Minute, Jobs: minute}}, At: turnTime}
}

func TestWhoseTurnItIs(t *testing.T) {
	growing := contender{room: 3, spillAfter: time.Minute}
	for _, c := range []struct {
		name  string
		c     *contest
		jobs  int
		why   Why
		blind bool
	}{
		{"nobody else", against(nil), anyNumber, "", false},
		{"the other is full", against(counted(5, 0), contender{}), anyNumber, "", false},
		{"the other is free", against(counted(5, 5), contender{free: true}), 0, MachineFree, false},
		{"the other is free, and nobody knows the queue", against(nil, contender{free: true}), 0, MachineFree, true},
		{"the other is free, and nothing waits", against(counted(0, 0), contender{free: true, freeFor: time.Hour}), 0, MachineFree, false},
		{"the other is free for long and does not get what is old", against(counted(5, 2), contender{free: true, freeFor: time.Minute}), 2, MachineFree, false},
		{"the other was not free for that long when the jobs were counted", against(counted(5, 2), contender{free: true, freeFor: FreePatience - 1}), 0, MachineFree, false},
		{"one of the same priority is free", against(counted(5, 5), contender{priority: 1, free: true}), anyNumber, "", false},
		{"a worse one is free", against(counted(5, 5), contender{priority: 2, free: true}), anyNumber, "", false},
		{"the other can grow, and jobs don't wait for that", against(counted(1, 0), contender{room: 3}), anyNumber, "", false},
		{"the other can grow, and jobs wait for that", against(counted(3, 0), growing), 0, MayGrow, false},
		{"more wait than it can hold", against(counted(5, 0), growing), 2, MayGrow, false},
		{"some have waited for long enough", against(counted(3, 1), growing), 1, MayGrow, false},
		{"the next job has not waited yet", against(counted(0, 0), growing), 0, MayGrow, false},
		{"it can grow, and nobody knows how long jobs wait", against(&Queue{Jobs: 3, At: turnTime}, growing), anyNumber, "", false},
		{"it can grow, and nobody knows the queue", against(nil, growing), anyNumber, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.c.turn()
			require.Equal(t, c.jobs, got.jobs)
			require.Equal(t, c.why, got.why)
			if c.jobs < anyNumber {
				require.Equal(t, "better0", got.behind)
				require.Equal(t, c.blind, got.blind)
			}
		})
	}
}

// A pool without a machine asks for a job to be kept, which starts one.
func TestWhoseTurnItIsFromZero(t *testing.T) {
	fromZero := func(o contender) turn {
		c := against(nil, o)
		c.waits = false
		return c.turn()
	}
	require.Equal(t, anyNumber, func() int { x := fromZero(contender{}); return x.jobs }())
	for _, o := range []contender{
		{room: 1},                 // it is the one to start a machine
		{free: true},              // it needs none
		{free: true, priority: 5}, // a machine now is better than one to come
	} {
		got := fromZero(o)
		require.True(t, got.held(), "%+v", o)
	}
	got := fromZero(contender{room: 1, priority: 5})
	require.False(t, got.held(), "a worse one need not start one for us")
}

func drawContest(t *rapid.T) *contest {
	c := &contest{now: turnTime, pool: "ours", priority: rapid.IntRange(0, 2).Draw(t, "priority"), waits: rapid.Bool().Draw(t, "waits")}
	for i := range rapid.IntRange(0, 4).Draw(t, "others") {
		c.others = append(c.others, contender{
			pool: fmt.Sprintf("p%d", i), priority: rapid.IntRange(0, 3).Draw(t, "its priority"), apart: true,
			spillAfter: time.Duration(rapid.IntRange(0, 2).Draw(t, "spill")) * time.Minute,
			free:       rapid.Bool().Draw(t, "free"), freeFor: time.Duration(rapid.IntRange(0, 30).Draw(t, "free for")) * time.Second,
			room: rapid.IntRange(0, 3).Draw(t, "room"),
		})
	}
	if rapid.IntRange(0, 4).Draw(t, "known") > 0 {
		jobs := rapid.IntRange(0, 6).Draw(t, "jobs")
		old := rapid.IntRange(0, jobs).Draw(t, "10s")
		minute := rapid.IntRange(0, old).Draw(t, "1m")
		c.queue = &Queue{Jobs: jobs, At: turnTime, Waited: []demand.Waited{
			{For: FreePatience, Jobs: old}, {For: time.Minute, Jobs: minute}, {For: 2 * time.Minute, Jobs: rapid.IntRange(0, minute).Draw(t, "2m")},
		}}
	}
	return c
}

func (c *contest) better() (list []*contender) {
	for i := range c.others {
		if c.others[i].priority < c.priority {
			list = append(list, &c.others[i])
		}
	}
	return list
}

// A06, I11: no job for a machine while a better one is free for it; only one that has
// demonstrably not got what waits is passed by.
func TestPropertyA06_NobodyAsksWhileABetterPoolIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		got := c.turn()
		for _, o := range c.better() {
			if !o.free || got.held() {
				continue
			}
			require.GreaterOrEqual(t, o.freeFor, FreePatience)
			require.NotNil(t, c.queue)
			old := c.queue.Waited[0].Jobs
			require.Positive(t, old)
			require.LessOrEqual(t, got.jobs, old)
		}
		if got.held() {
			require.NotEmpty(t, got.behind)
			require.NotEmpty(t, got.why)
		}
	})
}

// Nobody waits for what isn't known, nor for those that have nothing to give.
func TestPropertyA06_NobodyWaitsForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		c.waits = true
		reason := false
		for _, o := range c.better() {
			reason = reason || o.free || o.room > 0 && o.spillAfter > 0 && c.queue != nil
		}
		if got := c.turn(); !reason {
			require.Equal(t, anyNumber, got.jobs)
		}
	})
}

// Jobs are waited with for a bounded time: what has waited for longer than every pool's
// spill_after is asked for, as long as no better pool is free; and what a free pool does
// not get although it is free is asked for too.
func TestPropertyA06_NothingStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		c.waits = true
		jobs := rapid.IntRange(1, 6).Draw(t, "old jobs")
		c.queue = &Queue{Jobs: jobs, At: turnTime, Waited: []demand.Waited{{For: FreePatience, Jobs: jobs}, {For: time.Minute, Jobs: jobs}, {For: 2 * time.Minute, Jobs: jobs}}}
		for i := range c.others {
			c.others[i].freeFor = FreePatience
		}
		got := c.turn()
		require.GreaterOrEqual(t, got.jobs, jobs)
	})
}

// A better pool that fills up, cools off or is no longer known of never takes a turn away.
func TestPropertyA06_LessOfOthersIsNeverWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawContest(t)
		if len(c.others) == 0 {
			return
		}
		c.waits = true
		before := c.turn()
		o := &c.others[rapid.IntRange(0, len(c.others)-1).Draw(t, "who")]
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			o.free = false
		case 1:
			o.room = max(0, o.room-1)
		default:
			o.free, o.room = false, 0
		}
		after := c.turn()
		require.GreaterOrEqual(t, after.jobs, before.jobs)
	})
}

// Of pools that take the same jobs and of which one has a machine that waits, it is always
// somebody's turn, unless some pool is to start a machine.
func TestPropertyA06_SomebodyMayAsk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "pools")
		all := make([]contender, n)
		for i := range all {
			all[i] = contender{pool: fmt.Sprintf("p%d", i), priority: rapid.IntRange(0, 2).Draw(t, "priority"), apart: true, free: rapid.Bool().Draw(t, "free"), room: rapid.IntRange(0, 1).Draw(t, "room")}
		}
		someFree, may, grows := false, false, false
		for i := range all {
			c := &contest{now: turnTime, pool: all[i].pool, priority: all[i].priority, waits: all[i].free}
			c.others = append(append([]contender{}, all[:i]...), all[i+1:]...)
			got := c.turn()
			someFree, grows = someFree || all[i].free, grows || all[i].room > 0
			may = may || !got.held() && all[i].free
		}
		if someFree && !grows {
			require.True(t, may)
		}
	})
}

func TestACrowdIsThereAsLongAsSomebodyIsOrComesBackSoon(t *testing.T) {
	var c crowd
	at := func(s float64) time.Time { return turnTime.Add(time.Duration(s * float64(time.Second))) }
	since := func(s float64) time.Time {
		got, ok := c.since("a", at(s))
		require.True(t, ok)
		return got
	}
	none := func(s float64) {
		_, ok := c.since("a", at(s))
		require.False(t, ok)
	}
	none(0)
	require.True(t, c.come("a", "m1", at(0)))
	require.False(t, c.come("a", "m2", at(1)))
	require.False(t, c.leave("a", "m1", false, at(2)), "another one waits")
	require.Equal(t, at(0), since(3))
	require.False(t, c.leave("a", "m2", true, at(50)), "it asks again soon")
	require.Equal(t, at(0), since(54))
	require.False(t, c.come("a", "m2", at(54)))
	require.Equal(t, at(0), since(55), "without a break")
	require.True(t, c.leave("a", "m2", false, at(56)), "it has a job")
	none(56)
	require.False(t, c.leave("a", "m2", false, at(57)), "of one that isn't there nothing is left")

	require.True(t, c.come("a", "m3", at(60)))
	c.leave("a", "m3", true, at(61))
	none(66)
	require.True(t, c.come("a", "m3", at(67)))
	require.Equal(t, at(67), since(68), "it was away for too long")
	require.True(t, c.come("b", "m3", at(67)), "pools are apart")
	c.leave("a", "m3", true, at(68))
	c.leave("b", "m3", false, at(68))
	c.sweep(at(80))
	require.Empty(t, c.pools, "nothing piles up")
}
