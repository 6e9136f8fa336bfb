package router_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// twoPools is a pool that jobs wait for and one that they spill over to, which has a
// free place.
func twoPools(t *testing.T, spillAfter time.Duration) *desk {
	first := newPool("first", 0, 4)
	first.SpillAfter = spillAfter
	d := newDesk(t, first, newPool("second", 1, 4))
	d.connect("s", "second", 4)
	return d
}

func room(jobs int) map[string]router.Room {
	return map[string]router.Room{"first": {Jobs: jobs, At: dawn}}
}

func waited(n, ripe int, spillAfter time.Duration) router.ClassCount {
	c := count(n)
	c.Waited = []demand.Waited{{For: spillAfter, Jobs: ripe}}
	return c
}

func wanted(wants []router.ClaimWant, pool string) (n int) {
	for _, w := range wants {
		if w.Pool == pool {
			n += w.N
		}
	}
	return n
}

func TestAJobWaitsForAPoolThatCanGrow(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.SetRoom(room(5))
	d.AddPending(count(1))
	require.Empty(t, d.Plan(d.now))
	at, ok := d.RipensAt()
	require.True(t, ok)
	require.Equal(t, dawn.Add(time.Minute), at)
	next, _ := d.NextDeadline()
	require.False(t, next.After(at))
	d.wait(59 * time.Second)
	d.Heartbeat(d.now, "s", 0, false, nil)
	require.Empty(t, d.Plan(d.now))
	d.wait(time.Second)
	d.SetRoom(map[string]router.Room{"first": {Jobs: 5, At: d.now}})
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
}

func TestWhatAPoolHasNoRoomForSpillsOverAtOnce(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.SetRoom(room(2))
	d.AddPending(count(5))
	require.Equal(t, 3, wanted(d.Plan(d.now), "second"), "two wait for the two places that can come")
}

func TestNobodyWaitsForAPoolThatCannotGrow(t *testing.T) {
	for name, r := range map[string]router.Room{
		"full":       {At: dawn},
		"cooled off": {Jobs: 5, At: dawn, CooledUntil: dawn.Add(time.Minute)},
		"down":       {Jobs: 5, At: dawn, Down: true},
		"old news":   {Jobs: 5, At: dawn.Add(-router.RoomFresh - 1)},
	} {
		t.Run(name, func(t *testing.T) {
			d := twoPools(t, time.Minute)
			d.SetRoom(map[string]router.Room{"first": r})
			d.AddPending(count(1))
			require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
		})
	}
	t.Run("nothing known", func(t *testing.T) {
		d := twoPools(t, time.Minute)
		d.AddPending(count(1))
		require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
	})
}

func TestOnlyTheJobsThatHaveWaitedSpillOver(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.wait(2 * time.Minute)
	d.Heartbeat(d.now, "s", 0, false, nil)
	d.SetRoom(map[string]router.Room{"first": {Jobs: 50, At: d.now}})
	d.SetCounts([]router.ClassCount{waited(4, 2, time.Minute)})
	require.Equal(t, 2, wanted(d.Plan(d.now), "second"))
	d.AddPending(count(1))
	require.Empty(t, d.Plan(d.now), "a new job is not as old as the oldest")
	_, ok := d.RipensAt()
	require.True(t, ok, "the younger ones are looked at again")
}

func TestFreePlacesOfThePoolComeBeforeAnyWaiting(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.connect("f", "first", 1)
	d.SetRoom(room(0))
	d.AddPending(count(3))
	wants := d.Plan(d.now)
	require.Equal(t, 1, wanted(wants, "first"))
	require.Equal(t, 2, wanted(wants, "second"))
}

func TestAFreePlaceElsewhereIsWaitedForAMoment(t *testing.T) {
	d := twoPools(t, 0)
	d.SetPeers(true)
	d.AddPending(count(3))
	require.Empty(t, d.Plan(d.now), "nothing is known of the others yet")
	require.True(t, d.RemoteWanted(d.now))

	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "first", Free: 2, At: d.now}})
	require.False(t, d.RemoteWanted(d.now))
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"), "the other replica has two places")
	d.wait(router.RemoteFresh)
	require.True(t, d.RemoteWanted(d.now))
	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "first", Free: 1, At: d.now}, {Pool: "second", Free: 9, At: d.now}})
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"), "one of the two is gone, and of a pool of its own priority nobody waits for more")
	d.wait(router.RemotePatience - router.RemoteFresh)
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"), "patience has an end")
}

func TestAReplicaThatIsAloneWaitsForNobody(t *testing.T) {
	d := twoPools(t, 0)
	d.AddPending(count(1))
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
	require.False(t, d.RemoteWanted(d.now))
}

func TestPlacesOfASilentReplicaDontCount(t *testing.T) {
	d := twoPools(t, 0)
	d.SetPeers(true)
	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "first", Free: 2, At: d.now.Add(-spillway.SilentAfter - 1)}})
	d.AddPending(count(1))
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
}

func TestAgesAreThoseOfThePools(t *testing.T) {
	a, b := newPool("a", 0, 1), newPool("b", 1, 1)
	a.SpillAfter, b.SpillAfter = time.Minute, router.RemotePatience
	require.Equal(t, []time.Duration{router.RemotePatience, time.Minute}, newDesk(t, a, b).Ages())
}

// A pool may want jobs that have waited only: what others have then, or how many could
// grow, does not matter.
func TestAPoolOfAnotherCellTakesJobsThatHaveWaited(t *testing.T) {
	far := newPool("far", spillway.MaxPoolPriority, 4)
	far.LeastWait = time.Minute
	d := newDesk(t, newPool("own", 0, 4), far)
	d.connect("o", "own", 1)
	d.connect("f", "far", 4)
	d.AddPending(count(3))
	wants := d.Plan(d.now)
	require.Equal(t, 1, wanted(wants, "own"))
	require.Zero(t, wanted(wants, "far"))
	at, ok := d.RipensAt()
	require.True(t, ok)
	require.Equal(t, dawn.Add(time.Minute), at)
	choice := d.ExplainChoice(d.now, &spillway.Job{ID: "1", Requirement: count(1).Requirement, SubmittedAt: dawn})
	require.Equal(t, router.OutcomeWaits, choice.Pools[1].Outcome)
	require.Contains(t, choice.Pools[1].Detail, "only after it has waited for 1m0s")
	d.wait(time.Minute)
	d.Heartbeat(d.now, "f", 0, false, nil)
	require.Equal(t, 2, wanted(d.Plan(d.now), "far"))
	require.Equal(t, []time.Duration{router.RemotePatience, time.Minute}, d.Ages())
}

func TestOnlyTheJobsThatHaveWaitedGoToAnotherCell(t *testing.T) {
	far := newPool("far", spillway.MaxPoolPriority, 4)
	far.LeastWait = time.Minute
	d := newDesk(t, newPool("own", 0, 4), far)
	d.wait(2 * time.Minute)
	d.connect("f", "far", 4)
	d.SetCounts([]router.ClassCount{waited(3, 1, time.Minute)})
	require.Equal(t, 1, wanted(d.Plan(d.now), "far"))
}

// A free machine of the better pool at another replica takes one of three jobs. The others
// have not waited for long enough for a pool of another cell, and are not there at once.
func TestWhatAnotherReplicaCannotTakeWaitsForLeastWait(t *testing.T) {
	away := newPool("away", 1_000, 9)
	away.LeastWait = time.Minute
	d := newDesk(t, newPool("own", 0, 1), away)
	d.SetPeers(true)
	d.connect("c", "away", 9)
	c := count(3)
	c.Waited = []demand.Waited{{For: router.RemotePatience}, {For: time.Minute}}
	d.SetCounts([]router.ClassCount{c})
	require.Empty(t, d.Plan(d.now))
	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "own", Free: 1, At: d.now}})
	require.Empty(t, d.Plan(d.now))
}

// To look at what all the others have costs each replica a read of every machine there is.
func TestOthersAreLookedAtOnlyWhileAPlaceDependsOnThem(t *testing.T) {
	d := twoPools(t, 0)
	d.SetPeers(true)
	d.AddPending(count(1))
	require.Empty(t, d.Plan(d.now))
	require.True(t, d.RemoteWanted(d.now), "another replica may have a better place")
	d.Heartbeat(d.now, "s", 4, false, nil)
	d.AddPending(count(1))
	require.Empty(t, d.Plan(d.now))
	require.False(t, d.RemoteWanted(d.now), "there is no place here that anybody could go to")
}

// The queue was counted while the only job of its class was ours. How long it has waited
// nobody knows when it comes back, until the queue is counted again.
func TestAJobThatComesBackHasNotWaitedForEver(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.connect("f", "first", 1)
	a := d.runOne()
	require.Equal(t, spillway.MachineID("f"), a.Machine)
	d.SetRoom(room(5))
	claimed := count(0)
	claimed.Claimed = 1
	d.SetCounts([]router.ClassCount{claimed})
	require.True(t, d.Refused(d.now, "f", a.Ref, true))
	require.True(t, d.Requeued(a.Ref))
	require.Empty(t, d.Plan(d.now), "it waits for the pool that can grow")

	old := count(1)
	old.Oldest = dawn.Add(-time.Minute)
	d.SetCounts([]router.ClassCount{old})
	require.Equal(t, 1, wanted(d.Plan(d.now), "second"))
}

// What a class doesn't wait for may be what another one waits for, whichever is looked at
// first.
func TestEachClassWaitsForWhatIsAheadOfIt(t *testing.T) {
	for range 20 {
		mid, last := newPool("mid", 5, 1, "a", "b"), newPool("last", 9, 4, "b")
		mid.LeastWait, mid.SpillAfter = 10*time.Second, time.Minute
		d := newDesk(t, mid, last)
		d.wait(30 * time.Second)
		d.connect("m", "mid", 1)
		d.connect("l", "last", 4)
		d.SetRoom(map[string]router.Room{"mid": {Jobs: 5, At: d.now}})
		d.SetCounts([]router.ClassCount{count(1, "a"), count(2, "b")})
		wants := d.Plan(d.now)
		require.Equal(t, 1, wanted(wants, "mid"))
		require.Zero(t, wanted(wants, "last"), "the others wait for the room that mid has")
	}
}
