package agent

import (
	"context"

	"github.com/spillway-ci/spillway/agent/shell"
	"github.com/spillway-ci/spillway/agent/tunnel"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// Sessions with the jobs that run here, where this machine's owner allows them.

// openTunnel serves one session beside everything else. A router asks only machines that
// said that they take them.
func (a *agent) openTunnel(m *runnerv1.OpenTunnel) {
	conn := a.link.connection()
	if !a.o.Debug || conn == nil {
		a.log.Warn("a tunnel was asked for, which this machine does not allow", "job", m.GetJobId())
		return
	}
	token, err := a.o.Token()
	if err != nil {
		a.log.Warn("no tunnel", "job", m.GetJobId(), "error", err)
		return
	}
	router := tunnel.Router{Client: runnerv1.NewRunnerServiceClient(conn), Token: token}
	var place *shell.Place
	if h := a.held[attempt{m.GetJobId(), m.GetAttempt()}]; h != nil && h.result == nil {
		place = h.place
	}
	why := tunnel.ErrNotHere
	if place != nil && a.tunnels.Add(1) > tunnel.Max {
		a.tunnels.Add(-1)
		place, why = nil, tunnel.ErrTooMany
	}
	log := a.log.With("job", m.GetJobId(), "attempt", m.GetAttempt())
	log.Info("tunnel opened", "refused", place == nil)
	a.jobs.Go(func() { // it ends with the job, or with the connection
		var err error
		if place == nil {
			err = router.Refuse(context.Background(), m, why)
		} else {
			err = router.Serve(context.Background(), m, place)
			a.tunnels.Add(-1)
		}
		log.Info("tunnel closed", "why", err)
	})
}
