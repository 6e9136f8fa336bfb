package roster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func rules() Rules {
	return Rules{
		Capacity: 2, Max: 10, IdleTime: 10 * time.Minute, RegisterTimeout: 10 * time.Minute,
		SilentAfter: 45 * time.Second, SilentTimeout: 30 * time.Minute, SecondLook: 2 * time.Second,
		AckTimeout: 30 * time.Second, RemoveRetry: time.Minute,
	}
}

// fleet is a roster with its cloud and machines as a test moves them.
type fleet struct {
	*Roster
	now      time.Time
	list     []Listed
	machines map[string]*router.Machine
}

func newFleet() *fleet {
	return &fleet{Roster: New(rules(), t0), now: t0, machines: map[string]*router.Machine{}}
}

func (f *fleet) launch(ids ...string) {
	for _, id := range ids {
		f.list = append(f.list, Listed{ID: id, LaunchedAt: f.now})
	}
}

func (f *fleet) register(ids ...string) {
	for _, id := range ids {
		f.machines[id] = &router.Machine{
			ID: spillway.MachineID("m-" + id), InstanceID: id, Capacity: 2, Connected: true,
			HeardAt: f.now, HeartbeatAt: f.now, RegisteredAt: f.now, LastUsedAt: f.now,
		}
	}
}

// pass moves the clock; machines that are connected send a heartbeat.
func (f *fleet) pass(d time.Duration) {
	f.now = f.now.Add(d)
	for _, m := range f.machines {
		if m.Connected {
			m.HeardAt, m.HeartbeatAt = f.now, f.now
		}
	}
	f.look()
}

func (f *fleet) look() {
	f.Listed(f.now, f.list)
	var ms []router.Machine
	for _, m := range f.machines {
		ms = append(ms, *m)
	}
	f.Heard(f.now, ms)
}

func (f *fleet) ack(id string) {
	f.machines[id].Draining, f.machines[id].DrainAckedAt = true, f.now
}

func (f *fleet) phases() map[string]Phase {
	out := map[string]Phase{}
	for id, in := range f.Instances {
		out[id] = in.Phase
	}
	return out
}

func TestALifeFromLaunchToRemoval(t *testing.T) {
	f := newFleet()
	f.launch("a", "b")
	f.look()
	require.Equal(t, 2, f.Census(f.now).Booting)

	f.pass(time.Minute)
	f.register("a", "b")
	f.machines["b"].Assigned = 1
	f.look()
	c := f.Census(f.now)
	require.Equal(t, Census{Usable: 2, Live: 2, InUse: 1, RunningJobs: 1, FreePlaces: 3, Registered: 2, NextIdle: t0.Add(11 * time.Minute)}, c)

	f.pass(10*time.Minute - time.Second)
	require.Empty(t, f.Drain(f.now, 5), "a second too early")
	f.pass(time.Second)
	require.Equal(t, 1, f.Census(f.now).Removable, "the busy one is not")
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", On: true, Reason: "idle"}}, f.Drain(f.now, 5))
	require.Empty(t, f.Removals(f.now, true), "not acknowledged")

	f.ack("a")
	f.look()
	require.Empty(t, f.Removals(f.now, true), "no second look yet")
	f.pass(2 * time.Second)
	require.Empty(t, f.Removals(f.now, false), "a hold keeps it")
	require.Equal(t, []Removal{{"a", Idle}}, f.Removals(f.now, true))

	f.RemoveAsked(f.now, []Removal{{"a", Idle}})
	require.Equal(t, 1, f.Census(f.now).Removing)
	f.list = f.list[1:]
	f.machines["a"].Connected = false
	f.pass(time.Minute)
	require.NotContains(t, f.Instances, "a")
}

func TestI1_TheSecondLookFindsWork(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	require.Len(t, f.Drain(f.now, 1), 1)
	f.machines["a"].Busy = 1 // a job arrived between the look and the drain
	f.ack("a")
	f.pass(2 * time.Second)
	require.Empty(t, f.Removals(f.now, true))
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", Reason: "found busy"}}, f.SecondLook(f.now))
	require.Equal(t, Usable, f.Instances["a"].Phase)
}

func TestADrainThatNobodyAcknowledgesIsTakenBack(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.pass(29 * time.Second)
	require.Empty(t, f.SecondLook(f.now))
	f.pass(time.Second)
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", Reason: "not acknowledged"}}, f.SecondLook(f.now))
}

func TestC04_OwnDrainsAreTakenBackTheLatestFirst(t *testing.T) {
	f := newFleet()
	f.launch("a", "b")
	f.register("a")
	f.look()
	f.pass(time.Minute)
	f.register("b")
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.pass(time.Minute)
	f.Drain(f.now, 1)
	require.Equal(t, map[string]Phase{"a": Draining, "b": Draining}, f.phases())
	require.Equal(t, 4, f.Census(f.now).DrainingPlaces)
	require.Equal(t, "b", f.TakeBack(1)[0].Instance)
	require.Len(t, f.TakeBack(5), 1)
}

func TestC18_NeverRegistersIsRemovedByName(t *testing.T) {
	f := newFleet()
	f.launch("a", "b")
	f.look()
	f.pass(time.Minute)
	f.register("b")
	f.pass(9 * time.Minute)
	require.Equal(t, map[string]Phase{"a": BootFailed, "b": Usable}, f.phases())
	require.Equal(t, []Removal{{"a", NeverRegistered}}, f.Removals(f.now, false), "not even a hold keeps it")
}

func TestC18_BreakerOpensAfterThreeInLaunchOrder(t *testing.T) {
	f := newFleet()
	f.launch("a", "b", "c", "d")
	f.look()
	require.Equal(t, -1, f.Boot.Clamp(f.now))
	f.pass(10 * time.Minute)
	require.Equal(t, 4, f.Boot.Failures)
	require.Equal(t, 0, f.Boot.Clamp(f.now), "open")
	f.now = f.now.Add(5 * time.Minute)
	require.Equal(t, 1, f.Boot.Clamp(f.now), "a probe")
	f.list = nil
	f.launch("probe")
	f.look()
	f.pass(10 * time.Minute)
	require.Equal(t, 10*time.Minute, f.Boot.Backoff, "doubled")
	f.launch("good")
	f.pass(10 * time.Minute)
	f.register("good")
	f.look()
	require.Equal(t, -1, f.Boot.Clamp(f.now), "closed by a registration")
}

func TestC18_AFailureOlderThanAGoodLaunchIsNotThePools(t *testing.T) {
	f := newFleet()
	f.launch("a", "b", "c")
	f.look()
	f.pass(time.Minute)
	f.launch("d")
	f.look()
	f.register("d")
	f.pass(9 * time.Minute)
	require.Equal(t, 0, f.Boot.Failures)
}

func TestSilentCoversNoDemandAndComesBack(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.machines["a"].Connected = false
	f.pass(44 * time.Second)
	require.Equal(t, 1, f.Census(f.now).Usable)
	f.pass(time.Second)
	c := f.Census(f.now)
	require.Equal(t, 1, c.Silent)
	require.Equal(t, 1, c.Live, "it bills")
	f.pass(time.Hour)
	require.Empty(t, f.Removals(f.now, true), "silence alone removes nothing")
	f.machines["a"].Connected = true
	f.pass(time.Second)
	require.Equal(t, 1, f.Census(f.now).Usable)
}

func TestC22_SilentOnesGoInPacesAndNotAllAtOnce(t *testing.T) {
	f := newFleet()
	for i := range 20 {
		id := fmt.Sprintf("i%02d", i)
		f.launch(id)
		f.register(id)
	}
	f.look()
	for i := range 9 {
		id := fmt.Sprintf("i%02d", i)
		f.machines[id].Connected = false
		f.list[i].Unhealthy = true
	}
	f.pass(time.Minute)
	f.pass(30 * time.Minute)
	require.Empty(t, f.Removals(f.now, true))
	require.Len(t, f.Lost(f.now), 5)
	for i := 9; i < 12; i++ {
		f.machines[fmt.Sprintf("i%02d", i)].Connected = false
	}
	f.pass(time.Minute)
	require.Empty(t, f.Lost(f.now), "more than half silent together: more likely us than them")
	require.True(t, f.Unready(f.Census(f.now)))
}

func TestMaxUsesAndInterruptionsAreDrainedForGood(t *testing.T) {
	f := newFleet()
	r := rules()
	r.MaxUses = 1
	f.SetRules(r)
	f.launch("used", "spot")
	f.register("used", "spot")
	f.machines["used"].Uses = 1
	f.look()
	require.True(t, f.Interrupt(Notice{Instance: "spot", Kind: "spot"}))
	require.Equal(t, map[string]Phase{"used": UsedUp, "spot": Interrupted}, f.phases())
	require.Empty(t, f.TakeBack(5))
	require.Len(t, f.Leaving(f.now), 2)
	require.Empty(t, f.Leaving(f.now), "told once")
	f.ack("used")
	f.pass(3 * time.Second)
	require.Equal(t, []Removal{{"used", Idle}}, f.Removals(f.now, true))
}

func TestC27_SomebodyElseEndsAnInstance(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.Changes()
	f.list[0].Deleting = true
	f.pass(time.Second)
	require.Equal(t, GoneForeign, f.Changes()[0].Kind)
	require.Equal(t, 1, f.Census(f.now).Removing)
}

func TestAShortListProvesNothing(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.look()
	f.list = nil
	f.pass(time.Second)
	f.pass(time.Second)
	require.Contains(t, f.Instances, "a")
	f.pass(time.Second)
	require.NotContains(t, f.Instances, "a")
}

func TestANewOwnerBelievesNothingThatItHasNotHeard(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.ack("a")
	data, err := json.Marshal(f.Roster)
	require.NoError(t, err)
	var kept Roster
	require.NoError(t, json.Unmarshal(data, &kept))

	next := New(rules(), f.now)
	next.Adopt(kept)
	require.True(t, next.WarmingUp(f.now))
	require.Equal(t, 1, next.Census(f.now).Draining, "a drain under way goes on")
	require.Empty(t, next.Removals(f.now.Add(5*time.Second), true))
	require.False(t, next.WarmingUp(f.now.Add(30*time.Second)))
}

// Whatever happens, nothing that is busy, unheard or unacknowledged is offered
// for removal as idle.
func TestI1_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		ids := []string{"a", "b", "c", "d"}
		t.Repeat(map[string]func(*rapid.T){
			"launch": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				if _, ok := f.Instances[id]; !ok && len(f.list) < 4 {
					f.launch(id)
				}
			},
			"register": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				if _, ok := f.Instances[id]; ok && f.machines[id] == nil {
					f.register(id)
				}
			},
			"work": func(t *rapid.T) {
				if m := f.machines[rapid.SampledFrom(ids).Draw(t, "id")]; m != nil {
					m.Busy, m.Assigned = rapid.IntRange(0, 1).Draw(t, "busy"), rapid.IntRange(0, 1).Draw(t, "assigned")
				}
			},
			"cut": func(t *rapid.T) {
				if m := f.machines[rapid.SampledFrom(ids).Draw(t, "id")]; m != nil {
					m.Connected = !m.Connected
				}
			},
			"ack": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				if in := f.Instances[id]; in != nil && in.Phase == Draining && f.machines[id] != nil && f.machines[id].DrainAckedAt.Before(in.DrainedAt) {
					f.ack(id)
				}
			},
			"drain": func(*rapid.T) { f.Drain(f.now, 2) },
			"pass": func(t *rapid.T) {
				f.pass(rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute, 10 * time.Minute}).Draw(t, "d"))
			},
			"": func(t *rapid.T) {
				f.look() // the loop hears before it removes
				for _, r := range f.Removals(f.now, true) {
					if r.Evidence != Idle {
						continue
					}
					m := f.machines[r.Instance]
					require.True(t, m.Connected && m.InUse() == 0 && m.HeartbeatAt.After(m.DrainAckedAt))
				}
				c := f.Census(f.now)
				require.Equal(t, c.Live, c.Usable+c.Booting+c.Draining+c.Leaving())
			},
		})
	})
}
