package session_test

import (
	"strconv"
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
			carried := 0
			told := map[string]int{}
			// Another message may take an acknowledgement along before the next job comes: on
			// a busy machine many times in a row.
			most := 20
			if reads {
				most = 1000
			}
			for i := 1; i <= most && (carried == 0 || i <= 3); i++ {
				p.mustPush(job(strconv.Itoa(i)))
				assign := r.assigned()
				for _, ack := range assign.GetAcks() {
					carried++
					told[ack.GetJobId()]++
					require.EqualValues(t, 1, ack.GetAttempt())
					require.False(t, ack.GetStale())
				}
				r.finish(assign.GetJob().GetId(), assign.GetAttempt())
				require.Eventually(t, func() bool { return p.seen.times("finished") == i }, patience, time.Millisecond)
			}
			for _, m := range r.asides {
				if ack := m.GetStatusAck(); ack != nil {
					told[ack.GetJobId()]++
				}
			}
			require.Equal(t, reads, carried > 0)
			require.Equal(t, 1, told["1"], "once, and before the job after it")
			for id, times := range told {
				require.Equal(t, 1, times, id)
			}
		})
	}
}
