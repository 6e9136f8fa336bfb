package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// A machine that says that it reads acknowledgements in assignments finds them there; to
// others they are messages of their own, in front of the assignment.
func TestAcksInAssignAreForThoseWhoReadThem(t *testing.T) {
	for name, reads := range map[string]bool{"reads them": true, "from before them": false} {
		t.Run(name, func(t *testing.T) {
			p := startPlane(t, planeConfig{options: session.Options{AckDelay: time.Hour}})
			r := p.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, AcksInAssign: reads})
			p.mustPush(job("j1"))
			r.finish("j1", r.assigned().GetAttempt())
			require.Eventually(t, func() bool { return p.seen.times("finished") == 1 }, patience, time.Millisecond)
			p.mustPush(job("j2"))
			if !reads {
				require.Equal(t, "j1", r.acked().GetJobId())
				require.Empty(t, r.assigned().GetAcks())
				return
			}
			acks := r.assigned().GetAcks()
			require.Len(t, acks, 1)
			require.Equal(t, "j1", acks[0].GetJobId())
			require.EqualValues(t, 1, acks[0].GetAttempt())
			require.False(t, acks[0].GetStale())
			for _, m := range r.asides {
				require.Nil(t, m.GetStatusAck(), "told once")
			}
		})
	}
}
