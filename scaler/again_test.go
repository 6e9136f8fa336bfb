package scaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// A drain that a hook carries out is acknowledged by nobody. It is one decision, however
// often the order is given.
func TestADrainByAHookIsOneEntryOfTheLedger(t *testing.T) {
	r := busy(t, 2)
	r.list[0].State, r.list[0].Hook = pluginsdk.StateDeleting, pluginsdk.TerminationHook
	r.status.Desired = 1
	require.Contains(t, r.next(5*time.Second), "drainmi-0=true")
	r.machines[0].Draining = true
	drains := 0
	r.ledger = nil
	for range 60 { // five minutes
		for _, did := range r.next(5 * time.Second) {
			if did == "drainmi-0=true" {
				drains++
			}
		}
	}
	require.GreaterOrEqual(t, drains, 9, "it is given again each 30 s, in case it was lost")
	for _, e := range r.ledger {
		require.Empty(t, e.Action)
	}

	r.fail["drain"] = plain("the store is away")
	r.next(30 * time.Second)
	require.Equal(t, "drain again", r.ledger[len(r.ledger)-1].Action, "what fails is told")
	require.Contains(t, r.ledger[len(r.ledger)-1].Result, "the store is away")
	delete(r.fail, "drain")

	r.machines[0].Draining = false // the order was lost with the store
	for range 12 {
		r.next(5 * time.Second)
	}
	require.Equal(t, "drain(i-0)", r.ledger[len(r.ledger)-1].Action)
}

type plain string

func (p plain) Error() string { return string(p) }
