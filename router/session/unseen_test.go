package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

// twins are two pools of one priority that take the same jobs, one of the same priority
// that takes others, and one that comes after them.
func twins() []spillway.Pool {
	pools := []spillway.Pool{linuxPool(1), linuxPool(1), macPool(), linuxPool(1)}
	pools[1].Name = "twin"
	pools[3].Name, pools[3].Priority = "spill", 1
	return pools
}

// Of several pools of one priority the best machine gets a job, whichever of them it was
// claimed for. A replica that is killed before the start is written leaves a record that
// names the pool only: a machine of any of these may have it, and says so to another
// replica. A machine of a pool that is not one of them, or that can't take the job, is
// not believed; nor is one that names another attempt, nor the second one.
func TestAStartInAPoolOfEqualPriorityIsBelieved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token    string
		attempt  int32
		believed bool
	}{
		"its own pool":                      {linuxToken, 1, true},
		"a pool of equal priority":          {"token-of-twin", 1, true},
		"a pool of a later priority":        {"token-of-spill", 1, false},
		"a pool that can't take it":         {macToken, 1, false},
		"another attempt, in an equal pool": {"token-of-twin", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPlane(t, planeConfig{options: session.Options{Replica: "replica-2", Pools: twins()}})
			p.mustPush(job("j1"))
			wants := []router.ClaimWant{{Class: spillway.Requirement{Tags: []string{"linux"}}.Class(), Pool: "linux", N: 1}}
			claimed, err := p.store.Claim(t.Context(), "a replica that was killed", wants, time.Minute)
			require.NoError(t, err)
			require.Len(t, claimed, 1)

			has := []*runnerv1.RunningJob{{JobId: "j1", Attempt: c.attempt}}
			first := p.connect(c.token, &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: has})
			if !c.believed {
				require.Len(t, first.registered.GetSuperseded(), 1)
				record, err := p.store.Get(t.Context(), "j1")
				require.NoError(t, err)
				require.Equal(t, spillway.Assigned, record.State)
				require.Empty(t, record.Machine, "nothing was changed")
				return
			}
			require.Empty(t, first.registered.GetSuperseded())
			first.heartbeat(1, false, has...)
			require.Equal(t, "m1", p.waitFor("j1", running).GetMachineId(), "its record names it by now")
			second := p.connect("token-of-twin", &runnerv1.Register{MachineId: "m2", Capacity: 1, Running: has})
			require.Len(t, second.registered.GetSuperseded(), 1, "one machine has it, and that is known")
			first.finish("j1", c.attempt)
			require.False(t, first.acked().GetStale())
			require.Equal(t, "m1", p.waitFor("j1", completed).GetMachineId())
		})
	}
}
