package roster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/router"
)

// crowd puts another machine on i-1, which has been there for longer than the one that
// the roster knows.
func crowd(f *fleet, busy int) *router.Machine {
	other := *f.machines["i-1"]
	other.ID, other.Busy = "m-other", busy
	other.RegisteredAt = other.RegisteredAt.Add(-time.Minute)
	f.machines["other"] = &other
	return &other
}

// A machine says itself which instance it is on. One that comes later than the machine
// that works there, by mistake or to do harm, must not have the instance removed with
// that one's jobs.
func TestI1_AnInstanceIsNotIdleWhileAnotherMachineThereHasAJob(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*router.Machine)
		idle   bool
	}{
		"it has a job":                         {func(m *router.Machine) { m.Busy = 1 }, false},
		"it may be given one any moment":       {func(*router.Machine) {}, false},
		"it has a job and has lost its stream": {func(m *router.Machine) { m.Busy, m.Connected = 1, false }, false},
		"it is a process of before":            {func(m *router.Machine) { m.Connected = false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.launch("i-1")
			f.pass(time.Minute)
			f.register("i-1")
			c.change(crowd(f, 0))
			f.look()
			for range 40 { // of 20 s
				f.pass(20 * time.Second)
				if other := f.machines["other"]; other.Busy > 0 {
					other.HeardAt = f.now
				}
				f.look()
			}
			require.Equal(t, c.idle, f.Census(f.now).Removable == 1)
			require.Equal(t, c.idle, len(f.Drain(f.now, 1)) == 1)
		})
	}
}

func TestI1_ADrainIsTakenBackWhenAnotherMachineShowsUpOnTheInstance(t *testing.T) {
	f := newFleet()
	f.launch("i-1")
	f.register("i-1")
	f.look()
	for range 40 {
		f.pass(20 * time.Second)
		f.look()
	}
	require.Len(t, f.Drain(f.now, 1), 1)
	f.ack("i-1")
	crowd(f, 1)
	f.pass(5 * time.Second)
	f.look()
	require.Empty(t, f.Removals(f.now, true))
	require.Len(t, f.SecondLook(f.now), 1)
	require.Equal(t, 1, f.Census(f.now).RunningJobs, "its job counts")

	delete(f.machines, "other")
	f.pass(5 * time.Second)
	f.look()
	require.Len(t, f.Drain(f.now, 1), 1, "it has left")
}

// The record of the newest machine may expire while another one is there: its jobs count
// once.
func TestTheJobsOfAnotherMachineAreCountedAnewEachTime(t *testing.T) {
	f := newFleet()
	f.launch("i-1")
	f.register("i-1")
	crowd(f, 1)
	f.machines["i-1"].Busy = 1
	for range 3 {
		f.pass(5 * time.Second)
		f.look()
		require.Equal(t, 2, f.Census(f.now).RunningJobs)
	}
	delete(f.machines, "i-1")
	for range 3 {
		f.pass(5 * time.Second)
		f.look()
		require.Equal(t, 2, f.Census(f.now).RunningJobs, "of the one that isn't heard nothing newer is known")
	}
	f.machines["other"].Busy = 0
	f.pass(5 * time.Second)
	f.look()
	require.Equal(t, 1, f.Census(f.now).RunningJobs)
}

// A memory that somebody else has written names no instance that can be used.
func TestAMemoryOfNothingIsAdoptedAsNothing(t *testing.T) {
	f := newFleet()
	f.Adopt(Roster{Instances: map[string]*Instance{"i-1": nil, "i-2": {ID: "i-3", Phase: Usable}, "i-4": {ID: "i-4", Phase: Booting}}})
	require.Equal(t, map[string]Phase{"i-4": Booting}, f.phases())
}
