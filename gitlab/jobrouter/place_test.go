package jobrouter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// A job is booked for a short time first only where its machine's acknowledgement is
// waited for and seen.
func TestOnlyAnAcknowledgementThatPassesUsIsWaitedFor(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		fronted, asked, has bool // the proxy is in front; GitLab waits for a word; the machine says it
		want                time.Duration
	}{
		{true, true, true, route.ConfirmWithin},
		{false, true, true, 0},
		{true, false, true, 0},
		{true, true, false, 0},
	} {
		l := &line{desk: &Desk{opt: Options{Fronted: tt.fronted}}}
		j := &job{id: "7", wish: wish{twoPhase: tt.asked}, payload: gitlab.Payload{}}
		j.payload.RunnerInfo.Timeout = time.Hour
		w := &waiter{who: &route.Caller{System: "s_1", Pool: spillway.Pool{Name: "p"}}, candidate: candidate{twoPhase: tt.has}}
		b := l.booking(j, w, now)
		require.Equal(t, tt.want, b.ConfirmWithin, "%+v", tt)
		require.Equal(t, now.Add(time.Hour+jobMargin), b.Until)
		require.Equal(t, spillway.MachineID("s_1"), b.Machine)
		require.Equal(t, "p", b.Pool)
	}
}
