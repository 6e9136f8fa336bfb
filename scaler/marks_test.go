package scaler

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Whatever order machines come in, they are the same if each of them is.
func TestMachinesAreComparedInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine := rapid.Custom(func(t *rapid.T) router.Machine {
			m := router.Machine{ID: spillway.MachineID(strconv.Itoa(rapid.IntRange(0, 4).Draw(t, "id"))), Busy: rapid.IntRange(0, 1).Draw(t, "busy")}
			if rapid.Bool().Draw(t, "acked") {
				m.DrainAckedAt = t0
			}
			m.HeardAt = t0.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "heard")) * time.Second) // concerns nobody
			return m
		})
		machines := rapid.SliceOfNDistinct(machine, 0, 5, func(m router.Machine) spillway.MachineID { return m.ID })
		before := machines.Draw(t, "before")
		now := machines.Draw(t, "now")
		if rapid.Bool().Draw(t, "only the order differs") {
			now = rapid.Permutation(before).Draw(t, "order")
		}
		require.Equal(t, maps.Equal(marks(before), marks(now)), sameMarks(before, now))
	})
}
