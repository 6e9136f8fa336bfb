package roster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the simulation of random stories has found: each is a leak, a launch too
// many, or a removal without proof.

func TestAbsentInstancesAreWrittenOffWhenTheNumberFellWithThem(t *testing.T) {
	f := newFleet()
	f.launch("a", "b", "c")
	f.register("a", "b", "c")
	f.look()
	require.Zero(t, f.Census(f.now).Absent)

	f.list = f.list[2:] // a and b ended
	f.machines["a"].Connected = false
	f.look()
	f.look() // a is known to be disconnected only after a look
	require.Equal(t, 2, f.Census(f.now).Absent, "whatever is still heard")
	f.WriteOff(f.now, 2)
	require.NotContains(t, f.Instances, "a")
	require.Contains(t, f.Instances, "b", "it is still heard")
	f.WriteOff(f.now, 0)
	require.Contains(t, f.Instances, "c")
}

func TestWhatNoListHasHadIsNotAbsent(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a", "b")
	f.look()
	require.Equal(t, 1, f.Census(f.now).Unlisted, "b is heard, and nobody has listed it yet")
	require.Zero(t, f.Census(f.now).Absent, "that doesn't say that it is gone")
	f.launch("b")
	f.look()
	require.Zero(t, f.Census(f.now).Unlisted)
}

func TestBootsTellsWhoHasNoMachineYet(t *testing.T) {
	f := newFleet()
	f.launch("a", "b", "c")
	f.register("a")
	f.look()
	require.Equal(t, map[string]bool{"a": false, "b": true, "c": true}, f.Boots())
	f.pass(rules().RegisterTimeout)
	require.Equal(t, map[string]bool{"a": false, "b": false, "c": false}, f.Boots(), "nobody counts on a boot that has failed")
}

func TestADrainForGoodIsOrderedAgainUntilItIsAcknowledged(t *testing.T) {
	f := newFleet()
	f.rules.MaxUses = 1
	f.launch("a")
	f.register("a")
	f.machines["a"].Uses = 1
	f.look()
	require.Len(t, f.Leaving(f.now), 1)
	f.pass(29 * time.Second)
	require.Empty(t, f.Leaving(f.now), "it has time to acknowledge")
	f.pass(time.Second)
	require.Len(t, f.Leaving(f.now), 1, "the order was lost with the store")
	f.ack("a")
	f.pass(time.Minute)
	require.Empty(t, f.Leaving(f.now))
	require.Equal(t, []Removal{{"a", Idle}}, f.Removals(f.now, true))
}

func TestAnOlderAcknowledgementCountsOnlyForWhatLeavesForGood(t *testing.T) {
	for _, forGood := range []bool{true, false} {
		f := newFleet()
		f.rules.MaxUses = 1
		f.launch("a")
		f.register("a")
		f.ack("a") // to an owner that has lost its memory since
		if forGood {
			f.machines["a"].Uses = 1
		}
		f.pass(11 * time.Minute)
		if forGood {
			require.Len(t, f.Leaving(f.now), 1)
		} else {
			require.Len(t, f.Drain(f.now, 1), 1)
		}
		f.pass(29 * time.Second)
		require.Empty(t, f.Removals(f.now, true))
		f.pass(time.Second)
		if forGood {
			require.Equal(t, []Removal{{"a", Idle}}, f.Removals(f.now, true))
		} else {
			require.Empty(t, f.Removals(f.now, true), "such a drain may have been taken back in between")
		}
	}
}

func TestI1_ARemovalThatFailedNeedsItsProofAgain(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.ack("a")
	f.pass(2 * time.Second)
	require.Equal(t, []Removal{{"a", Idle}}, f.Removals(f.now, true))
	f.RemoveAsked(f.now, []Removal{{"a", Idle}})
	f.RemoveFailed("a")
	require.Equal(t, Draining, f.Instances["a"].Phase)
	f.pass(time.Minute)
	require.Empty(t, f.Removals(f.now, false), "a hold holds for it too")
	require.Equal(t, []Removal{{"a", Idle}}, f.Removals(f.now, true))

	f.RemoveAsked(f.now, []Removal{{"a", Idle}}) // accepted, and nothing happens
	f.pass(time.Minute)
	require.Equal(t, []Removal{{"a", StillThere}}, f.Removals(f.now, true))
}

// Its drain was lost with the store, and the provider did nothing: it takes jobs like any
// other, and is counted so until it is drained anew. Taken for one that ends, it would
// hide from the scaler that a place is missing, for as long as it has work.
func TestI4_ARemovalThatCameToNothingLeavesAMachineThatServes(t *testing.T) {
	asked := func(t *testing.T) *fleet {
		f := newFleet()
		f.launch("a")
		f.register("a")
		f.look()
		f.pass(10 * time.Minute)
		f.Drain(f.now, 1)
		f.ack("a")
		f.pass(2 * time.Second)
		f.RemoveAsked(f.now, []Removal{{"a", Idle}})
		f.machines["a"].Draining, f.machines["a"].Busy = false, 1
		f.pass(time.Minute - time.Second)
		require.Equal(t, Removing, f.Instances["a"].Phase, "it may still be on its way")
		return f
	}
	f := asked(t)
	f.pass(time.Second)
	require.Equal(t, Usable, f.Instances["a"].Phase)
	require.Empty(t, f.Removals(f.now, true))
	require.Equal(t, 1, f.Census(f.now).InUse)
	f.machines["a"].Busy, f.machines["a"].LastUsedAt = 0, f.now
	f.pass(9 * time.Minute)
	require.Empty(t, f.Removals(f.now, true), "idle alone is no proof: it takes jobs")
	f.pass(time.Minute)
	require.Len(t, f.Drain(f.now, 1), 1)

	for name, change := range map[string]func(*fleet){
		"the provider ends it": func(f *fleet) { f.list[0].Deleting = true },
		"a hook holds it":      func(f *fleet) { f.list[0].Hook = TerminationHook },
		"it is drained":        func(f *fleet) { f.machines["a"].Draining = true },
		"it says nothing":      func(f *fleet) { f.machines["a"].Connected = false },
	} {
		f := asked(t)
		change(f)
		f.pass(time.Minute)
		require.Equal(t, Removing, f.Instances["a"].Phase, name)
	}
}

func TestAFailedRemovalOfAnInterruptedInstanceLeavesItInterrupted(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.Interrupt(Notice{Instance: "a", Kind: "spot"})
	f.Leaving(f.now)
	f.RemoveAsked(f.now, []Removal{{"a", Idle}})
	f.RemoveFailed("a")
	require.Equal(t, Interrupted, f.Instances["a"].Phase)
}

func TestPlacesOfADrainThatWasJustTakenBackAreCountedOnce(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.ack("a")
	f.look()
	require.Equal(t, 2, f.Census(f.now).DrainingPlaces)
	f.TakeBack(1)
	require.Equal(t, 2, f.Census(f.now).DrainingPlaces, "its record still says that it drains: nobody sees free places")
	f.machines["a"].Draining = false
	f.look()
	require.Zero(t, f.Census(f.now).DrainingPlaces)
}

// A replica that was killed says of no machine any more that its stream has ended.
func TestAMachineThatIsNotHeardIsNoInstance(t *testing.T) {
	f := newFleet()
	f.register("a")
	f.look()
	require.Contains(t, f.Instances, "a", "not listed yet, but heard")
	for range 3 {
		f.now = f.now.Add(rules().SilentAfter)
		f.look()
	}
	require.Empty(t, f.Instances)
}
