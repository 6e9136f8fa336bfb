package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

// X14: a machine whose instance is gone can't come back, and its job doesn't wait
// for it. The grace is for machines that may.
func TestX14_AJobDoesNotWaitForAMachineThatIsGone(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Grace: time.Hour}}) // longer than any patience here
	m := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := m.assigned()
	m.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)

	p.dispatcher.MachinesEnded([]spillway.MachineID{"m1", "unknown"})
	require.False(t, m.assignedBeforeAnswer(), "who speaks is not gone")
	require.Zero(t, p.seen.times("lost"))

	m.end()
	second := p.linux("m2", 1)
	again := second.assigned()
	require.Equal(t, "j1", again.GetJob().GetId())
	require.Equal(t, a.GetAttempt()+1, again.GetAttempt())
	require.Equal(t, 1, p.seen.times("lost"))
}

// The news may come after the stream has broken, too.
func TestX14_TheInstanceMayBeMissedAfterItsStream(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Grace: time.Hour}})
	m := p.linux("m1", 1)
	p.mustPush(job("j1"))
	m.accept("j1", m.assigned().GetAttempt())
	p.waitFor("j1", running)
	m.end()
	second := p.linux("m2", 1)
	p.dispatcher.MachinesEnded([]spillway.MachineID{"m1"})
	require.Equal(t, "j1", second.assigned().GetJob().GetId())
}

// A replica that has just started knows of no orders yet. A machine that is to be
// drained, and whose instance may be let go any moment, must not get a job from it.
func TestAMachineIsUnderItsOrderBeforeItIsOfferedAJob(t *testing.T) {
	one := startPlane(t, planeConfig{})
	require.NoError(t, one.store.OrderDrain(t.Context(), "linux", []router.DrainOrder{{Machine: "m1", On: true, Reason: "idle"}}))
	for i := range 20 {
		one.mustPush(job(fmt.Sprintf("j%d", i)))
		fresh := startPlane(t, planeConfig{store: one.store, options: session.Options{Replica: fmt.Sprintf("replica-%d", i+2)}})
		m := fresh.linux("m1", 1)
		require.True(t, expect(m, (*runnerv1.RouterMessage).GetDrain).GetDraining())
		require.False(t, m.assignedBeforeAnswer())
		m.end()
	}
}
